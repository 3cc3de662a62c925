"""The overhead of the lab's runner over a plain training loop with the same model, batches and tests, for the docs.

``python -m benchmarks.lab`` measures CPU time, in shuffled order; two minutes on a quiet machine.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.run import DOCS, keep
from geonorm.lab import Recipe, Store
from geonorm.lab.batches import shuffled
from geonorm.lab.choices import parse_evaluation
from geonorm.lab.data import Task
from geonorm.lab.ddp_team import Team
from geonorm.lab.evaluate import evaluate
from geonorm.lab.recipe import Run
from geonorm.lab.runner import Named
from geonorm.lab.store import Epoch
from geonorm.lab.train import Training, correct

SMALL = Recipe(data="digits", norms=("bn",), seeds=(0,), epochs=20, model_options={"hidden": 256})
RECIPES = {  # name and number of epochs that are timed
    "an MLP with steps of a millisecond or two": (SMALL, 480),
    "a small ResNet": (replace(SMALL, model="resnet20", model_options={"width": 0.5, "depth": 0.34}), 120),
}
FRESH = 6  # turns with the same two models


def main() -> None:
    torch.set_num_threads(1)
    found = {name: cost(recipe, rounds) for name, (recipe, rounds) in RECIPES.items()}
    parts = [f"{100 * one['cost']:.1f} % for {name}" for name, one in found.items()]
    text = f"Over a bare loop of {SMALL.epochs} epochs on digits the runner takes more processor time: "
    keep("lab", DOCS / "lab.md", f"{text}{', '.join(parts)} (medians of epochs in turns).\n", found)


def cost(recipe: Recipe, rounds: int) -> dict[str, float]:
    """The overhead. Epochs alternate, because the speed of the machine varies. Models are rebuilt now and then, because
    the place of their tensors in memory changes the time by as much as the overhead."""
    run = recipe.runs()[0]
    task = Named().task(run)
    ratios, epochs, once = [], [], []
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "r.sqlite")
        for turn in range(rounds):
            if turn % FRESH == 0:
                makers = [
                    lambda: Training(model_of(run, task), task, run.choices),
                    lambda: Bare(model_of(run, task), task),
                ]
                pair = [make() for make in order.sample(makers, 2)]
                ours, bare = sorted(pair, key=lambda one: isinstance(one, Bare))
                for one in pair:
                    one.epoch()
            spent = {one: seconds(one.epoch) for one in order.sample(pair, 2)}
            ratios.append(spent[ours] / spent[bare])
            epochs.append(spent[bare])
            if turn % FRESH == 0:
                another = Run({**run.choices, "seed": turn})
                store.add(another.choices)  # all runs of a comparison are added at once
                once.append(seconds(partial(rest, another, ours, store)))
    ratio, epoch, end = (statistics.median(values) for values in (ratios, epochs, once))
    more = ratio - 1 + end / (recipe.epochs * epoch)
    return {"cost": more, "in an epoch": ratio - 1, "bare epoch": epoch, "once in a run": end}


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def model_of(run: Run, task: Task) -> nn.Module:
    torch.manual_seed(0)
    return Named().model(run, task)


class Bare:
    """A plain training loop, with its loss and a test after every epoch."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        self.model, self.task, self.done = model, task, 0
        self.optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)

    def epoch(self) -> tuple[float, float]:
        self.model.train()
        total = 0.0
        for _, batch in shuffled(self.task.train, SMALL.batch_size, 0, self.done, Team()):
            loss = nn.functional.cross_entropy(batch.scores(self.model), batch.labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        self.done += 1
        return total, float(correct(self.model, self.task.test).double().mean())


def rest(run: Run, training: Training, store: Store) -> None:
    """The work of the runner once per run, besides its epochs: the claim, the curve, the final figures, the result."""
    store.claim(run.key)
    store.epochs(run.key, [Epoch(i + 1, {"loss": 0.0, "accuracy": 0.0}, 0.0) for i in range(SMALL.epochs)])
    found = evaluate(training.model, training.task, parse_evaluation("clean"), 0, training.tested)
    store.finish(run.key, {"clean": found}, 0.0)


if __name__ == "__main__":
    main()
