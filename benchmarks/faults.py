"""Planted faults: each is put into a healthy network, which ``geonorm.analysis.diagnose`` then examines.

``python -m benchmarks.faults`` writes ``faults.csv``, and the table and the picture of
``docs/analysis/diagnose.md``.
"""

from __future__ import annotations

import copy
import csv
import functools
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.faults_in_use import HEALTHY_IN_USE, IN_USE, trained
from benchmarks.pages import put
from geonorm.analysis import Diagnosis, Finding, diagnose
from geonorm.lab.models import CifarResNet

STORE = Path(__file__).with_name("faults.csv")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "diagnose.png"
PAGE = Path(__file__).parents[1] / "docs" / "analysis" / "diagnose.md"

Planted = tuple[nn.Module, list[Any]]


class Fault(NamedTuple):
    """A fault: the change to the network, the expected kind of finding, the layer it should name, and options."""

    what: str
    kind: str
    layer: str
    plant: Callable[[nn.Module, list[Any]], Planted]
    options: Mapping[str, Any] = MappingProxyType({})


def images(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten classes of blurred patterns with noise."""
    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (number,), generator=generator)
    shown = nn.functional.interpolate(patterns, scale_factor=2, mode="bilinear")[labels]
    return shown + 0.5 * torch.randn(shown.shape, generator=generator), labels


def train(model: nn.Module, steps: int = 40) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step in range(steps):
        x, labels = images(64, seed=step + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model


def dense() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(768, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(48, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.into(x.transpose(1, 2).flatten(2))).mean(1))


HEALTHY: dict[str, Callable[[], nn.Module]] = {
    "ResNet, BatchNorm": lambda: CifarResNet(1, "bn", width=8),
    "ResNet, AugNorm": lambda: CifarResNet(1, "augbn(phi=1.5)", width=8),
    "ResNet, GroupNorm": lambda: CifarResNet(1, lambda width: nn.GroupNorm(4, width), width=8),
    "ResNet without norms": lambda: CifarResNet(1, lambda width: nn.Identity(), width=8),
    "MLP, BatchNorm": dense,
    "Transformer, LayerNorm": Transformer,
}


@functools.cache
def _trained(name: str) -> nn.Module:
    torch.manual_seed(0)
    return train(HEALTHY[name](), steps=0 if "without" in name else 40)


def healthy(name: str = "ResNet, BatchNorm") -> Planted:
    """A network without a fault, and batches to examine it with."""
    return copy.deepcopy(_trained(name)), [images(64, seed=1000)[0]]


def _set(path: str, attribute: str, value: object) -> Callable[[nn.Module, list[Tensor]], Planted]:
    def plant(model: nn.Module, batches: list[Tensor]) -> Planted:
        setattr(model.get_submodule(path), attribute, value)
        return model, batches

    return plant


def _fill(
    path: str, attribute: str, change: Callable[[Tensor], object]
) -> Callable[[nn.Module, list[Tensor]], Planted]:
    def plant(model: nn.Module, batches: list[Tensor]) -> Planted:
        with torch.no_grad():
            change(getattr(model.get_submodule(path), attribute))
        return model, batches

    return plant


def _replace(path: str, make: Callable[[nn.Module], nn.Module]) -> Callable[[nn.Module, list[Tensor]], Planted]:
    def plant(model: nn.Module, batches: list[Tensor]) -> Planted:
        parent, _, own = path.rpartition(".")
        setattr(model.get_submodule(parent), own, make(model.get_submodule(path)))
        return model, batches

    return plant


def _small_batch(model: nn.Module, batches: list[Tensor]) -> Planted:
    return healthy("MLP, BatchNorm")[0], [batches[0][:4]]


def _two_values(model: nn.Module, batches: list[Tensor]) -> Planted:
    return healthy("MLP, BatchNorm")[0], [batches[0][:2]]


def _in_the_kernel(model: nn.Module, batches: list[Tensor]) -> Planted:
    model = healthy("MLP, BatchNorm")[0]
    batches = [batch.clone() for batch in batches]
    for batch in batches:
        batch[:, 0, 0, 0] = 1.0  # this pixel is always the same
    with torch.no_grad():
        model[1].weight[5] = 0
        model[1].weight[5, 0] = 1
    return model, batches


def _one_pixel(model: nn.Module, batches: list[Tensor]) -> Planted:
    layers = [nn.Conv2d(3, 8, 16, bias=False), nn.GroupNorm(8, 8), nn.Flatten(), nn.Linear(8, 10)]
    return nn.Sequential(*layers), batches


def _one_pixel_instance(model: nn.Module, batches: list[Tensor]) -> Planted:
    layers = [nn.Conv2d(3, 8, 16, bias=False), nn.InstanceNorm2d(8), nn.Flatten(), nn.Linear(8, 10)]
    return nn.Sequential(*layers), batches


def _one_sample(model: nn.Module, batches: list[Tensor]) -> Planted:
    return healthy("MLP, BatchNorm")[0], [batches[0][:1]]


def _outliers(model: nn.Module, batches: list[Tensor]) -> Planted:
    model, batches = healthy("MLP, BatchNorm")[0], [batch.clone() for batch in batches]
    for batch in batches:
        batch[::16] += 30.0
    return model, batches


def _bad_activations(model: nn.Module, batches: list[Tensor]) -> Planted:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - 3).sqrt()

    layers = [nn.Flatten(), nn.Linear(768, 8, bias=False), Root(), nn.BatchNorm1d(8)]
    return nn.Sequential(*layers), batches


@torch.no_grad()
def _shared(model: nn.Module, batches: list[Tensor]) -> Planted:
    model.blocks[0].conv2.weight *= 3  # so that the inputs of the two places clearly differ
    model.blocks[0].norm2 = model.blocks[0].norm1
    return model, batches


def _with_bias(conv: nn.Module) -> nn.Module:
    biased = nn.Conv2d(3, 8, 3, 1, 1)
    biased.weight = conv.weight
    return biased


def _negative(x: Tensor) -> object:
    x[3] = -0.5
    return x


def _copy_row(x: Tensor) -> object:
    x[2] = 3 * x[1]
    return x


def _twin_outputs(model: nn.Module, batches: list[Tensor]) -> Planted:
    """Two channels with equal outputs on the data, and weights that differ only where the data are 0."""
    model = healthy("MLP, BatchNorm")[0]
    batches = [batch.clone() for batch in batches]
    for batch in batches:
        batch[:, 0, 0, :4] = 0.0
    with torch.no_grad():
        model[1].weight[2] = model[1].weight[1]
        model[1].weight[2, :4] += 1.0
    return model, batches


FAULTS = [
    Fault("γ of a channel is 1e-6", "collapsed channels", "norm", _fill("norm", "weight", lambda w: w[3].fill_(1e-6))),
    Fault(
        "weights of a channel times 1e-6",
        "collapsed channels",
        "norm",
        _fill("conv", "weight", lambda w: w[3].mul_(1e-6)),
    ),
    Fault("weights of a channel see a constant pixel only", "collapsed channels", "2", _in_the_kernel),
    Fault(
        "weights of a channel are 3 times another's", "duplicate channels", "conv", _fill("conv", "weight", _copy_row)
    ),
    Fault("batch of 4 for a width of 768", "small batch", "2", _small_batch),
    Fault("batch of 2 in front of a dense layer", "two values", "2", _two_values),
    Fault("batch of 1 in front of a dense layer", "single value", "2", _one_sample),
    Fault("InstanceNorm on 1×1 images", "single value", "1", _one_pixel_instance),
    Fault("GroupNorm with one channel per group on 1×1 images", "single value", "1", _one_pixel),
    Fault(
        "running mean of one channel off by 3",
        "stale statistics",
        "norm",
        _fill("norm", "running_mean", lambda m: m[2].add_(3)),
    ),
    Fault(
        "running variances 10 times too large",
        "stale statistics",
        "blocks.1.norm1",
        _fill("blocks.1.norm1", "running_var", lambda v: v.mul_(10)),
    ),
    Fault(
        "β of a channel is −20, in front of a ReLU",
        "dead channels",
        "blocks.0.norm1",
        _fill("blocks.0.norm1", "bias", lambda b: b[1].fill_(-20)),
    ),
    Fault("eps is 0.5", "eps dominates", "norm", _set("norm", "eps", 0.5)),
    Fault(
        "a NaN in a convolution's weight",
        "parameter not finite",
        "blocks.2.conv1",
        _fill("blocks.2.conv1", "weight", lambda w: w[0, 0, 0, 0].fill_(math.nan)),
    ),
    Fault(
        "an Inf in a running variance",
        "buffer not finite",
        "norm",
        _fill("norm", "running_var", lambda v: v[0].fill_(math.inf)),
    ),
    Fault("a negative running variance", "negative variance", "norm", _fill("norm", "running_var", _negative)),
    Fault("roots of negative numbers in front of a norm", "not finite", "3", _bad_activations),
    Fault(
        "one norm in evaluation, the model in training",
        "not training",
        "blocks.1.norm2",
        _set("blocks.1.norm2", "training", False),
    ),
    Fault(
        "the model in evaluation, never trained",
        "lost statistics",
        "norm",
        lambda model, batches: (CifarResNet(1, width=8).eval(), batches),
    ),
    Fault("momentum is 0", "momentum", "norm", _set("norm", "momentum", 0.0)),
    Fault("momentum is 1", "momentum", "norm", _set("norm", "momentum", 1.0)),
    Fault("momentum is 9", "momentum", "norm", _set("norm", "momentum", 9.0)),
    Fault(
        "a bias in front of a BatchNorm",
        "redundant bias",
        "conv",
        _replace("conv", _with_bias),
    ),
    Fault(
        "weights in front of a BatchNorm times 1000",
        "huge weights",
        "blocks.0.conv2",
        _fill("blocks.0.conv2", "weight", lambda w: w.mul_(1000)),
    ),
    Fault(
        "weights in front of a BatchNorm times 1e-5",
        "tiny weights",
        "blocks.0.conv2",
        _fill("blocks.0.conv2", "weight", lambda w: w.mul_(1e-5)),
    ),
    Fault("one image in 16 is 30 brighter", "outliers", "2", _outliers),
    Fault(
        "two BatchNorms in a row",
        "norm after norm",
        "norm.1",
        _replace("norm", lambda norm: nn.Sequential(norm, nn.BatchNorm2d(8))),
    ),
    Fault("one BatchNorm in two places", "shared norm", "blocks.0.norm1", _shared),
    Fault(
        "running mean of one channel off by 0.3 σ",
        "stale statistics",
        "norm",
        _fill("norm", "running_mean", lambda m: m[2].add_(0.3)),
    ),
    Fault("channels equal on these data, by unequal weights", "duplicate channels", "1", _twin_outputs),
    *[Fault(u.what, u.kind, u.layer, lambda model, batches, u=u: u.plant(), u.options) for u in IN_USE],
]


class Outcome(NamedTuple):
    """The result of ``diagnose`` for one planted fault."""

    fault: str
    expected: str
    layer: str
    found: bool
    severity: str
    others: str


def ask(fault: Fault) -> tuple[Diagnosis, Outcome]:
    torch.manual_seed(0)
    model, batches = fault.plant(*healthy())
    told = diagnose(model, batches, **fault.options)
    hits = hits_of(told, fault)
    others = sorted({f.kind for f in told.alarms() if not any(hit in (f, *f.consequences) for hit in hits)})
    severity = hits[0].severity if hits else ""
    return told, Outcome(fault.what, fault.kind, fault.layer, bool(hits), severity, ", ".join(others))


def hits_of(told: Diagnosis, fault: Fault) -> list[Finding]:
    """The findings that report the fault, as a cause or as a consequence."""
    everything = [f for cause in told.findings for f in (cause, *cause.consequences)]
    return [f for f in everything if f.kind == fault.kind and fault.layer in (f.layer, *f.layers)]


def table(outcomes: list[Outcome]) -> str:
    """The Markdown of the page, from stored outcomes."""
    planted = [outcome for outcome in outcomes if outcome.layer]
    lines = [f"{sum(o.found for o in planted)} of {len(planted)} planted faults are found.", ""]
    lines += ["| planted | found | as | other alarms it raises |", "| --- | --- | --- | --- |"]
    for o in planted:
        said = f"{o.expected} ({o.severity})" if o.found else ""
        lines.append(f"| {o.fault} | {'yes' if o.found else '**missed**'} | {said} | {o.others} |")
    lines += ["", "| healthy network | alarms |", "| --- | --- |"]
    lines += [f"| {o.fault} | {o.others or 'none'} |" for o in outcomes if not o.layer]
    return "\n".join(lines) + "\n"


def stored() -> list[Outcome]:
    with STORE.open(newline="", encoding="utf-8") as file:
        return [Outcome(**{**row, "found": row["found"] == "True"}) for row in csv.DictReader(file)]


SHOWN = (
    "γ of a channel is 1e-6",
    "running mean of one channel off by 3",
    "β of a channel is −20, in front of a ReLU",
    "momentum is 0",
)


def picture() -> None:
    """A screenshot of the page for a network with some of the faults, by Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: the picture of the page is left as it is")
        return
    model, batches = healthy()
    for fault in [f for f in FAULTS if f.what in SHOWN]:
        model, batches = fault.plant(model, batches)
    with tempfile.TemporaryDirectory() as folder:
        page = diagnose(model, batches).to_html(Path(folder) / "page.html")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
        shot = f"--screenshot={PICTURE}"
        subprocess.run([chromium, *flags, "--window-size=1100,1000", shot, page.as_uri()], check=True)


def main() -> None:
    outcomes = [ask(fault)[1] for fault in FAULTS]
    networks = {name: healthy(name) for name in HEALTHY}
    networks |= {f"{name} (trained on points or sequences)": trained(name) for name in HEALTHY_IN_USE}
    for name, (model, batches) in networks.items():
        alarms = sorted({f.kind for f in diagnose(model, batches).alarms()})
        outcomes.append(Outcome(name, "no alarm", "", not alarms, "", ", ".join(alarms)))
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows(outcomes)
    put(PAGE, "faults", table(outcomes))
    picture()
    print(table(outcomes))


if __name__ == "__main__":
    main()
