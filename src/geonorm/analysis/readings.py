"""Measurements of one pass: at the network's input, each norm, activation and residual sum, and its output."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from ..introspect.graph import Graph
from ..introspect.moments import Moments
from .effective import Effective


@dataclass
class Call:
    """The mean and variance of each channel, at the n-th place in the model where a batch norm is called."""

    mean: Tensor
    var: Tensor


@dataclass
class BatchMeans:
    """One batch at a batch norm: per channel, the mean over its samples and their variance."""

    mean: Tensor
    var: Tensor
    samples: int


@dataclass
class NormReading:
    """Measurements of one norm.

    Attributes:
        name: its name in the model, ``"(model)"`` if it is the model.
        norm: the layer.
        axes: which values it normalizes together, see ``axes.axes_of``.
        calls: how often it ran.
        sizes: number of values per sphere, for each call.
        moments: of its input, by channel; for batch norms only.
        variances: of the rows (spheres) that are kept.
        radii: rms of the normalized rows before γ and β: 1 on the sphere.
        along: |mean| / rms of the normalized rows: the cosine of their angle to e.
        energy: of a norm over features, the share of Σ(x − mean)² in each feature, summed over rows; and the row count.
        after: name of the norm whose output is its input, unchanged; empty if there is none.
        places: of a batch norm, the moments of the first batch at each call.
        batches: of a batch norm, mean and variance of each batch.
        channels: which dimension of its input has the channels, according to the layer that produced it.
        dropout: dropout between the previous norm and this one, by name.
        dimensions: number of dimensions of its input.
        sample: some values of its input, from the first batch.
        effective: weights of the operation before it and the norm as one; ``None`` if there is no such pair.
        bad: where NaN or Inf was found: ``""``, ``"input"`` or ``"output"``.
        unread: why its input could not be interpreted; empty if it could.
    """

    name: str
    norm: nn.Module
    axes: str | None
    calls: int = 0
    sizes: list[int] = field(default_factory=list)
    moments: Moments = field(default_factory=Moments)
    variances: list[Tensor] = field(default_factory=list)
    radii: list[Tensor] = field(default_factory=list)
    along: list[Tensor] = field(default_factory=list)
    energy: tuple[Tensor, int] | None = None
    after: str = ""
    places: list[Call] = field(default_factory=list)
    batches: list[BatchMeans] = field(default_factory=list)
    channels: set[int] = field(default_factory=set)
    dropout: dict[str, float] = field(default_factory=dict)
    dimensions: int = 0
    sample: Tensor | None = None
    effective: Effective | None = None
    bad: str = ""
    unread: str = ""

    @property
    def values(self) -> int:
        """The median number of values per sphere: the last batch of an epoch may be short."""
        return sorted(self.sizes)[len(self.sizes) // 2] if self.sizes else 0


@dataclass
class ReluReading:
    """Which channels of a ReLU's output were ever above 0."""

    name: str
    alive: Tensor
    samples: int


@dataclass
class BoundedReading:
    """The slope of a sigmoid or tanh on its inputs.

    Attributes:
        name: of the layer before it, or of the module that calls it.
        function: its name.
        slope: mean of its derivative over the largest possible, summed over calls.
        flat: share of values whose derivative is below a twentieth of the largest, summed over calls.
        calls: how often it ran.
        last: whether its output is the model's output.
    """

    name: str
    function: str
    slope: float = 0.0
    flat: float = 0.0
    calls: int = 0
    last: bool = False


@dataclass
class SumReading:
    """A sum of two tensors of one shape, as at the end of a residual branch; mean squares, summed over calls."""

    name: str
    makers: tuple[str, str]
    squares: tuple[float, float]
    calls: int


@dataclass
class InputReading:
    """The floating-point input of the model.

    Attributes:
        mean, std, largest: of all values; the largest by magnitude.
        scales: standard deviation of each feature of tabular data ``(N, features)``; else ``None``.
        padded: share of positions that are padding: zeros, or one number, at the end of sequences of unequal length.
        shape: of a batch.
    """

    mean: float = 0.0
    std: float = 0.0
    largest: float = 0.0
    scales: Tensor | None = None
    padded: float = 0.0
    shape: tuple[int, ...] = ()


@dataclass
class Readings:
    """Measurements of one pass over the batches.

    Attributes:
        norms: by name, including those that never ran.
        relus, bounded: by the name of the layer before them; ``bounded`` are sigmoids and tanh.
        sums: residual sums, by the module that they are in and their number there.
        samples: number of samples, counted along dimension 0 of the first tensor that enters a module.
        batches: number of batches.
        graph: norms with their neighbours, from tracing; without operations whose outputs are not the norm's channels.
        input: the input of the model, if it is a floating-point tensor or token numbers.
        answers: the outputs of the model, per batch; see ``behaviour.answer_of``.
        last: modules whose output is the model's output.
        failure: the error that the model raised, and where; empty if it ran.
        bad_data: whether the batches contain NaN or Inf.
    """

    norms: dict[str, NormReading]
    graph: Graph
    relus: dict[str, ReluReading] = field(default_factory=dict)
    bounded: dict[str, BoundedReading] = field(default_factory=dict)
    sums: dict[str, SumReading] = field(default_factory=dict)
    samples: int = 0
    batches: int = 0
    input: InputReading = field(default_factory=InputReading)
    answers: list[Tensor | None] = field(default_factory=list)
    last: set[str] = field(default_factory=set)
    failure: str = ""
    bad_data: bool = False


def read_input(x: Tensor) -> InputReading:
    """Measurements of one batch as the input of a model."""
    if not x.numel() or not x.dim():
        return InputReading()
    padded = _padded(x)
    if not x.is_floating_point():
        return InputReading(padded=padded, shape=tuple(x.shape))
    wide = x.double()
    scales = wide.std(0, correction=0).cpu() if x.dim() == 2 and len(x) >= 8 else None
    std = float(wide.std(correction=0))
    return InputReading(float(wide.mean()), std, float(wide.abs().max()), scales, padded, tuple(x.shape))


def _padded(x: Tensor) -> float:
    """The share of padding among the positions of sequences ``(N, length)`` of tokens or ``(N, length, features)``."""
    if x.dim() not in (2, 3) or (x.dim() == 2 and x.is_floating_point()) or len(x) < 4:
        return 0.0
    best = 0.0
    for rows in (x,) if x.dim() == 2 else (x, x.transpose(1, 2)):
        last = rows[:, -1:]
        common = last.flatten(1).mode(0).values.reshape(1, 1, *last.shape[2:])
        if rows.dim() == 3 and bool((common != 0).any()):
            continue
        same = (rows == common).flatten(2).all(2) if rows.dim() == 3 else rows == common
        tail = same.flip(1).long().cumprod(1).sum(1)
        if len(tail.unique()) > 2 and rows.shape[1] > 2:  # of unequal length
            best = max(best, float(tail.double().mean()) / rows.shape[1])
    return best
