"""``batch_width``: how many directions of an operation's input a batch covers, of all that exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..html.result import Result, figure
from ..introspect.graph import is_operation, trace
from ..introspect.observe import (
    Forward,
    call_model,
    check_readable,
    filled_batches,
    measure_each_batch,
    state_restored,
    uncompiled,
)
from ..introspect.progress import progress
from ..introspect.shared_channels import TRANSPOSED, could_share_channels, dimensions_of_channels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SKETCH = 512  # the largest matrix whose spectrum is computed exactly
_LINES = 1.25  # patches used, in multiples of the width: enough to cover every direction


@dataclass
class Width:
    """One operation, and the directions of its input that a batch of typical size covers.

    Attributes:
        name: its name in the model.
        norm: name of the norm after it, or ``None``.
        width: n, the number of weights in a row: inputs of a Linear, a patch of a convolution.
        samples: samples in the batch.
        values: B, columns of X: samples, times positions for a convolution.
        rank: rank of Σ_X, the covariance of the columns: at most min(n, B − 1).
        kernel: n − rank: the directions of W that this batch does not constrain.
        effective: (tr Σ)²/tr Σ², the effective number of directions.
        outside: rank/n, the share of a random row's energy that lies outside the kernel.
        verdict: what that means; empty if nothing is wrong.
    """

    name: str
    norm: str | None
    width: int
    samples: int
    values: int
    rank: int
    kernel: int
    effective: float
    outside: float
    verdict: str


@dataclass(repr=False)
class BatchWidth(Result):
    """What ``batch_width`` found.

    Attributes:
        layers: the operations that ran.
        skipped: names of operations that were skipped, with the reason.
    """

    layers: list[Width]
    skipped: dict[str, str]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("operation", "norm", "n", "samples", "values", "rank", "kernel", "effective rank", "rank/n", "verdict")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each operation."""
        return [
            (w.name, w.norm, w.width, w.samples, w.values, w.rank, w.kernel, w.effective, w.outside, w.verdict)
            for w in self.layers
        ]

    def plot(self) -> Figure:
        """Width, rank and effective rank of each operation."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.layers), 4))
        axes = drawn.subplots()
        places = range(len(self.layers))
        for label, marker, values in (
            ("width n", "|", [w.width for w in self.layers]),
            ("values − 1", "x", [w.values - 1 for w in self.layers]),
            ("rank of Σ", "o", [w.rank for w in self.layers]),
            ("effective rank", ".", [w.effective for w in self.layers]),
        ):
            axes.plot(values, places, marker, label=label)
        axes.set_yticks(list(places), [w.name for w in self.layers])
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.legend(loc="best")
        return drawn


def batch_width(model: nn.Module, batches: Any, forward: Forward | None = None) -> BatchWidth:
    """Rank and kernel of the covariance of each operation's input, against the size of the batch.

        rank Σ ≤ min(n, B − 1),  dim ker Σ ≥ n − B + 1        n: width, B: values in the batch

    Centering lowers the rank by one. A weight row in the kernel would give a constant, but a random row is almost never
    there: on average a share rank/n of its energy is outside, and a norm after the operation sees only that part,
    however large the rest. So a kernel does not mean that channels collapse: it means that this batch does not
    constrain some directions of W. With two values a normalized channel is ±1 and passes no gradient. A convolution
    has as many values as samples times positions.

    Args:
        model: any model, in any mode; it is not changed.
        batches: a batch or an iterable of batches; the first of the typical size is used, so that a short last batch is
            not. A batch is a tensor, a tuple whose first entry is the input, or a
            dict of the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import batch_width
        >>> model = torch.nn.Sequential(torch.nn.Linear(20, 6), torch.nn.BatchNorm1d(6))
        >>> (layer,) = batch_width(model, torch.randn(8, 20)).layers
        >>> layer.width, layer.values, layer.rank, layer.kernel
        (20, 8, 7, 13)
    """
    check_readable(model, "measure the batch widths of")
    modules = dict(model.named_modules())
    norm_after = {
        near.before: name
        for name, near in trace(model).norms.items()
        if near.before and could_share_channels(modules[near.before], modules[name])
    }
    found: dict[str, dict[torch.Size, Width]] = {}
    sizes: dict[str, list[torch.Size]] = {}
    skipped: dict[str, str] = {}

    def hook_of(name: str) -> Any:
        def hook(operation: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            x = inputs[0] if inputs else None
            if not isinstance(x, Tensor) or not x.numel() or not x.is_floating_point():
                return
            if not bool(x.isfinite().all()):
                skipped[name] = "NaN or Inf in its input"
                return
            if not _output_fits_settings(operation, x, output):
                skipped[name] = "its forward pads the input itself, so the patches are unknown"
                return
            sizes.setdefault(name, []).append(x.shape)
            own = found.setdefault(name, {})
            if x.shape not in own:  # a spectrum costs more than a forward: once for each shape
                norm = norm_after.get(name) if x.dim() == dimensions_of_channels(operation) else None
                own[x.shape] = _width(name, norm, operation, x.detach())

        return hook

    with state_restored(model), torch.no_grad(), uncompiled():
        measure_each_batch(model)
        for name, module in model.named_modules():
            if isinstance(module, TRANSPOSED):
                skipped[name] = "a transposed convolution: rows multiply different inputs at different positions"
            elif is_operation(module):
                module.register_forward_hook(hook_of(name))
        for batch in progress(filled_batches(batches), "batch_width"):
            (forward or call_model)(model, batch)
    order = [name for name, module in model.named_modules() if is_operation(module)]
    skipped |= dict.fromkeys((n for n in order if n not in found and n not in skipped), "it never ran")
    typical = {name: sorted(seen, key=torch.Size.numel)[len(seen) // 2] for name, seen in sizes.items()}
    return BatchWidth([found[name][typical[name]] for name in order if name in found], skipped)


def _width(name: str, norm: str | None, operation: Any, x: Tensor) -> Width:
    columns, values, samples = _columns(operation, x)
    width = columns.shape[1]
    columns = columns.double()
    # Each value was rounded to its dtype before the mean was subtracted.
    rounding = torch.finfo(x.dtype).eps * float(columns.square().mean().sqrt())
    columns = columns - columns.mean(0)
    is_sketched = min(columns.shape) > _SKETCH
    if is_sketched:
        # Random combinations of the columns have the same rank, up to their number.
        generator = torch.Generator().manual_seed(0)
        mix = torch.randn(width, _SKETCH, generator=generator, dtype=torch.float64).to(columns.device)
        columns = columns @ mix / width**0.5
    small = columns.T @ columns if columns.shape[0] > columns.shape[1] else columns @ columns.T
    spectrum = torch.linalg.eigvalsh(small).clamp_min(0)
    # Noise of this size has singular values up to size·(√rows + √columns); products are rounded in float64.
    noise = (2 * rounding * sum(length**0.5 for length in columns.shape)) ** 2
    noise += torch.finfo(torch.float64).eps * max(small.shape) * 4 * float(spectrum.max())
    rank = int((spectrum > noise).sum())
    total, squares = float(spectrum.sum()), float(spectrum.square().sum())
    if is_sketched:  # E tr S = tr Σ and E tr S² = ((k + 1) tr Σ² + (tr Σ)²)/k for k Gaussian combinations
        total, squares = total * width / _SKETCH, squares * (width / _SKETCH) ** 2
        squares = (_SKETCH * squares - total**2) / (_SKETCH + 1)
    effective = total**2 / squares if squares > 0 else 0.0
    if rank >= _SKETCH and min(width, values) > _SKETCH:
        rank = min(width, values - 1)  # the sketch shows no more: assume the highest
    kernel = width - rank
    return Width(
        name, norm, width, samples, values, rank, kernel, effective, rank / width, _verdict(norm, width, values, rank)
    )


def _output_fits_settings(operation: Any, x: Tensor, output: Any) -> bool:
    """Whether the output has the size that the settings imply: a subclass may pad its input itself."""
    if isinstance(operation, nn.Linear) or not isinstance(output, Tensor):
        return True
    rank = len(operation.kernel_size)
    padding = list(reversed(operation._reversed_padding_repeated_twice))  # (high, low) of each dimension
    settings = zip(operation.kernel_size, operation.stride, operation.dilation, strict=True)
    wanted = [
        (x.shape[d - rank] + sum(padding[2 * d : 2 * d + 2]) - dilation * (size - 1) - 1) // stride + 1
        for d, (size, stride, dilation) in enumerate(settings)
    ]
    return list(output.shape[-rank:]) == wanted


def _columns(operation: Any, x: Tensor) -> tuple[Tensor, int, int]:
    """The input vector of each output (for a convolution, a patch), one per row; their number; that of the samples."""
    if isinstance(operation, nn.Linear):
        lines = x.reshape(-1, x.shape[-1])
        return lines, len(lines), len(x) if x.dim() > 1 else 1
    rank = len(operation.kernel_size)
    x = x.unsqueeze(0) if x.dim() == rank + 1 else x
    padding = operation._reversed_padding_repeated_twice
    mode = "constant" if operation.padding_mode == "zeros" else operation.padding_mode
    samples = len(x)
    x = nn.functional.pad(x, padding, mode=mode)[:, : x.shape[1] // operation.groups]  # the first group represents all
    for d, (size, stride, dilation) in enumerate(
        zip(operation.kernel_size, operation.stride, operation.dilation, strict=True)
    ):
        x = x.unfold(2 + d, dilation * (size - 1) + 1, stride)[..., ::dilation]
    x = x.movedim(1, 1 + rank)  # (N, *positions, C, *window), a view that is never materialized
    places = x.shape[: 1 + rank]
    width = x.shape[1 + rank :].numel()
    number = places.numel()
    most = max(int(_LINES * width), 2 * _SKETCH)
    chosen = torch.linspace(0, number - 1, min(number, most), device=x.device, dtype=torch.float64).long()
    where = []
    for length in reversed(places):
        where.append(chosen % length)
        chosen = chosen // length
    return x[tuple(reversed(where))].reshape(-1, width), number, samples


def _verdict(norm: str | None, width: int, values: int, rank: int) -> str:
    if norm is not None and values == 1:
        return "one value: no statistics"
    if norm is not None and values == 2:
        return "two values: a normalized channel is ±1 and passes no gradient"
    if values <= width:
        return f"batch below width: at least {width - values + 1} directions of W are unconstrained"
    if rank < width:
        return f"the data do not constrain {width - rank} directions of W"
    return ""
