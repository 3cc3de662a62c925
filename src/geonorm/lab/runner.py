"""Executing runs: train, save every few seconds, test, store. A run killed at any moment resumes where it was."""

from __future__ import annotations

import json
import math
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..html.text import visible
from ..html.whole import replacing
from ..introspect.progress import without_bars
from .choices import parse_corruption, parse_evaluation
from .data import Task, clipped, load
from .ddp_team import Team
from .devices import check_device, described, repeatable
from .evaluate import check_evaluation, evaluate
from .factories import as_task, is_own, with_norm
from .loading import named_object, would_run_code
from .models import create_model
from .models.parts import MakeNorm
from .one_line_error import one_line_error
from .recipe import Run, study_settings
from .seeded_process import seeded_process
from .source import Source
from .store import Epoch, Store, StoreError
from .train import Training

SAVE_EVERY = 2.0  # seconds of work that a kill can cost, in addition to the current epoch

Watch = Callable[[Run, int, dict[str, Any]], None]  # called after every epoch


@dataclass(frozen=True)
class Named(Source):
    """Data and models by the names in the run: of this library, or functions as ``file.py:function``."""

    def task(self, run: Run) -> Task:
        if is_own(run["data"]):
            return as_task(named_object(run["data"], "data")(**run["data_options"]), run["data"])
        return _loaded(run["data"], json.dumps(run["data_options"], sort_keys=True))

    def model(self, run: Run, task: Task) -> nn.Module:
        strange = study_settings(run.choices)
        if strange:
            told = ", ".join(strange)
            raise ValueError(f"expected settings of a recipe (got {told}, of a study): run it with geonorm reproduce")
        if is_own(run["model"]):
            return with_norm(named_object(run["model"], "model")(**run["model_options"]), run["norm"])
        return create_model(
            run["model"],
            self.norm(run),
            classes=task.classes,
            input_shape=task.input_shape,
            mean=task.mean,
            std=task.std,
            **run["model_options"],
        )

    def norm(self, run: Run) -> str | MakeNorm:
        """The norm for a network of this library."""
        spec: str = run["norm"]
        return spec


@lru_cache(maxsize=2)
def _loaded(name: str, options: str) -> Task:
    """Load data once for all runs of a recipe; no run changes them."""
    return load(name, **json.loads(options))


class RunsFailed(RuntimeError):
    """Some runs raised; the others are done and stored."""


def work_through(
    runs: Sequence[Run], store: Store, source: Source, watch: Watch | None = None, team: Team | None = None
) -> None:
    """Execute all runs that are not done and not claimed by another process; several processes may do this at once.

    A run that raises is released for another try, the others continue, and in the end ``RunsFailed`` lists it. In a
    team the first error ends everything: the other processes would wait for the one that raised.
    """
    team = team or Team()
    failures: dict[str, list[str]] = {}
    for run in runs:
        if not team.broadcast(team.leads and store.claim(run.key)):
            continue
        try:
            with seeded_process(run["seed"]), without_bars(), repeatable(run.device):
                execute_run(run, store, source, watch, team)
        except Exception as error:
            store.release(run.key)
            if team.size > 1:
                raise
            name = f"{run['norm']}, {run['loss']}, {run['corruption']}, seed {run['seed']}"
            failures.setdefault(one_line_error(error), []).append(name)
        except BaseException:  # Ctrl-C: release the run, so that the next start resumes at once
            store.release(run.key)
            raise
    if failures:
        raise RunsFailed(_told(failures, len(runs)))


def _told(failures: Mapping[str, Sequence[str]], total: int) -> str:
    """The runs that failed, with the first three errors: one that several runs raised is printed once."""
    number = sum(map(len, failures.values()))
    errors = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {error}"
        for error, names in failures.items()
    ]
    return f"{number} of {total} runs failed; the first: {'; '.join(errors[:3])}"


def execute_run(run: Run, store: Store, source: Source, watch: Watch | None, team: Team) -> None:
    """Execute one run from its last saved state to its result in the store."""
    torch.set_num_threads(run["threads"])
    check_device(run.device)
    if team.leads:
        store.keep_device(run.key, described(run.device))
    task = _prepared(source.task(run), run)
    for text in run["evaluations"]:
        check_evaluation(task, parse_evaluation(text))
    torch.manual_seed(run["seed"])
    training = source.training(run, task, team)
    saved = checkpoint_of(store, run)
    state = team.broadcast(_saved_state(saved, len(store.curve(run.key))) if team.leads else None)
    if state is not None:
        _resume(training, state, saved)
    news: list[Epoch] = []
    last_saved = time.perf_counter()
    while training.done < run["epochs"]:
        start = time.perf_counter()
        figures = training.epoch()
        if not team.leads:
            continue
        now = time.perf_counter()
        news.append(Epoch(training.done, figures, now - start))
        if now - last_saved >= SAVE_EVERY:
            store.epochs(run.key, news)
            save(training, saved)
            news, last_saved = [], time.perf_counter()
        if watch is not None:
            watch(run, training.done, figures)
    if news:
        store.epochs(run.key, news)
    tested = training.tested if team.size == 1 else None  # a team splits the samples, which changes rounding
    results = {
        text: evaluate(training.model, task, parse_evaluation(text), run["seed"], tested) for text in run["evaluations"]
    }
    if team.leads:
        store.finish(run.key, results, store.seconds(run.key))
        saved.unlink(missing_ok=True)


def checkpoint_of(store: Store, run: Run) -> Path:
    """The file with the state of an unfinished run."""
    return store.path.parent / f"{store.path.stem}-unfinished" / f"{run.key}.pt"


def _prepared(task: Task, run: Run) -> Task:
    """The fold of the run, with its training samples corrupted, and clipped if the recipe says so."""
    if run["fold"] is not None:
        task = task.fold(run["fold"], run["folds"], seed=run["seed"])
    worse = parse_corruption(run["corruption"])(task, run["seed"])
    return clipped(worse, run.choices.get("clip_inputs", 0.0))


def _saved_state(path: Path, stored: int) -> dict[str, Any] | None:
    """The saved state of an unfinished run, if it belongs to this store and has no more epochs; None to start over."""
    if not path.exists():
        return None
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums in its files
                bad = archive.testzip()
            if bad is not None:
                raise ValueError(f"the checksum of its {bad} does not fit")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # another kind of file, or damaged: repeat the epochs
        reason = "it holds something that would run code" if would_run_code(error) else visible(str(error))
        warnings.warn(f"{path} cannot be read ({reason}); its run starts over", stacklevel=2)
        return None
    if not isinstance(state, dict) or state.get("done", math.inf) > stored:
        warnings.warn(f"{path} belongs to another results file; its run starts over", stacklevel=2)
        return None
    return state


def _resume(training: Training, state: dict[str, Any], path: Path) -> None:
    try:
        training.load(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ValueError(
            f"the state in {path} does not fit the model, which has changed since: delete it, or use another results "
            f"file ({error})"
        ) from error


def save(training: Training, path: Path) -> None:
    """Save the state of a run to a temporary file and rename it: a kill leaves the old state or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            torch.save(training.state(), file)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
        raise StoreError(
            f"the state of a run cannot be saved in {path.parent} ({error}): free space, or change its permissions, "
            "and start again; everything so far is kept"
        ) from error
