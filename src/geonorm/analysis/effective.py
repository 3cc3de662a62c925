"""An operation and the batch norm after it as one operation with W′ and b′: the same function on this batch."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..introspect.axes import channel_affine
from ..nn._pop import PopLayer

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class Effective:
    """Effective weights W′ = γρW and b′ of one pair on one batch, ρ = 1/√(s² + eps).

    Attributes:
        weight: W′.
        bias: b′.
        sizes: ‖W′‖ by row.
        own_sizes: ‖W‖ by row.
        ellipsoid: |W′ΣW′ᵗ − γ²s²/(s² + eps)| / γ², the largest of the rows: 0 on the ellipsoid.
        equality: ‖W′X + b′ − norm(WX)‖ / ‖norm(WX)‖.
        kernel: WΣWᵗ / (‖W‖² · tr Σ/n) by row: 1 on average for random rows, 0 in the kernel of Σ; 1 where Σ is 0, since
            no direction is special then.
    """

    weight: Tensor
    bias: Tensor
    sizes: Tensor
    own_sizes: Tensor
    ellipsoid: float
    equality: float
    kernel: Tensor


def effective_weights(operation: Any, norm: nn.Module, x: Tensor, rows: Tensor, normalized: Tensor) -> Effective | None:
    """From the input of the operation, its output as rows of channels, and those rows normalized without γ and β."""
    affine = channel_affine(norm)
    if affine is None or isinstance(norm, PopLayer) or not isinstance(operation, (nn.Linear, *_CONVOLUTIONS)):
        return None
    gamma, beta = affine
    weight = operation.weight.detach().double()
    sigma = rows.std(1, correction=0)
    rho = normalized.std(1, correction=0) / sigma.clamp_min(1e-300)
    shift = normalized.mean(1) - rho * rows.mean(1)
    scale = gamma * rho
    bias = beta + gamma * shift
    if operation.bias is not None:
        bias = bias + scale * operation.bias.detach().double()
    effective = weight * scale.view(-1, *[1] * (weight.dim() - 1))
    # In the precision of the network, like the outputs that it is compared with.
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    if isinstance(operation, nn.Linear):
        given = nn.functional.linear(x, effective.to(x.dtype), bias.to(x.dtype))
    else:
        given = operation._conv_forward(x, effective.to(x.dtype), bias.to(x.dtype))
    given = given.movedim(1, 0).reshape(len(gamma), -1).double()
    truth = normalized * gamma[:, None] + beta[:, None]
    size = weight.flatten(1).norm(dim=1)
    goal = gamma.square() * normalized.var(1, correction=0)
    off = (given.var(1, correction=0) - goal).abs() / gamma.square().clamp_min(1e-300)
    spread = _mean_variances(operation, x)
    return Effective(
        effective.cpu(),
        bias.cpu(),
        effective.flatten(1).norm(dim=1).cpu(),
        size.cpu(),
        float(off[gamma != 0].max()) if bool((gamma != 0).any()) else 0.0,
        float((given - truth).norm() / truth.norm().clamp_min(1e-300)),
        torch.where(spread > 0, sigma.square() / (size.square() * spread).clamp_min(1e-300), 1.0).cpu(),
    )


def _mean_variances(operation: Any, x: Tensor) -> Tensor:
    """tr Σ / n by row: the variance of the inputs of a row, averaged over its weights.

    A row of a convolution sees patches, padding included, and only the channels of its group.
    """
    x = x.double()
    if isinstance(operation, nn.Linear):
        return x.reshape(-1, x.shape[-1]).var(0, correction=0).mean().expand(operation.out_features)
    mode = "constant" if operation.padding_mode == "zeros" else operation.padding_mode
    padded = nn.functional.pad(x, operation._reversed_padding_repeated_twice, mode=mode)
    total = torch.zeros(operation.groups, dtype=torch.float64, device=x.device)
    for place in itertools.product(*[range(size) for size in operation.kernel_size]):
        windows: list[slice] = []
        for at, size, stride, dilation, length in zip(
            place, operation.kernel_size, operation.stride, operation.dilation, padded.shape[2:], strict=True
        ):
            windows.append(slice(at * dilation, length - (size - 1 - at) * dilation, stride))
        seen = padded[(slice(None), slice(None), *windows)].transpose(0, 1).flatten(1)
        total += seen.var(1, correction=0).view(operation.groups, -1).mean(1)
    by_group: Tensor = total / math.prod(operation.kernel_size)
    return by_group.repeat_interleave(operation.out_channels // operation.groups)
