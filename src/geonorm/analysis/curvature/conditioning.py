"""Conditioning of the inputs of a linear or convolutional layer: the condition number of E[zzᵗ].

z is the vector that a row of the weight multiplies: the input of a Linear, a patch of a convolution, with a bias
(z, 1). E[zzᵗ] is the layer's block of the Gauss–Newton matrix for a squared loss right after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# More patches take time and change almost nothing: the matrices have a few hundred rows.
_MOST_VECTORS = 16384


class InputGram:
    """The sum of zzᵗ over batches, per group of a grouped convolution."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self._sum: Tensor | None = None
        self._count = 0

    @torch.no_grad()
    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A forward pre-hook."""
        vectors = _vectors(self.layer, inputs[0]) if inputs else None
        room = _MOST_VECTORS - self._count
        if vectors is None or room <= 0:
            return
        count = vectors.shape[2]
        keep = torch.linspace(0, count - 1, min(room, count), dtype=torch.float64).round().long()
        vectors = vectors[:, :, keep.to(vectors.device)].double()
        if getattr(self.layer, "bias", None) is not None:
            vectors = torch.cat([vectors, torch.ones_like(vectors[:, :1])], 1)
        product = vectors @ vectors.mT
        self._sum = product if self._sum is None else self._sum + product
        self._count += len(keep)

    def condition(self) -> float | None:
        """λ_max/λ_min, the worst of all groups; infinite if no input covers some direction, ``None`` if unknown."""
        if self._sum is None:
            return None
        if not bool(self._sum.isfinite().all()):
            return math.nan
        values = torch.linalg.eigvalsh(self._sum.cpu())
        low, high = values[:, 0], values[:, -1]
        seen = low > 10 * values.shape[1] * torch.finfo(torch.float64).eps * high
        return float(torch.where(seen, high / low, math.inf).max())


@contextmanager
def input_grams(layers: dict[str, nn.Module]) -> Iterator[dict[str, InputGram]]:
    """Gram matrices of the inputs of these layers, over all forward passes in the block."""
    grams = {name: InputGram(layer) for name, layer in layers.items()}
    handles = [layer.register_forward_pre_hook(grams[name]) for name, layer in layers.items()]
    try:
        yield grams
    finally:
        for handle in handles:
            handle.remove()


def _vectors(layer: Any, x: Tensor) -> Tensor | None:
    """The vectors that rows of the weight multiply, as (groups, size, number); ``None`` if unknown."""
    if isinstance(layer, nn.Linear):
        return x.reshape(1, -1, x.shape[-1]).mT
    plain = isinstance(layer, (nn.Conv1d, nn.Conv2d)) and layer.padding_mode == "zeros"
    if not plain or isinstance(layer.padding, str) or x.dim() != len(layer.kernel_size) + 2:
        return None
    flat = isinstance(layer, nn.Conv1d)
    x = x.unsqueeze(2) if flat else x

    def both(pair: Sequence[int], first: int) -> tuple[int, int]:
        return (first, pair[0]) if flat else (pair[0], pair[1])

    positions = math.prod(
        (size + 2 * pad - stretch * (kernel - 1) - 1) // stride + 1
        for size, pad, stretch, kernel, stride in zip(
            x.shape[3:] if flat else x.shape[2:],
            layer.padding,
            layer.dilation,
            layer.kernel_size,
            layer.stride,
            strict=True,
        )
    )
    samples = max(1, min(len(x), _MOST_VECTORS // max(positions, 1)))
    patches = nn.functional.unfold(
        x[:samples],
        both(layer.kernel_size, 1),
        both(layer.dilation, 1),
        both(layer.padding, 0),
        both(layer.stride, 1),
    )
    by_group: Tensor = patches.unflatten(1, (layer.groups, -1)).permute(1, 2, 0, 3).flatten(2)
    return by_group
