"""``sphere``: the sphere on which each norm puts its values, and each pair of operation and norm as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..html.result import Result, figure
from ..introspect.axes import UNITS, channel_affine
from ..introspect.layouts import is_frozen
from ..introspect.observe import Forward, check_readable
from .readings import NormReading, Readings
from .watch import read

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class SphereLayer:
    """The spheres of one norm.

    Attributes:
        name: its name in the model.
        kind: its class.
        unit: what has its own sphere: a channel, a sample, ...
        dimension: n, the number of values on one sphere, in the typical batch.
        radius: ‖ŷ‖/√n of the normalized values before γ and β, on average: 1 without eps.
        off: the largest |⟨ŷ, e⟩| / (√n ‖ŷ‖): 0 when the sphere is orthogonal to e.
        energy: share of the output's energy in direction e, β²/(γ²r² + β²), averaged over channels; batch norms only.
        eps: eps/(σ² + eps), the share of eps in the divisor: the largest of all spheres.
        gamma, beta: by channel: radius √n·|γ|·r and center β·e of the output; batch norms only.
        sigma: spread of the input by channel; batch norms only.
        effective: ‖W′‖ by channel of the operation before it and the norm as one.
        ellipsoid: residual of W′ΣW′ᵗ = γ²σ²/(σ² + eps), relative to γ².
        equality: residual of W′X + b′ = norm(WX).
        kernel: WΣWᵗ/(‖W‖²·tr Σ/n) by channel: 0 in the kernel of Σ, 1 on average for random rows.
        collapsed: channels whose output is constant, with the cause.
    """

    name: str
    kind: str
    unit: str
    dimension: int
    radius: float
    off: float
    energy: float | None
    eps: float
    gamma: Tensor | None
    beta: Tensor | None
    sigma: Tensor | None
    effective: Tensor | None
    ellipsoid: float | None
    equality: float | None
    kernel: Tensor | None
    collapsed: dict[int, str]


@dataclass(repr=False)
class Sphere(Result):
    """What ``sphere`` found.

    Attributes:
        layers: the norms that were measured.
        skipped: names of norms that were not measured, with the reason.
    """

    layers: list[SphereLayer]
    skipped: dict[str, str]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("norm", "kind", "per", "n", "radius/√n", "⟨ŷ,e⟩", "energy in e", "eps", "ellipsoid", "collapsed")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each norm."""
        return [
            (s.name, s.kind, s.unit, s.dimension, s.radius, s.off, s.energy, s.eps, s.ellipsoid, len(s.collapsed))
            for s in self.layers
        ]

    def plot(self) -> Figure:
        """The output of each channel: its center β and radius |γ|, by layer."""
        drawn = figure(7.0, 4.0)
        axes = drawn.subplots()
        for layer in self.layers:
            if layer.gamma is not None and layer.beta is not None:
                axes.plot(layer.beta.tolist(), layer.gamma.abs().tolist(), ".", label=layer.name)
        axes.set_xlabel("β, the center")
        axes.set_ylabel("|γ|, the radius")
        if 0 < len(self.layers) <= 10:
            axes.legend(fontsize="small")
        return drawn


def sphere(model: nn.Module, batches: Any, forward: Forward | None = None) -> Sphere:
    """The spheres on which a network's norms put its activations.

        ŷ = (x − c)/√(s² + eps):  ‖ŷ‖ = √n·s/√(s² + eps),  ⟨ŷ, e⟩ = 0 when c is the mean
        norm(WX) = W′X + b′:  W′ = γW/√(WΣWᵗ + eps),  W′ΣW′ᵗ = γ²·WΣWᵗ/(WΣWᵗ + eps)        per channel of a batch norm

    Norms use batch statistics, as in training; everything else is in evaluation. A channel is collapsed when its output
    is constant: γ is almost 0, or σ² is below eps because the input is constant, the weights are tiny, or they lie
    near the kernel of Σ. Norms that are frozen or whose axes are unknown are skipped.

    Args:
        model: any model, in any mode; it is not changed.
        batches: a batch or an iterable of batches. A batch is a tensor, a tuple whose first entry is the input, or a
            dict of the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import sphere
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
        >>> (layer,) = sphere(model, torch.randn(16, 4)).layers
        >>> layer.unit, layer.dimension, round(layer.radius, 2), layer.off < 1e-9
        ('channel', 16, 1.0, True)
    """
    check_readable(model, "measure the spheres of")
    return spheres_in(read(model, batches, forward))


def spheres_in(readings: Readings) -> Sphere:
    """The spheres from measurements that were already made."""
    result = Sphere([], {})
    for reading in readings.norms.values():
        reason = _why_not(reading)
        if reason:
            result.skipped[reading.name] = reason
        else:
            result.layers.append(_layer(reading))
    return result


def _why_not(reading: NormReading) -> str:
    if reading.axes is None:
        return "its axes are unknown"
    if not reading.calls:
        return "it never ran"
    if reading.bad:
        return f"NaN or Inf in its {reading.bad}"
    if reading.unread:
        return f"its input could not be read: {reading.unread}"
    if reading.values == 1:
        return "one value per sphere: there is nothing to normalize"
    if reading.radii:
        return ""
    return "it is frozen: it does not use batch statistics" if is_frozen(reading.norm) else "the model failed in it"


def _layer(reading: NormReading) -> SphereLayer:
    norm: Any = reading.norm
    radii, along, variances = (torch.cat(part) for part in (reading.radii, reading.along, reading.variances))
    eps = float(norm.eps) if norm.eps is not None else float(torch.finfo(torch.float32).eps)
    batch_norm = reading.axes == "batch"
    affine = channel_affine(norm) if batch_norm else None
    gamma, beta = (None, None) if affine is None else (affine[0].cpu(), affine[1].cpu())
    energy = None
    if gamma is not None and beta is not None:
        size = gamma.square() * radii[: len(gamma)].square() + beta.square()
        energy = float((beta.square() / size.clamp_min(1e-300)).mean())
    effective = reading.effective
    return SphereLayer(
        name=reading.name,
        kind=type(norm).__name__,
        unit=UNITS[reading.axes or ""],
        dimension=reading.values,
        radius=float(radii.mean()),
        off=float(along.max()),
        energy=energy,
        eps=float((eps / (variances + eps).clamp_min(1e-300)).max()),
        gamma=gamma,
        beta=beta,
        sigma=reading.moments.batch_var().sqrt() if batch_norm else None,
        effective=None if effective is None else effective.sizes,
        ellipsoid=None if effective is None else effective.ellipsoid,
        equality=None if effective is None else effective.equality,
        kernel=None if effective is None else effective.kernel,
        collapsed=collapsed_channels(reading) if batch_norm else {},
    )


def tiny_gamma(size: Tensor) -> Tensor:
    """Where |γ| is almost 0: compared with the largest, or with 0.1 if all are small.

    A layer whose γ are all 0 was most likely initialized so (the last norm of a residual block): it has not collapsed.
    """
    if not len(size) or float(size.max()) == 0:
        return torch.zeros_like(size, dtype=torch.bool)
    return size <= 1e-3 * max(float(size.max()), 0.1)


def collapsed_channels(reading: NormReading) -> dict[int, str]:
    """Channels of a batch norm whose output is constant, with the cause."""
    norm: Any = reading.norm
    causes: dict[int, str] = {}
    affine = channel_affine(norm)
    if affine is not None:
        small = tiny_gamma(affine[0].abs().cpu())
        causes |= dict.fromkeys(small.nonzero().flatten().tolist(), "γ is almost 0")
    variance = reading.moments.batch_var()
    for channel in (variance < norm.eps).nonzero().flatten().tolist():
        causes[channel] = _why_narrow(reading, channel)
    return dict(sorted(causes.items()))


def _why_narrow(reading: NormReading, channel: int) -> str:
    effective = reading.effective
    if effective is None or not bool(effective.own_sizes[channel] > 0):
        return "the input is constant" if effective is None else "the weights are 0"
    if float(effective.kernel[channel]) < 1e-4:
        return "the weights are near the kernel of Σ: the input does not vary along them"
    usual = float(effective.own_sizes.median())
    if float(effective.own_sizes[channel]) < 1e-2 * max(usual, 1e-2):
        return "the weights are tiny"
    return "the input of the operation before it hardly varies"
