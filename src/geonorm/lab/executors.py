"""Who carries out the runs: this process, several on this machine, a Ray cluster, or a team under torchrun.

All share one store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

from .ddp_team import Team
from .extras import require
from .interrupts import held_back, listen
from .recipe import Run
from .runner import Named, RunsFailed, Source, Watch, work_through
from .store import Store, StoreError

_GRACE = 1.0  # seconds for a worker to give its run back


def execute(
    runs: Sequence[Run],
    store: Store,
    source: Source | None = None,
    workers: int | str = 1,
    watch: Watch | None = None,
) -> None:
    """Carry out runs; those that are done already cost nothing.

    Under torchrun all its processes train each model together, see ``processes`` in a recipe.

    Args:
        runs: what to do, as of ``Recipe.runs()``.
        store: where results go; with Ray on several machines, a folder that they share.
        source: where data and models come from; by the names in the runs by default. Must be picklable for several
            processes.
        workers: 1 for this process; a number of processes on this machine; ``"ray"`` for a Ray cluster, started here if
            there is none; or the address of one, such as ``"ray://head:10001"``.
        watch: a function of (run, epoch, figures) that is told of every epoch; in this process only.
    """
    source = Named() if source is None else source
    team = Team.started()
    _check_size(runs, team, workers)
    if team.leads:
        store.add_all(run.choices for run in runs)
    done = store.finished_keys() if team.leads else set()
    waiting = team.told([run for run in runs if run.key not in done])
    if not waiting:
        return
    if team.size > 1:
        work_through(waiting, store, source, watch, team)
    elif isinstance(workers, str):
        _on_ray(waiting, store, source, workers)
    elif workers > 1:
        _in_processes(waiting, store, source, min(workers, len(waiting)))
    else:
        work_through(waiting, store, source, watch)


def _check_size(runs: Sequence[Run], team: Team, workers: int | str) -> None:
    for wanted in {run["processes"] for run in runs}:
        if wanted != team.size:
            cure = f"start it with torchrun --nproc-per-node {wanted}" if wanted > 1 else "start it without torchrun"
            raise ValueError(f"expected {wanted} processes for one training (got {team.size}); {cure}")
    if team.size > 1 and workers != 1:
        raise ValueError(f"expected workers=1 under torchrun, whose processes share every run (got {workers!r})")


def default_workers(threads: int) -> int:
    """As many processes as this one may use cores for, at so many threads each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def _work(number: int, runs: Sequence[Run], path: Path, source: Source, failures: Any) -> None:
    listen()
    try:
        work_through(runs, Store(path), source)
    except (RunsFailed, StoreError) as error:
        failures.put(str(error))


def _in_processes(runs: Sequence[Run], store: Store, source: Source, number: int) -> None:
    failures = mp.get_context("spawn").SimpleQueue()
    processes: Sequence[Any] = ()
    try:
        with held_back():
            workers = mp.spawn(  # type: ignore[attr-defined, no-untyped-call]
                _work, (runs, store.path.absolute(), source, failures), nprocs=number, join=False
            )
            processes = workers.processes
        while not workers.join():
            pass
    except mp.ProcessExitedException as error:  # type: ignore[attr-defined]
        raise RunsFailed(f"a worker has ended ({error}){_likely_cause(error.signal_name)}") from error
    finally:
        _end(processes)
    if not failures.empty():
        raise RunsFailed(failures.get())


def _likely_cause(signal_name: str | None) -> str:
    if signal_name is None:  # by itself, before it came to work
        return (
            "; functions of your own must be importable, and a script that starts workers must do so below "
            "if __name__ == '__main__':"
        )
    return " from outside, perhaps for want of memory: start again to go on, with fewer workers if it happens again"


def _end(processes: Sequence[Any]) -> None:
    """End those that still run: after Ctrl-C in a terminal they do so themselves, if they have come to work yet."""
    for process in processes:
        process.join(_GRACE)
        if process.is_alive():
            process.terminate()
            process.join()


def _on_ray(runs: Sequence[Run], store: Store, source: Source, address: str) -> None:
    ray = require("ray", "ray")
    if not ray.is_initialized():
        ray.init(
            address=None if address == "ray" else address,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
    path = store.path.absolute()

    def one(run: Run) -> str:
        try:
            work_through([run], Store(path), source)
        except RunsFailed as error:
            return str(error)
        return ""

    task = ray.remote(one)
    found = ray.get([task.options(num_cpus=run["threads"]).remote(run) for run in runs])
    failures = [text for text in found if text]
    if failures:
        raise RunsFailed("; ".join(failures[:3]))
