"""The center of a contaminated sample as φ moves from the median to the midrange, as a table and a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import center_with_info
from ..html.result import figure

PHIS = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 8.0, 32.0, math.inf)


class Row(NamedTuple):
    """The center for one φ, without and with the outliers."""

    phi: float
    clean: float
    contaminated: float
    bound: float
    sweeps: int


def contaminated_sample() -> tuple[Tensor, Tensor]:
    """1000 standard normal values, and the same with 5 % of them replaced by outliers around 10."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(1000, generator=generator)
    dirty = clean.clone()
    dirty[:50] = 10 + torch.randn(50, generator=generator)
    return clean, dirty


def rows() -> list[Row]:
    """The center of both samples for every φ of the table."""
    clean, dirty = contaminated_sample()
    table = []
    for phi in PHIS:
        before, after = (center_with_info(sample, phi) for sample in (clean, dirty))
        table.append(Row(phi, before.center.item(), after.center.item(), after.bound.item(), int(after.sweeps)))
    return table


def table(of: list[Row]) -> str:
    """The rows as text."""
    lines = [
        "The center of 1000 normal values, before and after 5 % of them become outliers around 10:",
        "",
        f"{'φ':>6} {'clean':>9} {'with outliers':>14} {'moved by':>9} {'certified to':>13} {'sweeps':>7}",
    ]
    names = {1.0: "  median", 2.0: "  mean", math.inf: "  midrange"}
    for row in of:
        phi = "∞" if math.isinf(row.phi) else f"{row.phi:g}"
        moved = row.contaminated - row.clean
        lines.append(
            f"{phi:>6} {row.clean:9.3f} {row.contaminated:14.3f} {moved:9.3f} {row.bound:13.0e} {row.sweeps:7d}"
            f"{names.get(row.phi, '')}"
        )
    return "\n".join(lines)


def picture(of: list[Row], path: Path) -> None:
    """The contaminated sample and its centers, written to a PNG or SVG file."""
    _, dirty = contaminated_sample()
    drawing = figure(8, 4.5)
    sample, curve = drawing.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    sample.hist(dirty.numpy(), bins=90, color="#9aa7b5")
    sample.set_yticks([])
    sample.set_title("A sample with 5 % outliers, and its center for every φ", loc="left")
    sample.spines[["top", "right", "left"]].set_visible(False)
    height = list(range(len(of)))
    labels = [
        "∞ (midrange)" if math.isinf(r.phi) else {1.0: "1 (median)", 2.0: "2 (mean)"}.get(r.phi, f"{r.phi:g}")
        for r in of
    ]
    curve.plot([r.contaminated for r in of], height, "o-", color="#c2410c", label="with outliers")
    curve.plot([r.clean for r in of], height, "o-", color="#0f766e", label="without")
    curve.set_yticks(height, labels)
    curve.set_ylabel("φ")
    curve.set_xlabel("value")
    curve.grid(axis="x", alpha=0.3)
    curve.spines[["top", "right"]].set_visible(False)
    curve.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)
