"""The pictures of the pages on concepts, recomputed and redrawn with the same bytes every time.

``python -m benchmarks.pictures`` takes a quarter of a minute and writes ``docs/images``. Values are rounded before they
are drawn, so that rounding errors do not change a picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib import patches
from matplotlib.figure import Figure
from torch import Tensor, nn

import geonorm
from geonorm.analysis import Growth, Monitor, activation_effect
from geonorm.functional import center, guard, spread
from geonorm.html.result import figure
from geonorm.lab import demo

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TEAL, RUST, BLUE, GREY = "#0f766e", "#c2410c", "#1d4ed8", "#9aa7b5"


def rounded(values: Sequence[float] | Tensor, digits: int = 4) -> list[float]:
    return [float(f"{float(value):.{digits}g}") for value in values]


def plain(axes: Any, title: str, across: str, up: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def one_outlier() -> Figure:
    """The center of 20 values as one of them moves away."""
    x = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    places = torch.linspace(0, 30, 61, dtype=torch.float64)
    moved = x.repeat(len(places), 1)
    moved[:, 0] = places
    drawing = figure(7.2, 3.4)
    axes = drawing.subplots()
    for phi, colour, dash in (
        (math.inf, GREY, "-"),
        (4.0, GREY, "--"),
        (2.0, RUST, "-"),
        (1.5, TEAL, "-"),
        (1.2, TEAL, "--"),
        (1.0, BLUE, "-"),
    ):
        name = {math.inf: "φ=∞, midrange", 2.0: "φ=2, mean", 1.0: "φ=1, median"}.get(phi, f"φ={phi:g}")
        axes.plot(rounded(places), rounded(center(moved, phi, dim=1)), dash, color=colour, label=name)
    plain(axes, "One of 20 values moves away: where the center goes", "place of that value", "center of all 20")
    axes.set_ylim(-0.7, 6)
    axes.legend(frameon=False, fontsize=9)
    return drawing


def spreads() -> Figure:
    """Each spread of normal values, as more and more of them are outliers, or zeros."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(4000, generator=generator, dtype=torch.float64)
    order = torch.randperm(4000, generator=generator)
    kinds: list[tuple[str, dict[str, Any], str, str]] = [
        ("rms", {}, "rms", RUST),
        ("mean_abs", {}, "mean_abs", GREY),
        ("robust", {"floor": 0.0}, "robust, floor=0", BLUE),
        ("robust", {}, "robust", TEAL),
    ]
    drawing = figure(9.2, 3.4)
    outliers, zeros = drawing.subplots(1, 2)
    for axes, shares, value in (
        (outliers, [i / 100 for i in range(21)], 10.0),
        (zeros, [i / 100 for i in range(100)], 0.0),
    ):
        for kind, options, name, colour in kinds:
            if kind == "robust" and options and value:
                continue  # the floor only matters among zeros
            seen = []
            for share in shares:
                x = clean.clone()
                x[order[: round(share * len(x))]] = value
                scale = math.sqrt(math.pi / 2) if kind == "mean_abs" else 1.0  # so that all are 1 for normal values
                seen.append(scale * float(spread(x, kind, **options)))
            axes.plot([100 * share for share in shares], rounded(seen), color=colour, label=name)
        axes.legend(frameon=False, fontsize=9)
    outliers.set_ylim(bottom=0)
    zeros.set(yscale="log", ylim=(1e-4, 2))
    plain(outliers, "Outliers at 10 among standard normal values", "outliers, %", "spread")
    plain(zeros, "Zeros among standard normal values", "zeros, %")
    return drawing


def broken_samples() -> Figure:
    """Test accuracy of every training of ``make run`` under four norms, on broken and on clean samples."""
    kept = json.loads(Path(__file__).with_name("pages.json").read_text(encoding="utf-8"))["digits"]["result"]
    names = {"bn": "BatchNorm", "ln": "LayerNorm", "robustbn": "robustbn", "guardbn": "guardbn"}
    clean, broken = kept.values()
    drawing = figure(7.2, 3.0)
    for place, (title, norms) in enumerate(
        (("One training sample in ten broken", broken), ("Clean training samples", clean))
    ):
        axes = drawing.add_subplot(1, 2, place + 1)
        for at, norm in enumerate(names):
            runs = rounded(norms[norm])
            aside = [at + 0.22 * (2 * i / max(1, len(runs) - 1) - 1) for i in range(len(runs))]
            axes.plot(aside, runs, "o", color=TEAL if norm == "guardbn" else GREY, markersize=4.5)
            worst = min(range(len(runs)), key=runs.__getitem__)
            axes.plot(aside[worst], runs[worst], "o", color="none", markeredgecolor=RUST, markersize=8)
            below = {"textcoords": "offset points", "xytext": (0, -14), "ha": "center", "color": RUST, "fontsize": 7.5}
            axes.annotate(f"{runs[worst]:.0f}", (at, runs[worst]), **below)
        plain(axes, title, "", "test accuracy, %" if place == 0 else "")
        axes.set_xticks(range(len(names)), list(names.values()), fontsize=7.5)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(-8, 105)
    drawing.supxlabel("A dot for each seed. Ringed, with its value: the worst.", color=RUST, fontsize=8)
    return drawing


def samples_and_ball() -> Figure:
    """Samples, the ball around their joint center and the pull; and the effect of broken samples on a deviation."""
    generator = torch.Generator().manual_seed(4)
    drawing = figure(11.4, 3.6)
    ball, far, many = drawing.subplots(1, 3, width_ratios=(1.25, 1, 1))

    x = torch.randn(40, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.5])
    broken = [0, 1, 2, 3]
    x[broken] = torch.tensor([[7.5, 2.2], [-6.0, 3.4], [5.5, -3.0], [9.0, -0.6]], dtype=torch.float64)
    found = guard(x)
    middle, axes = found.center, found.radius * math.sqrt(2) * found.scale  # d is a mean over two channels
    ball.add_patch(patches.Ellipse(rounded(middle), *rounded(2 * axes), facecolor="#0f766e14", edgecolor=TEAL))
    for start, end in zip(x[broken], found.output[broken], strict=True):
        arrow = {"arrowstyle": "->", "color": "#1c2128", "shrinkA": 4, "shrinkB": 4}
        ball.annotate("", rounded(end), rounded(start), arrowprops=arrow)
    ball.plot(*(rounded(column) for column in x[4:].t()), "o", color=GREY, markersize=3.5, label="inside: left alone")
    ball.plot(*(rounded(column) for column in x[broken].t()), "x", color=RUST, markersize=6, label="outside")
    ball.plot(
        *(rounded(column) for column in found.output[broken].t()), "o", color=RUST, markersize=4, label="pulled in"
    )
    ball.plot(*([value] for value in rounded(middle)), "+", color=TEAL, markersize=10, label="joint center")
    plain(ball, "A batch of 40 samples, guard=3", "channel 1", "channel 2")
    ball.set(xlim=(-7.6, 10.4), ylim=(-4.2, 6.4))
    ball.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")

    clean = torch.randn(64, 8, 16, generator=generator, dtype=torch.float64)
    sizes = [10 ** (i / 10) for i in range(31)]
    shares = list(range(63))
    for k, colour, name in ((None, RUST, "BatchNorm"), (6.0, BLUE, "guard=6"), (3.0, TEAL, "guard=3")):
        far.loglog(sizes, rounded([deviation(clean, 4, size, k) for size in sizes]), color=colour, label=name)
        heights = rounded([deviation(clean, number, 255.0, k) for number in shares])
        many.semilogy([100 * number / 64 for number in shares], heights, color=colour, label=name)
    plain(far, "4 of 64 samples are too large", "by this factor", "deviation of a channel (clean: 1)")
    plain(many, "More and more are 255 times too large", "broken samples, %")
    for panel in (far, many):
        panel.set_ylim(0.5, 1000)
        panel.legend(frameon=False, fontsize=9)
    return drawing


def deviation(clean: Tensor, number: int, size: float, k: float | None) -> float:
    """The mean deviation of the channels, after the guard if ``k`` is given, with ``number`` samples multiplied."""
    x = clean.clone()
    x[:number] *= size
    x = x if k is None else guard(x, k).output
    return float(x.var((0, 2), correction=0).sqrt().mean())


def sphere() -> Figure:
    """Three values as a point: a norm puts it onto a circle or a sphere, which γ and β scale and move."""
    values = 0.8 * torch.randn(3, 300, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    values[2] *= 0.5  # a batch of three, and 300 channels: a point for each channel

    def norm(phi: float, gamma: float = 1.0, beta: float = 0.0) -> Tensor:
        layer = geonorm.AugBatchNorm1d(300, phi=phi, eps=0.0).double()
        with torch.no_grad():
            layer.weight.fill_(gamma)
            layer.bias.fill_(beta)
            return layer(values).t()

    panels = [
        ("x: anywhere", values.t(), GREY),
        ("φ=2: radius √3, across e", norm(2.0), RUST),
        ("φ=1: radius √3", norm(1.0), BLUE),
        ("φ=2, γ=0.6, β=1", norm(2.0, 0.6, 1.0), TEAL),
    ]
    drawing = Figure(figsize=(10.4, 3.0))
    drawing.subplots_adjust(left=0, right=1, bottom=0.0, top=0.9, wspace=0)
    for i, (title, points, colour) in enumerate(panels):
        axes: Any = drawing.add_subplot(1, 4, i + 1, projection="3d")
        axes.scatter(*(rounded(column) for column in points.t()), s=3, color=colour, depthshade=False)
        axes.plot([-2, 2], [-2, 2], [-2, 2], color="#1c2128", linewidth=1)
        axes.text(2.1, 2.1, 2.1, "e")
        axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), zlim=(-2.2, 2.2), xticks=[], yticks=[], zticks=[])
        axes.set_box_aspect((1, 1, 1), zoom=1.25)
        axes.view_init(elev=18, azim=-72)
        axes.set_title(title, fontsize=10)
    return drawing


def placement() -> Figure:
    """BatchNorm after the operation, POP-Norm before it, and the input of the next operation."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 16, generator=generator, dtype=torch.float64)
    drawing = figure(9.2, 4.6)
    grid = drawing.add_gridspec(2, 3, height_ratios=(1, 2.2))
    chain = drawing.add_subplot(grid[0, :])
    chain.axis("off")
    chain.set(xlim=(0, 9.4), ylim=(0, 2))
    rows = [
        (1.4, "BatchNorm", [("operation", GREY), ("norm", RUST), ("activation", GREY)] * 2),
        (0.3, "POP-Norm", [("norm", TEAL), ("operation", GREY), ("activation", GREY)] * 2),
    ]
    for height, name, parts in rows:
        chain.text(0, height, name, va="center", fontsize=10)
        for i, (part, colour) in enumerate(parts):
            left = 1.5 + 1.3 * i
            chain.add_patch(patches.FancyBboxPatch((left, height - 0.28), 1.0, 0.56, "round,pad=0.02", color=colour))
            chain.text(left + 0.5, height, part, ha="center", va="center", color="white", fontsize=9)
            if i:
                arrow = {"arrowstyle": "->", "color": "#1c2128"}
                chain.annotate("", (left - 0.02, height), (left - 0.26, height), arrowprops=arrow)
    bins = [i / 10 for i in range(-30, 41)]
    for i, (name, activation) in enumerate((("ReLU", nn.ReLU()), ("tanh", nn.Tanh()), ("sigmoid", nn.Sigmoid()))):
        axes = drawing.add_subplot(grid[1, i])
        after = nn.Sequential(nn.BatchNorm1d(16), activation, nn.Linear(16, 1)).double()
        before = nn.Sequential(activation, geonorm.PopNorm1d(16, kappa=1.0), nn.Linear(16, 1)).double()
        for model, colour, label in ((after, RUST, "BatchNorm"), (before, TEAL, "POP-Norm, κ=1")):
            seen = model[:2](x).detach().flatten()
            (arriving,) = activation_effect(model, x).operations
            axes.hist(
                rounded(seen, 3),
                bins,
                density=True,
                histtype="step",
                linewidth=1.3,
                color=colour,
                label=f"{label}: {abs(arriving.mean_share):.2f}",
            )
        axes.set_ylim(0, 3)
        plain(axes, name, "what the next operation gets")
        axes.legend(frameon=False, fontsize=8, title="mean²/rms²", title_fontsize=8)
    return drawing


def trained(decay: float, momentum: float = 0.0, steps: int = 1500) -> Growth:
    """A small network with BatchNorm that learns ten directions with noise, with a monitor."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=momentum, weight_decay=decay)
    points = torch.randn(10, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with Monitor(model, optimizer, every=10) as monitor:
        for step in range(steps):
            generator = torch.Generator().manual_seed(step)
            labels = torch.randint(10, (32,), generator=generator)
            x = points[labels] + 1.5 * torch.randn(32, 16, generator=generator, dtype=torch.float64)
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.step(loss)
    return monitor.result()


def growth() -> Figure:
    """The length of a normalized weight in training, and the effective learning rate of its direction."""
    drawing = figure(9.2, 3.4)
    sizes, rates = drawing.subplots(1, 2)
    for decay, colour, label in ((0.0, RUST, "no weight decay"), (5e-3, TEAL, "weight decay 0.005")):
        records = trained(decay).records
        weights = [record["weights"]["0.weight"] for record in records]
        steps = [record["step"] for record in records]
        sizes.plot(steps, rounded([w["norm"] for w in weights]), color=colour, label=label)
        rates.plot(steps, rounded([w["effective_rate"] for w in weights]), color=colour, label=label)
        if decay:
            balance = [w["equilibrium"] for w in weights]
            sizes.plot(steps, rounded(balance), ":", color=colour, linewidth=1, label="its balance, each step")
    plain(sizes, "Length of the weight in front of a BatchNorm", "step", "‖W‖")
    plain(rates, "Learning rate that its direction feels", "step", "η/‖w‖²")
    rates.set_yscale("log")
    sizes.set_ylim(bottom=0)
    sizes.legend(frameon=False, fontsize=9)
    rates.legend(frameon=False, fontsize=9)
    return drawing


PICTURES: dict[str, Callable[[], Figure]] = {
    "broken_samples": broken_samples,
    "one_outlier": one_outlier,
    "spreads": spreads,
    "guard": samples_and_ball,
    "sphere": sphere,
    "placement": placement,
    "norm_growth": growth,
}


def draw(name: str, folder: Path) -> Path:
    """Write one picture to a file."""
    path = folder / f"{name}.svg"
    torch.set_num_threads(1)
    with matplotlib.rc_context({"svg.hashsalt": "geonorm"}):
        PICTURES[name]().savefig(path, metadata={"Date": None})
    return path


def main() -> None:
    for name in PICTURES:
        print(draw(name, IMAGES))
    demo.picture(demo.rows(), IMAGES / "demo.png")


if __name__ == "__main__":
    main()
