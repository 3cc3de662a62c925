"""The source of a run's data, model and training."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from .data import Task
from .ddp_team import Team
from .recipe import Run
from .train import Training


class Source(Protocol):
    """Makes the data and the model of a run. It must be picklable for several processes."""

    def task(self, run: Run) -> Task:
        """The data."""

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model with the norm of the run and its initial weights; the seed is already set."""

    def training(self, run: Run, task: Task, team: Team) -> Training:
        """The model, ready for its first epoch."""
        return Training(self.model(run, task), task, run.choices, team)
