"""Every layer as a declared case: how it is made, what it eats, torch's twin, and the inputs it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import geonorm

GRAPH_BATCH = torch.tensor([0, 2, 2, 0, 2, 0, 3, 3, 0, 2, 3, 0])


@dataclass
class LayerCase:
    """A layer. ``make(**options)`` builds it; ``shape`` is an input; ``twin`` torch's layer that it equals at φ=2."""

    name: str
    make: Callable[..., nn.Module]
    shape: tuple[int, ...]
    twin: Callable[..., nn.Module] | None = None
    running: bool = False
    affine_name: str = "affine"
    pop: bool = False
    graph: bool = False
    wrong: list[tuple[tuple[int, ...], type[Exception]]] = field(default_factory=list)

    def input(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(self.shape, generator=generator, dtype=torch.float64) * 2 + 0.7).to(dtype)

    def call(self, layer: nn.Module, x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        out: torch.Tensor = layer(x, GRAPH_BATCH[: len(x)], 5, **kwargs) if self.graph else layer(x, **kwargs)
        return out


def _bound(cls: Any, *args: Any) -> Callable[..., nn.Module]:
    return lambda **options: cls(*args, **options)


BATCH_SHAPES = {1: (12, 3), 2: (4, 3, 3, 4), 3: (3, 3, 2, 3, 2)}
SPACE_SHAPES = {1: (3, 4, 9), 2: (2, 4, 3, 5), 3: (2, 4, 2, 3, 3)}


def _wrong_batch(n: int) -> list[tuple[tuple[int, ...], type[Exception]]]:
    shape = BATCH_SHAPES[n]
    single = (1, 3, *[1] * (len(shape) - 2))
    return [((5,), ValueError), ((*shape[:1], 7, *shape[2:]), RuntimeError), (single, ValueError)]


def _wrong_instance(n: int, error: type[Exception]) -> list[tuple[tuple[int, ...], type[Exception]]]:
    shape = SPACE_SHAPES[n]
    return [((5,), ValueError), ((*shape[:1], 7, *shape[2:]), error), ((*shape[:2], *[1] * n), ValueError)]


CASES = [
    *[
        LayerCase(
            f"AugBatchNorm{n}d",
            _bound(getattr(geonorm, f"AugBatchNorm{n}d"), 3),
            BATCH_SHAPES[n],
            _bound(getattr(nn, f"BatchNorm{n}d"), 3),
            running=True,
            wrong=_wrong_batch(n),
        )
        for n in (1, 2, 3)
    ],
    *[
        LayerCase(
            f"AugInstanceNorm{n}d",
            _bound(getattr(geonorm, f"AugInstanceNorm{n}d"), 4),
            SPACE_SHAPES[n],
            _bound(getattr(nn, f"InstanceNorm{n}d"), 4),
            wrong=_wrong_instance(n, ValueError),
        )
        for n in (1, 2, 3)
    ],
    LayerCase(
        "AugLayerNorm",
        _bound(geonorm.AugLayerNorm, (3, 4)),
        (5, 3, 4),
        _bound(nn.LayerNorm, (3, 4)),
        affine_name="elementwise_affine",
        wrong=[((5, 4, 3), RuntimeError), ((4,), RuntimeError)],
    ),
    LayerCase(
        "AugGroupNorm",
        _bound(geonorm.AugGroupNorm, 2, 6),
        (3, 6, 4),
        _bound(nn.GroupNorm, 2, 6),
        wrong=[((3, 5, 4), RuntimeError), ((6,), RuntimeError)],
    ),
    LayerCase(
        "AugGraphNorm",
        _bound(geonorm.AugGraphNorm, 3),
        (12, 3),
        graph=True,
        wrong=[((12, 4), ValueError), ((12, 3, 2), ValueError)],
    ),
    *[
        LayerCase(
            f"PopNorm{n}d",
            _bound(getattr(geonorm, f"PopNorm{n}d"), 3),
            BATCH_SHAPES[n],
            running=True,
            pop=True,
            wrong=_wrong_batch(n),
        )
        for n in (1, 2, 3)
    ],
    *[
        LayerCase(
            f"PopInstanceNorm{n}d",
            _bound(getattr(geonorm, f"PopInstanceNorm{n}d"), 4),
            SPACE_SHAPES[n],
            pop=True,
            wrong=_wrong_instance(n, RuntimeError),
        )
        for n in (1, 2, 3)
    ],
    LayerCase(
        "PopGroupNorm",
        _bound(geonorm.PopGroupNorm, 2, 6),
        (3, 6, 4),
        pop=True,
        wrong=[((3, 5, 4), RuntimeError), ((6,), RuntimeError)],
    ),
]
CASE_NAMES = [case.name for case in CASES]


def option_sets(case: LayerCase) -> list[dict[str, Any]]:
    """Option sets that every layer must work with."""
    sets: list[dict[str, Any]] = [
        {},
        {"phi": 2.0},
        {"phi": 1.0},
        {"phi": float("inf"), "spread": "max_abs"},
        {"learn_phi": True, "phi": 1.6},
        {"spread": "mean_abs"},
        {"spread": 3.0},
        {"spread": "robust", "phi": 1.7},
        {"grad_floor": 0.05, "phi": 1.3},
        {"sweeps": 4},
    ]
    if not case.graph:
        sets += [{case.affine_name: False}, {case.affine_name: True, "bias": False}, {case.affine_name: True}]
    if case.pop:
        sets += [
            {"center": False},
            {"scale": False},
            {"shift": "mul"},
            {"order": "scale_first"},
            {"spread": "max_abs", "order": "scale_first"},
            {"kappa": 1.0, "spread": "max_abs"},
        ]
    else:
        sets += [{"learn_alpha": True, "alpha": 0.8}, {"alpha": 0.5, "learn_alpha": False}]
    if case.running:
        sets += [{"momentum": None}, {"momentum": 0.0}, {"momentum": 1.0}, {"track_running_stats": False}]
        sets += [{"guard": 3.0}, {"guard": 2.0, "phi": 2.0}, {"guard": 3.0, "spread": "robust"}]
    if "Instance" in case.name and not case.pop:
        sets += [{"track_running_stats": True, "affine": True}]
    return sets


OPTION_CASES = [(case, options) for case in CASES for options in option_sets(case)]
OPTION_CASE_NAMES = [
    f"{case.name}-{'-'.join(f'{k}={v}' for k, v in options.items()) or 'default'}" for case, options in OPTION_CASES
]


def randomize_parameters(layer: nn.Module, seed: int = 0) -> nn.Module:
    """Parameters away from their start, so that nothing hides behind γ=1, β=0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
            )
    return layer
