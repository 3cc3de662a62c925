"""Accuracy of the gradient of a deep network in float32: ResNet-20 with several norms, compared with float64.

``python -m benchmarks.gradients`` writes ``gradients.csv`` and the table of ``docs/limits.md``. It needs no
data, and takes some minutes on one thread.
"""

from __future__ import annotations

import copy
import csv
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.pages import put
from geonorm.lab.models import resnet20

STORE = Path(__file__).with_name("gradients.csv")
PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
NORMS = ("bn", "guardbn", "augbn(phi=1.5)", "robustbn")
SEEDS = range(5)
BATCH = 32


class Outcome(NamedTuple):
    """Relative changes ‖g − g₀‖/‖g₀‖ of the gradient of all parameters; g₀ is computed in float64.

    Attributes:
        rounding: computed in float32 instead.
        one_ulp: in float64, with each value of the input moved to a neighbouring float32 number, up or down at random.
    """

    norm: str
    seed: int
    rounding: float
    one_ulp: float


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the loss for all parameters, in float64."""
    model = copy.deepcopy(model).to(x.dtype).train()
    nn.functional.cross_entropy(model(x), y).backward()
    return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])


def measure(norm: str, seed: int) -> Outcome:
    torch.manual_seed(seed)
    model = resnet20(norm)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    up = torch.rand(x.shape) < 0.5
    moved = torch.nextafter(x, torch.where(up, math.inf, -math.inf))
    exact = gradient(model, x.double(), y)
    changes = [
        float((found - exact).norm() / exact.norm())
        for found in (gradient(model, x, y), gradient(model, moved.double(), y))
    ]
    return Outcome(norm, seed, *changes)


def stored() -> list[Outcome]:
    with STORE.open(newline="", encoding="utf-8") as file:
        return [
            Outcome(row["norm"], int(row["seed"]), float(row["rounding"]), float(row["one_ulp"]))
            for row in csv.DictReader(file)
        ]


def _range(values: list[float]) -> str:
    return f"{100 * min(values):.2g} to {100 * max(values):.2g} %"


def table(outcomes: list[Outcome]) -> str:
    """The least and the largest change over the seeds, as Markdown."""
    lines = ["| norm | float32 for float64 | input moved by one ulp |", "| --- | --- | --- |"]
    for norm in dict.fromkeys(o.norm for o in outcomes):
        own = [o for o in outcomes if o.norm == norm]
        lines.append(f"| `{norm}` | {_range([o.rounding for o in own])} | {_range([o.one_ulp for o in own])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    outcomes = []
    for norm in NORMS:
        for seed in SEEDS:
            outcomes.append(measure(norm, seed))
            print(outcomes[-1], flush=True)
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows((o.norm, o.seed, f"{o.rounding:.4g}", f"{o.one_ulp:.4g}") for o in outcomes)
    put(PAGE, "gradients", table(stored()))


if __name__ == "__main__":
    main()
