"""What one look at a running network shows: at its input, each norm, activation and residual sum, and its output."""

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
    """How one batch lies at a batch norm: per channel, the mean over its samples, and their variance."""

    mean: Tensor
    var: Tensor
    samples: int


@dataclass
class NormReading:
    """What one norm did with the batches.

    Attributes:
        name: its name in the model, ``"(model)"`` if it is the model.
        norm: the layer.
        axes: over which values it measures, see ``axes.axes_of``.
        calls: how often it ran.
        sizes: of each call, how many values went into one sphere.
        moments: of its input, by channel; for batch norms only.
        variances: of the rows (spheres), as many as are kept.
        radii: rms of the normalized rows before γ and β: 1 on the sphere.
        along: |mean| / rms of the normalized rows: the cosine of their angle to e.
        energy: of a norm over features, how much of Σ(x − mean)² each feature has, summed over rows; and the rows.
        after: name of the norm whose output is its input, unchanged; empty if it is another's.
        places: of a batch norm, what the first batch showed at each call.
        batches: of a batch norm, how each batch lay.
        channels: dimensions of its input that count channels, by whoever made them.
        dropout: dropout that its input has passed since the norm before, by name.
        dimensions: of its input.
        sample: some values of its input, from the first batch.
        effective: weights of the operation before it and the norm as one; ``None`` if there is no such pair.
        bad: where NaN or Inf was met: ``""``, ``"input"`` or ``"output"``.
        unread: why its input could not be made sense of; empty if it could.
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
        """How many values go into one sphere, typically: the last batch of an epoch may be short."""
        return sorted(self.sizes)[len(self.sizes) // 2] if self.sizes else 0


@dataclass
class ReluReading:
    """Which channels of a ReLU's output were ever above 0."""

    name: str
    alive: Tensor
    samples: int


@dataclass
class BoundedReading:
    """How steep a sigmoid or tanh was where it was used.

    Attributes:
        name: of the layer in front of it, or of the one that calls it.
        function: its name.
        slope: mean of its derivative over the largest there is, summed over calls.
        flat: share of values whose derivative is below a twentieth of that, summed over calls.
        calls: how often it ran.
        last: whether its output is the model's.
    """

    name: str
    function: str
    slope: float = 0.0
    flat: float = 0.0
    calls: int = 0
    last: bool = False


@dataclass
class SumReading:
    """A sum of two tensors of one shape, as at the end of a residual branch; their mean squares, summed over calls."""

    name: str
    makers: tuple[str, str]
    squares: tuple[float, float]
    calls: int


@dataclass
class InputReading:
    """The floating-point input of the model.

    Attributes:
        mean, std, largest: of all values; the largest by magnitude.
        scales: standard deviation of each feature of a table, ``(N, features)``; else ``None``.
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
    """What one pass over the batches showed.

    Attributes:
        norms: by name, also those that never ran.
        relus, bounded: by the name of the layer in front of them; ``bounded`` are sigmoids and tanh.
        sums: residual sums, by the module that they are in and their turn there.
        samples: how many samples there were, counted along dimension 0 of what reaches the first norm or operation.
        batches: how many batches.
        graph: norms with their neighbours, from tracing; without operations whose outputs are not the norm's channels.
        input: the input of the model, if it is a floating-point tensor or numbers of tokens.
        answers: what the model gave, per batch; see ``behaviour.answer_of``.
        last: modules whose output is the model's.
        failure: what the model raised, and where; empty if it ran.
        bad_data: whether NaN or Inf was in the batches themselves.
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
    """The input of a model, from one batch."""
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
