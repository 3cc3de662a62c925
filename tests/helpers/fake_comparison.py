"""Comparisons whose results were written down instead of trained: any accuracies, curves and names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geonorm.lab import Comparison, Recipe, Store
from geonorm.lab.recipe import Run
from geonorm.lab.store import Epoch

Accuracy = Callable[[str, str, int], float]  # of norm, corruption and seed, from 0 to 1


def fake_comparison(
    path: Path,
    norms: Sequence[str],
    accuracy: Accuracy,
    *,
    corruptions: Sequence[str] = ("clean",),
    evaluations: Sequence[str] = ("clean",),
    seeds: int = 5,
    epochs: int = 4,
    unfinished: int = 0,
    loss: float = 0.5,
    **choices: Any,
) -> Comparison:
    """A comparison; the last few runs may be unfinished. A norm named diffphi learns φ in two layers."""
    plain = {**Recipe(epochs=epochs).runs()[0].choices, "evaluations": list(evaluations)}
    runs = [
        Run({**plain, "norm": norm, "corruption": corruption, "seed": seed, **choices})
        for seed in range(seeds)
        for corruption in corruptions
        for norm in norms
    ]
    store = Store(path)
    for i, run in enumerate(runs):
        store.add(run.choices)
        if i >= len(runs) - unfinished:
            continue
        value = accuracy(run["norm"], run["corruption"], run["seed"])
        news = []
        for epoch in range(1, epochs + 1):
            figures: dict[str, Any] = {"loss": loss / epoch, "accuracy": value * (1 - 0.3 / epoch)}
            if run["norm"] == "diffphi":
                figures["phi"] = {"layers.1": 1.5 + 0.1 * epoch, "layers.4": 1.5 - 0.05 * epoch}
            news.append(Epoch(epoch, figures, 0.1 * (1 + len(run["norm"]) % 3)))
        store.epochs(run.key, news)
        results = {text: {"accuracy": value, "total": 360} for text in evaluations}
        store.finish(run.key, results, store.seconds(run.key))
    return Comparison(tuple(runs), store)


def accuracies_around(levels: dict[tuple[str, str], float], spread: float = 0.004) -> Accuracy:
    """Accuracies around a level for each norm and corruption; the same for the same seed."""

    def accuracy(norm: str, corruption: str, seed: int) -> float:
        return levels[norm, corruption] + spread * random.Random(f"{norm} {corruption} {seed}").uniform(-1, 1)

    return accuracy
