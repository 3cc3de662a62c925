"""Executing runs: in this process, in several on this machine, on a Ray cluster, or in a team under torchrun.

All share one store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

from .ddp_team import Team
from .devices import CPU, CUDA, count, use_one
from .extras import require
from .interrupts import allow_interrupts, interrupts_deferred
from .recipe import Run
from .runner import Named, RunsFailed, Watch, work_through
from .source import Source
from .store import Store, StoreError

_GRACE = 1.0  # seconds that a worker has to release its run


def execute(
    runs: Sequence[Run],
    store: Store,
    source: Source | None = None,
    workers: int | str = 1,
    watch: Watch | None = None,
) -> None:
    """Execute runs; those that are already done are skipped.

    Under torchrun all processes train each model together; see ``processes`` in a recipe.

    Args:
        runs: the runs, as from ``Recipe.runs()``.
        store: for the results; with Ray on several machines, in a folder that they share.
        source: makes data and models; by default from the names in the runs. Must be picklable for several
            processes.
        workers: 1 for this process; a number of processes on this machine; ``"ray"`` for a Ray cluster, started here if
            none is running; or the address of one, such as ``"ray://head:10001"``.
        watch: a function of (run, epoch, figures) that is called after every epoch; in this process only.
    """
    source = Named() if source is None else source
    team = Team.started(device_of(runs))
    _check_size(runs, team, workers)
    if team.leads:
        store.add_all(run.choices for run in runs)
    done = store.finished_keys() if team.leads else set()
    waiting = team.broadcast([run for run in runs if run.key not in done])
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


def device_of(runs: Sequence[Run]) -> str:
    """The device of some runs; one call executes those of one device."""
    found = sorted({run.device for run in runs}) or [CPU]
    if len(found) > 1:
        raise ValueError(f"expected runs of one device (got {', '.join(found)}); execute those of each by themselves")
    return found[0]


def default_workers(threads: int, device: str = CPU) -> int:
    """The number of processes that the devices allow: one for each GPU, or as many threads as there are cores."""
    devices = count(device)
    if devices is not None:
        return max(1, devices)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def _work(number: int, runs: Sequence[Run], path: Path, source: Source, failures: Any) -> None:
    allow_interrupts()
    use_one(device_of(runs), number)
    try:
        work_through(runs, Store(path), source)
    except (RunsFailed, StoreError) as error:
        failures.put(str(error))


def _in_processes(runs: Sequence[Run], store: Store, source: Source, number: int) -> None:
    failures = mp.get_context("spawn").SimpleQueue()
    processes: Sequence[Any] = ()
    try:
        with interrupts_deferred():
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
    if signal_name is None:  # it exited by itself, before it started to work
        return (
            "; functions of your own must be importable, and a script that starts workers must do so below "
            "if __name__ == '__main__':"
        )
    return " from outside, perhaps by lack of memory: start again to continue, with fewer workers if it happens again"


def _end(processes: Sequence[Any]) -> None:
    """End the processes that still run. After Ctrl-C in a terminal they end by themselves, unless still starting."""
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
    resources = [{"num_cpus": run["threads"], "num_gpus": int(run.device == CUDA)} for run in runs]
    found = ray.get([task.options(**given).remote(run) for given, run in zip(resources, runs, strict=True)])
    failures = [text for text in found if text]
    if failures:
        raise RunsFailed("; ".join(failures[:3]))
