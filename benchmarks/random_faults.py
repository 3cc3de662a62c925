"""How often ``diagnose`` is right, for faults of random strength in random networks on random data, and healthy ones.

``python -m benchmarks.random_faults`` draws 200 faults and 100 healthy networks from one seed, diagnoses each once,
and writes ``random_faults.csv`` and the table of ``docs/analysis/diagnose.md``. It takes about ten minutes. The checks
were developed on ``faults.py``; these cases were drawn afterwards by another rule, and no check was changed for them.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import geonorm
from benchmarks.pages import put
from geonorm.analysis import diagnose
from geonorm.robust import wilson

STORE = Path(__file__).with_name("random_faults.csv")
PAGE = Path(__file__).parents[1] / "docs" / "analysis" / "diagnose.md"
SEED, FAULTY, SOUND = 2026, 200, 100
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


# Data


class Task:
    """A source of labelled batches, of one kind and with a random difficulty."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.kind, self.seed = kind, rng.randrange(10**6)
        self.classes = rng.choice([2, 3, 5, 10])
        self.noise = rng.uniform(0.5, 1.5)
        size = rng.choice([8, 12, 16])
        self.shape = {
            "table": (rng.choice([10, 24, 40]),),
            "images": (rng.choice([1, 3]), size, size),
            "sequences": (rng.choice([8, 12, 20]), rng.choice([8, 16])),
        }[kind]
        generator = torch.Generator().manual_seed(self.seed)
        coarse = (self.shape[0], 4, 4) if kind == "images" else self.shape[-1:]
        patterns = torch.randn(self.classes, *coarse, generator=generator) * rng.uniform(0.5, 1.2)
        if kind == "images":
            patterns = nn.functional.interpolate(patterns, size=self.shape[1:], mode="nearest")
        self.patterns = patterns if kind != "sequences" else patterns[:, None]

    def batch(self, number: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed + 7919 * seed + 1)
        labels = torch.randint(0, self.classes, (number,), generator=generator)
        x = self.patterns[labels] + self.noise * torch.randn(number, *self.shape, generator=generator)
        return x, labels


# Networks


class Residual(nn.Module):
    def __init__(self, branch: nn.Sequential, after: nn.Module) -> None:
        super().__init__()
        self.branch, self.after = branch, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x + self.branch(x))


class Pool(nn.Module):
    """The mean over all dimensions except samples and channels."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1, -2).mean(1) if self.last else x.flatten(2).mean(2)


class PerToken(nn.Module):
    """A norm that expects channels in dimension 1, for inputs (N, length, channels)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, features: int, width: int, norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.gru, self.norm, self.head = nn.GRU(features, width, batch_first=True), norm, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.gru(x)[0][:, -1]))


class GraphLayer(nn.Module):
    """A linear layer on each node and the mean of its two neighbours on a ring."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(into, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x + 0.5 * (x.roll(1, 1) + x.roll(-1, 1)))


def activation(rng: random.Random) -> nn.Module:
    return rng.choice([nn.ReLU, nn.ReLU, nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.LeakyReLU])()


def norm_for(rng: random.Random, width: int, kind: str, choice: str | None = None) -> nn.Module:
    """A norm that fits (N, width) or (N, width, ...) inputs."""
    choice = choice or rng.choice(["bn", "bn", "bn", "other"])
    if kind == "images":
        if choice == "bn":
            return nn.BatchNorm2d(width)
        return rng.choice(
            [nn.GroupNorm(4, width), geonorm.AugBatchNorm2d(width), geonorm.create_norm("guardbn", width)]
        )
    if choice == "bn":
        return nn.BatchNorm1d(width)
    return rng.choice([nn.LayerNorm(width), geonorm.AugBatchNorm1d(width)])


def network(rng: random.Random, task: Task, choice: str | None = None, head_norm: bool = False) -> nn.Module:
    """A network of a random kind, depth, width and activation for a task."""
    width, depth = rng.choice([16, 24, 32, 48]), rng.randint(1, 3)
    head: list[nn.Module] = [nn.Linear(width, task.classes)]
    if task.kind == "images":
        layers: list[nn.Module] = [
            nn.Conv2d(task.shape[0], width, 3, padding=1, bias=False),
            norm_for(rng, width, "images", choice),
            activation(rng),
        ]
        for _ in range(depth):
            conv = nn.Conv2d(width, width, 3, padding=1, stride=1, bias=False)
            if rng.random() < 0.5:
                layers.append(Residual(nn.Sequential(conv, norm_for(rng, width, "images", choice)), activation(rng)))
            else:
                layers += [conv, norm_for(rng, width, "images", choice), activation(rng)]
            if rng.random() < 0.3 and task.shape[1] >= 8:
                layers.append(nn.MaxPool2d(2))
        return nn.Sequential(*layers, Pool(last=False), *head)
    if task.kind == "table":
        layers = []
        into = task.shape[0]
        for i in range(depth + 1):
            block = [nn.Linear(into, width, bias=False), norm_for(rng, width, "table", choice)]
            layers += (
                [Residual(nn.Sequential(*block), activation(rng))]
                if i and rng.random() < 0.4
                else [*block, activation(rng)]
            )
            into = width
        return nn.Sequential(*layers, *head)
    features = task.shape[1]
    form = (
        rng.choice(["transformer", "recurrent", "graph", "tokens"])
        if choice != "bn"
        else rng.choice(["recurrent", "graph", "tokens"])
    )
    if form == "transformer":
        layer = nn.TransformerEncoderLayer(
            width // 8 * 8, 2, 2 * width, dropout=0.1, batch_first=True, norm_first=rng.random() < 0.5
        )
        encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        return nn.Sequential(
            nn.Linear(features, width // 8 * 8), encoder, Pool(last=True), nn.Linear(width // 8 * 8, task.classes)
        )
    if form == "recurrent":
        return Recurrent(features, width, norm_for(rng, width, "table", choice), head[0])
    if form == "graph":
        layers = []
        into = features
        for _ in range(depth + 1):
            norm = norm_for(rng, width, "table", choice)
            layers += [
                GraphLayer(into, width),
                norm if isinstance(norm, nn.LayerNorm) else PerToken(norm),
                activation(rng),
            ]
            into = width
        return nn.Sequential(*layers, Pool(last=True), *head)
    norm = norm_for(rng, width, "table", choice)
    layers = [
        nn.Linear(features, width, bias=False),
        norm if isinstance(norm, nn.LayerNorm) else PerToken(norm),
        activation(rng),
    ]
    return nn.Sequential(*layers, nn.Linear(width, width), activation(rng), Pool(last=True), *head)


@torch.enable_grad()
def train(rng: random.Random, model: nn.Module, task: Task, steps: int) -> nn.Module:
    rate = 10 ** rng.uniform(-3, -2)
    adam = rng.random() < 0.5
    optimizer: Any = (
        torch.optim.Adam(model.parameters(), rate)
        if adam
        else torch.optim.SGD(model.parameters(), 5 * rate, momentum=0.9)
    )
    size = rng.choice([32, 64, 128])
    model.train()
    for step in range(steps):
        x, labels = task.batch(size, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model


class Case(NamedTuple):
    """A network, batches, and options of ``diagnose``."""

    model: nn.Module
    batches: list[Any]
    options: dict[str, Any]


def batches_of(
    rng: random.Random, task: Task, labelled: bool | None = None, number: int | None = None, size: int | None = None
) -> list[Any]:
    number, size = number or rng.randint(2, 6), size or rng.choice([32, 64, 128])
    labelled = rng.random() < 0.5 if labelled is None else labelled
    found = [task.batch(size, 10**5 + i) for i in range(number)]
    return found if labelled else [x for x, _ in found]


def healthy(rng: random.Random) -> Case:
    """Untrained, half-trained or trained, in training or in evaluation mode."""
    task = Task(rng, rng.choice(["table", "images", "sequences"]))
    steps = rng.choice([0, rng.randint(20, 60), rng.randint(100, 200)])
    torch.manual_seed(rng.randrange(10**6))
    model = train(rng, network(rng, task), task, steps)
    model.train(steps == 0 or rng.random() < 0.5)
    return Case(model, batches_of(rng, task), {})


# Faults: each takes a random trained network, and returns the case and the faulty layer


class Planted(NamedTuple):
    case: Case
    layer: str  # "" if any will do
    strength: str


def start(
    rng: random.Random,
    kinds: tuple[str, ...] = ("table", "images", "sequences"),
    choice: str | None = "bn",
    steps: int | None = None,
) -> tuple[Task, nn.Module]:
    task = Task(rng, rng.choice(kinds))
    torch.manual_seed(rng.randrange(10**6))
    model = train(rng, network(rng, task, choice), task, rng.randint(100, 200) if steps is None else steps)
    return task, model


def pick(rng: random.Random, model: nn.Module, kinds: Any) -> tuple[str, Any]:
    return rng.choice([(name, m) for name, m in model.named_modules() if isinstance(m, kinds)])


def plain(rng: random.Random, task: Task, model: nn.Module, layer: str, strength: str, **options: Any) -> Planted:
    return Planted(Case(model, batches_of(rng, task), options), layer, strength)


def scaled_inputs(rng: random.Random) -> Planted:
    task, model = start(rng)
    factor = 10 ** (rng.choice([-1, 1]) * rng.uniform(0.3, 1.0))
    batches = [_on_input(batch, lambda x: factor * x) for batch in batches_of(rng, task)]
    return Planted(Case(model.eval(), batches, {}), "", f"×{factor:.2g}")


def shifted_inputs(rng: random.Random) -> Planted:
    task, model = start(rng)
    offset = rng.choice([-1, 1]) * rng.uniform(1.5, 5)
    return Planted(
        Case(model.eval(), [_on_input(b, lambda x: x + offset) for b in batches_of(rng, task)], {}),
        "",
        f"{offset:+.2g}",
    )


def _on_input(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return (change(batch[0]), batch[1]) if isinstance(batch, tuple) else change(batch)


def lost_buffers(rng: random.Random) -> Planted:
    task, model = start(rng)
    norms = [m for m in model.modules() if isinstance(m, BATCH_NORMS)]
    for norm in norms:
        norm.reset_running_stats()
    mode = rng.random() < 0.5
    return plain(rng, task, model.train(mode), "", "training" if mode else "evaluation")


@torch.no_grad()
def wrong_statistics(rng: random.Random) -> Planted:
    task, model = start(rng)
    name, norm = pick(rng, model, BATCH_NORMS)
    factor = 10 ** (rng.choice([-1, 1]) * rng.uniform(0.5, 2))
    if rng.random() < 0.5:
        norm.running_var.mul_(factor)
        return plain(rng, task, model.eval(), name, f"variance ×{factor:.2g}")
    norm.running_mean.add_(norm.running_var.sqrt() * rng.uniform(1.5, 5))
    return plain(rng, task, model.eval(), name, "mean")


@torch.no_grad()
def small_gamma(rng: random.Random) -> Planted:
    task, model = start(rng, choice=rng.choice(["bn", None]))
    name, norm = pick(
        rng, model, (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, geonorm.AugBatchNorm1d, geonorm.AugBatchNorm2d)
    )
    width = norm.weight.numel()
    number, size = max(1, round(rng.uniform(0.05, 1) * width)), 10 ** -rng.uniform(4.5, 8)
    norm.weight.view(-1)[torch.randperm(width)[:number]] = size
    return plain(rng, task, model, name, f"{number} of {width} at {size:.0e}")


@torch.no_grad()
def large_gamma(rng: random.Random) -> Planted:
    task, model = start(rng)
    name, norm = pick(rng, model, BATCH_NORMS)
    factor, number = 10 ** rng.uniform(1.7, 3), rng.choice([1, 2, norm.num_features])
    norm.weight[:number] = norm.weight[:number].abs().clamp_min(0.5) * factor
    return plain(rng, task, model, name, f"{number} ×{factor:.0f}")


@torch.no_grad()
def saturation(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width = rng.choice([16, 32])
    kind = rng.choice([nn.Tanh, nn.Sigmoid])
    model = train(
        rng,
        nn.Sequential(
            nn.Linear(task.shape[0], width), kind(), nn.Linear(width, width), kind(), nn.Linear(width, task.classes)
        ),
        task,
        120,
    )
    layer, factor = rng.choice(["0", "2"]), rng.uniform(30, 200)
    model.get_submodule(layer).weight.mul_(factor)
    return plain(rng, task, model, layer, f"×{factor:.0f}")


@torch.no_grad()
def feature_takes_all(rng: random.Random) -> Planted:
    task = Task(rng, rng.choice(["table", "sequences"]))
    width = rng.choice([16, 32, 64])
    layers = [nn.Linear(task.shape[-1], width), nn.LayerNorm(width), nn.GELU()]
    pool = [Pool(last=True)] if task.kind == "sequences" else []
    model = train(rng, nn.Sequential(*layers, *pool, nn.Linear(width, task.classes)), task, 120)
    size = 10 ** rng.uniform(1.7, 3)
    model[0].bias[rng.randrange(width)] = size
    return plain(rng, task, model, "1", f"{size:.0f}")


@torch.no_grad()
def large_eps(rng: random.Random) -> Planted:
    task, model = start(rng, choice=rng.choice(["bn", None]))
    name, norm = pick(
        rng, model, (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, geonorm.AugBatchNorm1d, geonorm.AugBatchNorm2d)
    )
    seen: list[float] = []
    handle = norm.register_forward_pre_hook(lambda m, x: seen.append(float(x[0].var())))
    model(task.batch(64, 5)[0])
    handle.remove()
    factor = 10 ** rng.uniform(-0.5, 1)
    norm.eps = float(seen[0] * factor)
    return plain(rng, task, model, name, f"{factor:.2g} σ²")


def odd_momentum(rng: random.Random) -> Planted:
    task, model = start(rng)
    name, norm = pick(rng, model, BATCH_NORMS)
    norm.momentum = rng.choice([0.0, 1e-5, 1e-4, 0.9, 0.99, 0.999, 1.0, 3.0])
    return plain(rng, task, model, name, f"{norm.momentum:g}")


def logits(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width = rng.choice([16, 32])
    norm = rng.choice([nn.BatchNorm1d, nn.LayerNorm])(task.classes)
    model = train(
        rng, nn.Sequential(nn.Linear(task.shape[0], width), nn.ReLU(), nn.Linear(width, task.classes), norm), task, 100
    )
    return Planted(Case(model, batches_of(rng, task), {}), "3", type(norm).__name__)


def dropout_first(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width, p = rng.choice([24, 48]), rng.uniform(0.3, 0.8)
    layers = [
        nn.Linear(task.shape[0], width),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(width, width, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(),
    ]
    model = train(rng, nn.Sequential(*layers, nn.Linear(width, task.classes)), task, 150)
    return plain(rng, task, model, "4", f"p={p:.2f}")


def wrong_axis(rng: random.Random) -> Planted:
    task = Task(rng, "sequences")
    width = rng.choice([16, 32])
    norm = rng.choice([nn.BatchNorm1d(task.shape[0]), nn.InstanceNorm1d(task.shape[0], affine=True)])
    model = train(
        rng,
        nn.Sequential(
            nn.Linear(task.shape[1], width), norm, nn.ReLU(), Pool(last=True), nn.Linear(width, task.classes)
        ),
        task,
        100,
    )
    return plain(rng, task, model, "1", type(norm).__name__)


def raw_inputs(rng: random.Random) -> Planted:
    task = Task(rng, rng.choice(["table", "images"]))
    factor, offset = 10 ** rng.uniform(1.3, 3), rng.uniform(0, 200)
    torch.manual_seed(rng.randrange(10**6))
    model = network(rng, task, rng.choice(["bn", None]))
    batches = [_on_input(b, lambda x: factor * x + offset) for b in batches_of(rng, task)]
    return Planted(Case(model, batches, {}), "", f"{factor:.0f}·x + {offset:.0f}")


def sorted_data(rng: random.Random) -> Planted:
    task, model = start(rng)
    found = batches_of(rng, task, labelled=True, number=rng.randint(4, 8), size=64)
    x, y = (torch.cat(parts) for parts in zip(*found, strict=True))
    order = y.argsort()
    size = rng.choice([32, 64])
    labelled = rng.random() < 0.5
    pairs = zip(x[order].split(size), y[order].split(size), strict=True)
    return Planted(
        Case(model, [(a, b) if labelled else a for a, b in pairs], {}), "", "with labels" if labelled else "without"
    )


def padded(rng: random.Random) -> Planted:
    task = Task(rng, "sequences")
    width, share = rng.choice([16, 32]), rng.uniform(0.2, 0.7)
    layers = [nn.Linear(task.shape[1], width, bias=False), PerToken(nn.BatchNorm1d(width)), nn.ReLU()]
    model = train(rng, nn.Sequential(*layers, Pool(last=True), nn.Linear(width, task.classes)), task, 100)
    length = task.shape[0]

    def pad(x: Tensor) -> Tensor:
        most = max(2, round(2 * share * length))
        ends = length - torch.randint(0, min(most, length), (len(x), 1))
        return x * (torch.arange(length)[None] < ends)[..., None]

    return Planted(Case(model, [_on_input(b, pad) for b in batches_of(rng, task)], {}), "1.norm", f"about {share:.0%}")


def half_frozen(rng: random.Random) -> Planted:
    task, model = start(rng)
    norms = [m for m in model.modules() if isinstance(m, BATCH_NORMS)]
    for norm in norms[: rng.randint(1, len(norms))]:
        norm.weight.requires_grad_(False)
        norm.bias.requires_grad_(False)
    return plain(rng, task, model.train(), "", "")


def shared(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width, factor = rng.choice([16, 32]), rng.uniform(2, 6)
    norm = nn.BatchNorm1d(width)
    model = nn.Sequential(
        nn.Linear(task.shape[0], width, bias=False),
        norm,
        nn.ReLU(),
        nn.Linear(width, width, bias=False),
        norm,
        nn.ReLU(),
        nn.Linear(width, task.classes),
    )
    with torch.no_grad():
        model[3].weight.mul_(factor)
    return plain(rng, task, train(rng, model, task, 120), "1", f"×{factor:.1f}")


@torch.no_grad()
def silent(rng: random.Random) -> Planted:
    while True:
        task, model = start(rng, kinds=("table", "images"))
        branches = [(name, m) for name, m in model.named_modules() if isinstance(m, Residual)]
        if branches:
            break
    name, block = rng.choice(branches)
    size = rng.choice([0.0, 10 ** -rng.uniform(6, 9)])
    block.branch[1].weight.fill_(size)
    block.branch[1].bias.zero_()
    return plain(rng, task, model, f"{name}.branch.1", f"γ={size:.0e}")


@torch.no_grad()
def overflow(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width = rng.choice([16, 32])
    model = train(
        rng,
        nn.Sequential(
            nn.Linear(task.shape[0], width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, task.classes),
        ),
        task,
        100,
    )
    factor = 10 ** rng.uniform(4.3, 4.7)
    model[3].weight.mul_(factor / float(model[3].weight.abs().max()))
    batches = [_on_input(b, Tensor.half) for b in batches_of(rng, task)]
    return Planted(Case(model.half(), batches, {}), "", f"{factor:.0f}")


@torch.no_grad()
def long_weights(rng: random.Random) -> Planted:
    task, model, name, operation = with_operation(rng)
    factor = 10 ** rng.uniform(2.5, 4)
    operation.weight.mul_(factor)
    return plain(rng, task, model, name, f"×{factor:.0f}", **({"lr": 0.01} if rng.random() < 0.5 else {}))


@torch.no_grad()
def short_weights(rng: random.Random) -> Planted:
    task, model, name, operation = with_operation(rng)
    factor = 10 ** -rng.uniform(4, 7)
    if rng.random() < 0.5:
        operation.weight[: rng.randint(1, 4)] *= factor
    else:
        operation.weight.mul_(factor)
    return plain(rng, task, model, name, f"×{factor:.0e}")


def with_operation(rng: random.Random) -> tuple[Task, nn.Module, str, Any]:
    """A network, and one of its operations right before a batch norm."""
    while True:
        task, model = start(rng)
        found = _before_norms(model)
        if found:
            return task, model, *rng.choice(found)


def _before_norms(model: nn.Module) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    before: tuple[str, Any] | None = None
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            before = (name, module)
        elif (
            isinstance(module, BATCH_NORMS) and before is not None and before[1].weight.shape[0] == module.num_features
        ):
            found.append(before)
            before = None
    return found


@torch.no_grad()
def not_finite(rng: random.Random) -> Planted:
    task, model = start(rng)
    value = rng.choice([math.nan, math.inf, -math.inf])
    name, tensor = rng.choice(
        [pair for pair in (*model.named_parameters(), *model.named_buffers()) if pair[1].is_floating_point()]
    )
    tensor.view(-1)[rng.randrange(tensor.numel())] = value
    return plain(rng, task, model, name.rpartition(".")[0], f"{value} in {name.rpartition('.')[2]}")


def one_in_evaluation(rng: random.Random) -> Planted:
    task, model = start(rng)
    name, norm = pick(rng, model.train(), BATCH_NORMS)
    norm.eval()
    return plain(rng, task, model, name, "")


def twice(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width = rng.choice([16, 32])
    kind = rng.choice([nn.BatchNorm1d, geonorm.AugBatchNorm1d])
    layers = [nn.Linear(task.shape[0], width), kind(width), kind(width), nn.ReLU(), nn.Linear(width, task.classes)]
    return plain(rng, task, train(rng, nn.Sequential(*layers), task, 100), "2", kind.__name__)


def few_samples(rng: random.Random) -> Planted:
    task, model = start(rng, kinds=("table",))
    size = rng.choice([2, 3, 4, 8, 12])
    return Planted(Case(model.train(), batches_of(rng, task, number=6, size=size), {}), "", f"{size} samples")


def broken_samples(rng: random.Random) -> Planted:
    task, model = start(rng, kinds=("table", "images"))
    share, size = rng.uniform(0.02, 0.1), 10 ** rng.uniform(1, 2)

    def spoil(x: Tensor) -> Tensor:
        x = x.clone()
        number = max(1, round(share * len(x)))
        x[torch.randperm(len(x))[:number]] += size
        return x

    return Planted(
        Case(model, [_on_input(b, spoil) for b in batches_of(rng, task, size=128)], {}),
        "",
        f"{share:.0%} by {size:.0f}",
    )


@torch.no_grad()
def dead(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width = rng.choice([16, 32])
    layers = [
        nn.Linear(task.shape[0], width, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, task.classes),
    ]
    model = train(rng, nn.Sequential(*layers), task, 100)
    number, size = rng.randint(1, width // 2), rng.uniform(8, 40)
    model[1].bias[:number] = -size * model[1].weight[:number].abs().clamp_min(0.2)
    return plain(rng, task, model, "1", f"{number} of {width}")


@torch.no_grad()
def copies(rng: random.Random) -> Planted:
    task, model, name, operation = with_operation(rng)
    number = rng.randint(1, 5)
    operation.weight[1 : 1 + number] = operation.weight[0] * rng.uniform(0.5, 3)
    return plain(rng, task, model, name, f"{number} rows")


@torch.no_grad()
def loud(rng: random.Random) -> Planted:
    task = Task(rng, "table")
    width, factor = rng.choice([16, 32]), 10 ** rng.uniform(4, 6)
    model = train(
        rng,
        nn.Sequential(
            nn.Linear(task.shape[0], width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, task.classes),
        ),
        task,
        100,
    )
    model[3].weight.mul_(factor)
    return plain(rng, task, model, "", f"×{factor:.0e}")


# The planted faults, and the kinds of findings that report them
FAULTS: dict[str, tuple[Callable[[random.Random], Planted], tuple[str, ...]]] = {
    "inputs rescaled in evaluation": (scaled_inputs, ("stale statistics", "input not normalized")),
    "inputs shifted in evaluation": (shifted_inputs, ("stale statistics", "input not normalized")),
    "running statistics lost": (lost_buffers, ("lost statistics",)),
    "running statistics of one norm wrong": (wrong_statistics, ("stale statistics",)),
    "γ almost 0": (small_gamma, ("collapsed channels", "silent branches")),
    "γ exploded": (large_gamma, ("exploded gamma",)),
    "tanh or sigmoid saturated": (saturation, ("saturated",)),
    "one feature of a LayerNorm": (feature_takes_all, ("one feature",)),
    "eps too large": (large_eps, ("eps dominates", "collapsed channels")),
    "momentum": (odd_momentum, ("momentum",)),
    "norm on the logits": (logits, ("norm on the logits",)),
    "dropout in front of a BatchNorm": (dropout_first, ("variance shift",)),
    "norm over the wrong axis": (wrong_axis, ("wrong axis",)),
    "inputs not normalized": (raw_inputs, ("input not normalized",)),
    "batches sorted by class": (sorted_data, ("sorted batches",)),
    "padding in the statistics": (padded, ("padding counts",)),
    "γ and β frozen, statistics moving": (half_frozen, ("half frozen",)),
    "one norm in two places": (shared, ("shared norm",)),
    "residual branch that adds nothing": (silent, ("silent branches", "collapsed channels")),
    "overflow in float16": (overflow, ("overflow",)),
    "weights grown far too long": (long_weights, ("huge weights",)),
    "weights far too small": (short_weights, ("tiny weights", "collapsed channels")),
    "NaN or Inf in a tensor": (not_finite, ("parameter not finite", "buffer not finite")),
    "one norm in evaluation": (one_in_evaluation, ("not training",)),
    "two norms in a row": (twice, ("norm after norm",)),
    "batches too small": (few_samples, ("small batch", "two values")),
    "broken samples": (broken_samples, ("outliers",)),
    "dead channels": (dead, ("dead channels",)),
    "rows of a weight repeated": (copies, ("duplicate channels",)),
    "activations exploded": (loud, ("exploded activations",)),
}


class Outcome(NamedTuple):
    """The planted fault and the findings; for healthy networks ``fault`` is empty, and ``found`` means no alarm."""

    number: int
    fault: str
    strength: str
    found: bool
    said: str


def ask(number: int, seed: int = SEED) -> Outcome:
    """The result for one case; the faults come first, then the healthy networks."""
    rng = random.Random(f"{seed}/{number}")
    torch.manual_seed(number)
    if number >= FAULTY:
        case = healthy(rng)
        alarms = diagnose(case.model, case.batches, **case.options).alarms()
        return Outcome(number, "", "", not alarms, "; ".join(f"{f.kind} at {f.layer}" for f in alarms))
    fault = list(FAULTS)[number % len(FAULTS)]
    plant, kinds = FAULTS[fault]
    planted = plant(rng)
    told = diagnose(planted.case.model, planted.case.batches, **planted.case.options)
    everything = [f for cause in told.findings for f in (cause, *cause.consequences)]
    hits = [f for f in everything if f.kind in kinds and (not planted.layer or planted.layer in (f.layer, *f.layers))]
    said = "; ".join(f"{f.kind} at {f.layer}" for f in (hits[:1] or told.findings[:3]))
    return Outcome(number, fault, planted.strength, bool(hits), said)


def table(outcomes: list[Outcome]) -> str:
    """The Markdown of the page, from stored outcomes."""
    faulty, sound = [o for o in outcomes if o.fault], [o for o in outcomes if not o.fault]
    rate = wilson(sum(o.found for o in faulty), len(faulty))
    false = wilson(sum(not o.found for o in sound), len(sound))
    lines = [
        f"**{rate.correct} of {rate.total}** faults are found: {rate.share:.0%} (95 % interval {rate.low:.0%} to "
        f"{rate.high:.0%}). **{false.correct} of {false.total}** healthy networks raise an alarm: {false.share:.0%} "
        f"({false.low:.0%} to {false.high:.0%}).",
        "",
        "| planted | cases | found | missed at strength |",
        "| --- | --- | --- | --- |",
    ]
    for fault in dict.fromkeys(o.fault for o in faulty):
        own = [o for o in faulty if o.fault == fault]
        missed = ", ".join(o.strength or "–" for o in own if not o.found)
        lines.append(f"| {fault} | {len(own)} | {sum(o.found for o in own)} | {missed} |")
    return "\n".join(lines) + "\n"


def stored() -> list[Outcome]:
    with STORE.open(newline="", encoding="utf-8") as file:
        return [
            Outcome(int(r["number"]), r["fault"], r["strength"], r["found"] == "True", r["said"])
            for r in csv.DictReader(file)
        ]


def main() -> None:
    torch.set_num_threads(1)
    outcomes = []
    for number in range(FAULTY + SOUND):
        outcomes.append(ask(number))
        print(f"\r{number + 1} of {FAULTY + SOUND}", end="", file=sys.stderr, flush=True)
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows(outcomes)
    put(PAGE, "random faults", table(outcomes))
    print("\n" + table(outcomes))


if __name__ == "__main__":
    main()
