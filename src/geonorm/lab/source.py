"""Where a run gets its data and its model, and how its training begins."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from .data import Task
from .ddp_team import Team
from .recipe import Run
from .train import Training


class Source(Protocol):
    """Where the data and the model of a run come from. Picklable, if several processes are to work."""

    def task(self, run: Run) -> Task:
        """The data."""

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model with the norm of the run and its first weights; the seed is set."""

    def training(self, run: Run, task: Task, team: Team) -> Training:
        """The model, ready for its first epoch."""
        return Training(self.model(run, task), task, run.choices, team)
