"""Tables and pictures of the pages on growth, curvature, pruning, robustness and spheres.

``python -m benchmarks.analysis`` trains small networks on synthetic images (ten patterns with noise), on one thread in
about three minutes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import geonorm
from benchmarks.run import DOCS, keep
from geonorm.analysis import Growth, Monitor, kappa_slopes, prune, rescaling, robustness
from geonorm.lab.models import CifarResNet
from geonorm.optim import SphereSGD, project_scale_invariant

IMAGES = DOCS / "images"


def images(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten smooth patterns, shifted, with noise, in [0, 1]."""
    patterns = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    patterns = nn.functional.interpolate(patterns, size=(16, 16), mode="bilinear")
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=generator)
    shifts = torch.randint(-3, 4, (samples, 2), generator=generator).tolist()
    x = torch.stack([patterns[y].roll(shift, (1, 2)) for y, shift in zip(labels.tolist(), shifts, strict=True)])
    return (0.5 + 0.15 * x + 0.1 * torch.randn(x.shape, generator=generator)).clamp(0, 1), labels


def train(
    steps: int, make: Callable[[nn.Module], torch.optim.Optimizer], cools: bool = False
) -> tuple[nn.Module, Growth]:
    """A small ResNet after some steps; ``cools``: the learning rate falls to 0, and running statistics catch up."""
    torch.manual_seed(0)
    model = CifarResNet(1, width=8)
    optimizer = make(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps if cools else 1.0)
    x, y = images(4096, 1)
    with Monitor(model, optimizer, every=5) as monitor:
        for step in range(steps):
            chosen = torch.randint(len(x), (64,), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            monitor.step(loss)
            schedule.step()
    return model, monitor.result()


def test_set() -> list[tuple[Tensor, Tensor]]:
    x, y = images(1000, 2)
    return list(zip(x.split(250), y.split(250), strict=True))


def text(table: str) -> str:
    return f"```text\n{table}\n```\n"


def growth() -> None:
    _, found = train(600, lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=5e-3))
    found.plot().savefig(IMAGES / "growth.png", dpi=110)


def trained() -> nn.Module:
    return train(600, lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=5e-4), cools=True)[0]


def kappa() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        geonorm.PopNorm1d(8),
        nn.Linear(8, 16, bias=False),
        nn.ReLU(),
        geonorm.PopNorm1d(16),
        nn.Linear(16, 1, bias=False),
    ).double()
    batch = torch.randn(128, 8).double(), torch.randn(128, 1).double()
    found = kappa_slopes(model, batch, lambda output, target: (output - target).square().sum(1), tolerance=1e-6)
    keep("kappa", DOCS / "analysis" / "curvature.md", text(str(found)), found.to_dict())
    found.plot().savefig(IMAGES / "kappa.png", dpi=110)


def pruning(model: nn.Module) -> None:
    found = prune(model, test_set())
    found.plot().savefig(IMAGES / "prune.png", dpi=110)
    shown = prune(model, test_set(), (0.0, 0.2, 0.4))
    keep("prune", DOCS / "analysis" / "prune.md", text(str(shown)), shown.to_dict())


def attacks(model: nn.Module) -> None:
    page = DOCS / "analysis" / "robustness.md"
    for name, found in (
        ("robustness", robustness(model, test_set(), backend="own")),
        ("rescaling", rescaling(model, test_set()[:2])),
    ):
        keep(name, page, text(str(found)), found.to_dict())


def spheres() -> None:
    def sphere(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
        return lambda model: SphereSGD(project_scale_invariant(model, radius=1.0), lr=rate, momentum=0.9)

    def plain(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
        def make(model: nn.Module) -> torch.optim.Optimizer:
            project_scale_invariant(model, radius=1.0)  # the same start, the same effective rate
            return torch.optim.SGD(model.parameters(), rate, momentum=0.9)

        return make

    ends: dict[str, list[float]] = {}
    lines = ["| learning rate | SGD: loss | effective rate | SphereSGD: loss | effective rate |", "|" + " --- |" * 5]
    for rate in (0.01, 0.1, 1.0):
        ends[f"{rate:g}"] = []
        for make in (plain(rate), sphere(rate)):
            _, found = train(300, make)
            last = found.records[-20:]
            loss = sum(record["loss"] for record in last) / len(last)
            ends[f"{rate:g}"] += [loss, found.records[-1]["weights"]["conv.weight"]["effective_rate"]]
        lines.append(f"| {rate:g} | {' | '.join(f'{value:.3g}' for value in ends[f'{rate:g}'])} |")
    keep("spheres", DOCS / "optim.md", "\n".join(lines) + "\n", ends)


def main() -> None:
    torch.set_num_threads(1)
    kappa()
    growth()
    model = trained()
    pruning(model)
    attacks(model)
    spheres()


if __name__ == "__main__":
    main()
