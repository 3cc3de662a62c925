"""What is checked on a GPU: every layer against float64 on the CPU, and a training, a screening and a diagnosis.

A layer on the device may be a few times as far from float64 as the same layer on the CPU is in the same dtype, or as
the result moves if the input does by a millionth. That says what a tolerance should be for every option and dtype,
without a table of tolerances.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import geonorm
from geonorm.lab import Recipe, run
from geonorm.ops import choose, using_backend
from geonorm.ops.precision import WITHOUT_FLOAT64
from helpers.layer_cases import GRAPH_BATCH, OPTION_CASE_NAMES, OPTION_CASES, LayerCase, randomize_parameters

FACTOR = 8.0  # of the error of the CPU, from another order of additions
SEARCHED = 1e-6  # of the standard deviation: how exact the search for a center is with a fixed number of sweeps
# What remains of that in a result that is not sensitive to it. Half precision rounds every output.
FLOOR = {torch.float64: 1e-5, torch.float32: 2e-5, torch.bfloat16: 2**-6, torch.float16: 2**-9}
DTYPES = tuple(FLOOR)
# Larger inputs than those of the harness, as networks have them, and what makes a search hard.
OPTIONS: list[dict[str, Any]] = [
    {"phi": 1.5},
    {"learn_phi": True},
    {"spread": "robust"},
    {"phi": 2.0, "guard": 3.0},
    {"phi": 1.0},
]
SHAPES = {"2d": (64, 16, 14, 14), "1d": (512, 24)}


class Outcome(NamedTuple):
    """One check: what it compared, by how much that differs, and by how much it may."""

    name: str
    error: float
    allowed: float

    @property
    def is_good(self) -> bool:
        """Whether the difference is small enough; NaN is not."""
        return self.error <= self.allowed

    @property
    def share(self) -> float:
        """The difference as a share of what is allowed."""
        return self.error / self.allowed if self.allowed else float(self.error > 0)


def backends(device: str) -> dict[str, str]:
    """The backends that can serve a device, and why others cannot."""
    found = {"torch": ""}
    try:
        with using_backend("triton"):
            found["triton"] = "" if choose.backend_for(device) is not None else "it does not serve this device"
    except RuntimeError as error:
        found["triton"] = str(error)
    return found


def layer_checks(device: str, backend: str, only: Sequence[str] = ()) -> Iterator[Outcome]:
    """Every layer of the harness with every set of options, in every dtype that the device has."""
    for (case, options), name in zip(OPTION_CASES, OPTION_CASE_NAMES, strict=True):
        if only and name not in only:
            continue
        for dtype in _dtypes(device):
            layer = randomize_parameters(case.make(**options)).to(dtype)
            with using_backend(backend):
                yield compared(f"{name}, {_word(dtype)}", case, layer, case.input(dtype), device)


def data_checks(device: str, backend: str) -> Iterator[Outcome]:
    """Layers on larger inputs, and on data that make the search for a center hard."""
    for kind, shape in SHAPES.items():
        build = geonorm.AugBatchNorm2d if kind == "2d" else geonorm.AugBatchNorm1d
        case = LayerCase(f"AugBatchNorm{kind}", build, shape)
        for options in OPTIONS:
            for data, x in hostile(shape).items():
                name = f"{case.name} {shape} {options}, {data}"
                with using_backend(backend):
                    yield compared(name, case, randomize_parameters(build(shape[1], **options)), x, device)


def hostile(shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Inputs in float32, by name."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    outlier, broken, flat = x.clone(), x.clone(), x.clone()
    outlier[3] *= 1e6
    broken[5, 2] = torch.nan
    flat[:, 1] = 0.7
    return {
        "normal": x,
        "after a ReLU": x.relu(),
        "ties": (4 * x).round() / 4,
        "an outlier": outlier,
        "NaN in a channel": broken,
        "a constant channel": flat,
        "an offset": x + 1000,
        "tiny": x * 1e-30,
        "huge": x * 1e15,  # squares of larger ones are not in the range of float32
    }


def compared(name: str, case: LayerCase, layer: nn.Module, x: Tensor, device: str) -> Outcome:
    """The worst of output, gradients, statistics and evaluation of a layer, over what is allowed for it."""
    truth = results_of(case, copy.deepcopy(layer).double(), x.double(), "cpu")
    near = results_of(case, copy.deepcopy(layer).double(), slightly_moved(x), "cpu")
    here, there = results_of(case, copy.deepcopy(layer), x, "cpu"), results_of(case, copy.deepcopy(layer), x, device)
    worst = Outcome(name, 0.0, FLOOR[x.dtype])
    for part, expected in truth.items():
        usual = max(error_of(here[part], expected), error_of(near[part], expected))
        allowed = FACTOR * usual + FLOOR[x.dtype]
        found = Outcome(f"{name}: {part}", error_of(there[part], expected), allowed)
        if not found.share <= worst.share:
            worst = found
    return worst


def slightly_moved(x: Tensor) -> Tensor:
    """The input in float64, every value moved by as much as the center on a device may be off.

    What the result changes by is the sensitivity of the case: for φ below 2, values next to the center carry much of
    the gradient, and few of its digits are determined by the data.
    """
    wide = x.double()
    off = wide - wide.nanmean([dim for dim in range(x.dim()) if dim != 1], keepdim=True)
    signs = torch.randint(2, x.shape, generator=torch.Generator().manual_seed(2)) * 2 - 1
    return wide + SEARCHED * signs * off


def results_of(case: LayerCase, layer: nn.Module, x: Tensor, device: str) -> dict[str, Tensor]:
    """Everything that a step of training and an evaluation give, on the CPU."""
    layer.to(device).train()
    batch = (GRAPH_BATCH[: len(x)].to(device), 5) if case.graph else ()
    x = x.detach().to(device).requires_grad_()
    y = layer(x, *batch)
    weights = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view(y.shape).to(device, y.dtype)
    (y * weights).sum().backward()
    found = {"output": y, "gradient of the input": x.grad}
    found |= {f"gradient of {name}": parameter.grad for name, parameter in layer.named_parameters()}
    found |= {name: buffer for name, buffer in layer.named_buffers() if buffer.is_floating_point()}
    found["evaluation"] = layer.eval()(x, *batch)
    assert all(value.device.type == torch.device(device).type for value in found.values())
    return {name: value.detach().cpu().double() for name, value in found.items()}


def error_of(found: Tensor, expected: Tensor) -> float:
    """The largest difference, over the largest value; infinite if other values are not finite."""
    finite = expected.isfinite()
    if not torch.equal(finite, found.isfinite()):
        return float("inf")
    if not finite.any():
        return 0.0
    found, expected = found[finite], expected[finite]
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-300))


def lab_checks(device: str) -> Iterator[Outcome]:
    """A training that is repeated bit for bit, agrees with the CPU's, and can be done in bf16."""
    recipe = Recipe(
        norms=("bn", "guardbn"),
        corruptions=("offset(share=0.1)",),
        evaluations=(
            "clean",
            "pgd(eps=0.1, steps=2, samples=50)",
            "clean(recalibrated=true)",
            "pruned(rule=gamma, share=0.1)",
        ),
        seeds=(0,),
        epochs=4,
    )
    if device in WITHOUT_FLOAT64:
        recipe = replace(recipe, evaluations=recipe.evaluations[:2])
    with tempfile.TemporaryDirectory() as folder:
        first, again, half, here = (
            _figures(replace(recipe, **fields), Path(folder) / f"{number}.sqlite")
            for number, fields in enumerate(
                ({"device": device}, {"device": device}, {"device": device, "precision": "bf16"}, {})
            )
        )
    yield Outcome("a training, repeated", float(first != again), 0.0)
    for name, found in (("a training", first), ("a training in bf16", half)):
        for norm, figures in found.items():
            # Of 359 test samples; rounding grows along a training, and some samples lie near the border of two classes.
            difference = abs(figures["clean"]["accuracy"] - here[norm]["clean"]["accuracy"])
            yield Outcome(f"{name} with {norm}: accuracy, against the CPU's", difference, 0.05)


def model_checks(device: str) -> Iterator[Outcome]:
    """``screen`` finds the same samples as on the CPU, ``diagnose`` the same faults."""
    x = torch.rand(96, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    x[17] *= 255
    x[40, 1] = 1.0
    batches = list(x.split(32))

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))

    there, here = make().to(device), make()
    same = geonorm.screen(there, batches).indices == geonorm.screen(here, batches).indices
    yield Outcome("screen: other samples than on the CPU", float(not same), 0.0)
    if device in WITHOUT_FLOAT64:
        return
    found = [{(one.layer, one.kind) for one in geonorm.diagnose(model, batches).findings} for model in (there, here)]
    yield Outcome("diagnose: other findings than on the CPU", float(found[0] != found[1]), 0.0)


def _figures(recipe: Recipe, path: Path) -> dict[str, Any]:
    return {one.choices["norm"]: one.figures for one in run(recipe, path).finished()}


def _dtypes(device: str) -> list[torch.dtype]:
    return [dtype for dtype in DTYPES if dtype != torch.float64 or device not in WITHOUT_FLOAT64]


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
