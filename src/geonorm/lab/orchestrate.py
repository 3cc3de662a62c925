"""All runs, from the first to the last: who works on them, what is shown meanwhile, and what is left in the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from .bars import say
from .ddp_team import Team
from .executors import default_workers, execute
from .progress import shown
from .recipe import Run
from .runner import RunsFailed, Watch
from .source import Source
from .store import Store


class Outcome(NamedTuple):
    """How the work ended.

    Attributes:
        asked: number of runs.
        already: those that were done before.
        left: those that are not done now.
        failure: which of them raised; None if none did.
        leads: whether this process is the one to tell about it; of those that torchrun started, the first.
    """

    asked: int
    already: int
    left: int
    failure: RunsFailed | None
    leads: bool

    def elsewhere(self) -> str:
        """Where the runs are that are left though none failed; empty if all are done."""
        if not self.left:
            return ""
        return (
            f"{self.left} of {self.asked} runs are being executed by another process, or were by one that ended on "
            "another machine in the last five minutes: start again later to have them all"
        )


def orchestrate(
    runs: Sequence[Run],
    store: Store,
    source: Source | None = None,
    workers: int | str | None = 1,
    watch: Watch | None = None,
    progress: bool = False,
) -> Outcome:
    """Carry out the runs that are not done yet. What raises, or is stopped by Ctrl-C, leaves the others in the store.

    Args:
        runs: what to do; the same one twice is done once.
        store: where results go.
        source: where data and models come from, as in ``executors.execute``.
        workers: as in ``executors.execute``; None for as many as there are cores.
        watch: told of every epoch.
        progress: show on stderr how the runs get on.
    """
    runs = list({run.key: run for run in runs}.values())
    keys = {run.key for run in runs}
    team = Team.started()
    if workers is None:
        workers = default_workers(max((run["threads"] for run in runs), default=1)) if team.size == 1 else 1
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
