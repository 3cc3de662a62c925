"""What the lab's runner costs over a bare training loop of the same model, batches and tests: one number for the docs.

CPU time, in shuffled order; under a minute on a quiet machine.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from run import DOCS, keep
from torch import nn

from geonorm.lab import Recipe, Store
from geonorm.lab.batches import shuffled
from geonorm.lab.runner import Named, carry_out
from geonorm.lab.team import Team
from geonorm.lab.train import correct

RECIPE = Recipe(data="digits", norms=("bn",), seeds=(0,), epochs=20, model_options={"hidden": 256})
ROUNDS = 9


def main() -> None:
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {"bare": [], "runner": []}
    order = random.Random(0)
    for turn in range(ROUNDS + 1):
        for name in order.sample(sorted(times), 2):
            start = time.process_time()
            bare() if name == "bare" else runner()
            if turn:
                times[name].append(time.process_time() - start)
    ratios = sorted(ours / theirs for ours, theirs in zip(times["runner"], times["bare"], strict=True))
    text = (
        f"Over a bare loop of {RECIPE.epochs} epochs on digits the runner takes "
        f"{100 * (statistics.median(ratios) - 1):.1f} % more processor time (quartiles "
        f"{100 * (ratios[len(ratios) // 4] - 1):.1f} to {100 * (ratios[3 * len(ratios) // 4] - 1):.1f} %).\n"
    )
    keep("lab", DOCS / "lab.md", text, {"ratios": ratios})


def bare() -> None:
    run = RECIPE.runs()[0]
    task = Named().task(run)
    torch.manual_seed(0)
    model = Named().model(run, task)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    for epoch in range(RECIPE.epochs):
        model.train()
        for _, batch in shuffled(task.train, 64, 0, epoch, Team()):
            loss = nn.functional.cross_entropy(batch.scores(model), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct(model, task.test)


def runner() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, run = Store(Path(folder) / "r.sqlite"), RECIPE.runs()[0]
        store.add(run.choices)
        store.claim(run.key)
        carry_out(run, store, Named(), None, Team())


if __name__ == "__main__":
    main()
