"""Executing a set of runs: starting workers, showing progress, and reporting which runs are left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from .bars import say
from .ddp_team import Team
from .executors import default_workers, device_of, execute
from .progress import shown
from .recipe import Run
from .runner import RunsFailed, Watch
from .source import Source
from .store import Store


class Outcome(NamedTuple):
    """The state of the runs at the end.

    Attributes:
        asked: number of runs.
        already: number of runs that were done before.
        left: number of runs that are not done now.
        failure: the runs that raised; None if none did.
        leads: whether this process reports the outcome: the first one under torchrun.
    """

    asked: int
    already: int
    left: int
    failure: RunsFailed | None
    leads: bool

    def elsewhere(self) -> str:
        """Why runs are left although none failed; empty if all are done."""
        if not self.left:
            return ""
        return (
            f"{self.left} of {self.asked} runs are being executed by another process, or were by one that ended on "
            "another machine in the last five minutes: start again later to finish them"
        )


def orchestrate(
    runs: Sequence[Run],
    store: Store,
    source: Source | None = None,
    workers: int | str | None = 1,
    watch: Watch | None = None,
    progress: bool = False,
) -> Outcome:
    """Execute the runs that are not done yet. After an error or Ctrl-C, the results of finished runs stay in the store.

    Args:
        runs: the runs; duplicates are executed once.
        store: for the results.
        source: makes data and models, as in ``executors.execute``.
        workers: as in ``executors.execute``; None for as many as there are cores, or GPUs if the runs are on them.
        watch: called after every epoch.
        progress: show progress on stderr.
    """
    runs = list({run.key: run for run in runs}.values())
    keys = {run.key for run in runs}
    device = device_of(runs)
    team = Team.started(device)
    if workers is None:
        threads = max((run["threads"] for run in runs), default=1)
        workers = default_workers(threads, device) if team.size == 1 else 1
    if not team.leads:
        execute(runs, store, source, workers, watch)
        return Outcome(len(runs), 0, 0, None, leads=False)
    already = len(keys & store.finished_keys())
    is_shown = progress and bool(runs)
    if is_shown:
        pace = f"{workers} at a time" if isinstance(workers, int) else f"on {workers}"
        say(f"{len(runs)} run{'s' * (len(runs) != 1)}, {pace}; results go to {store.path}")
        if already:
            say(f"{already} of {len(runs)} runs were already done")
    failure = None
    try:
        with shown(runs, store) if is_shown else nullcontext():
            execute(runs, store, source, workers, watch)
    except RunsFailed as error:
        failure = error
    return Outcome(len(runs), already, len(keys - store.finished_keys()), failure, leads=True)
