"""What happens to the signal: saturated activations, one feature that dominates the others."""

from __future__ import annotations

from collections.abc import Iterator

from ..behaviour import percent
from .finding import Finding
from .observations import Observations

# For a standard normal input, the mean slope of tanh is 61 %, and that of sigmoid 83 %, of its largest slope.
FLAT_SHARE, LITTLE_SLOPE = 0.6, 0.2
MOST_ENERGY = 0.8


def saturated(observed: Observations) -> Iterator[Finding]:
    """Sigmoids and tanh inside the network that are flat for most values."""
    if observed.synthetic:
        return
    for reading in observed.readings.bounded.values():
        if not reading.calls or reading.last:  # at the output, saturation means confidence
            continue
        flat, slope = reading.flat / reading.calls, reading.slope / reading.calls
        if flat > FLAT_SHARE and slope < LITTLE_SLOPE:
            yield Finding(
                "warning",
                "saturated",
                reading.name,
                f"the {reading.function} after it is saturated: it passes almost no gradient",
                f"{percent(flat)} of values where its slope is below 5 % of the largest; mean slope {percent(slope)}",
                "scale down its input: smaller γ or weights, or a norm before it",
                harm=flat,
            )


def one_feature(observed: Observations) -> Iterator[Finding]:
    """A feature that holds nearly all of the variance that a LayerNorm divides by."""
    if observed.synthetic:
        return
    for reading in observed.ran:
        if reading.energy is None or reading.values < 8:
            continue
        share = reading.energy[0] / reading.energy[1]
        largest = int(share.argmax())
        most = float(share[largest])
        if most > MOST_ENERGY:
            yield Finding(
                "warning",
                "one feature",
                reading.name,
                "one feature holds nearly all of the variance: after the division the others are almost 0",
                f"feature {largest} has {percent(most)} of it; an even share is {percent(1 / len(share))}",
                "find the source of this feature (an unscaled input, a bias, a weight row), and scale it down",
                [largest],
                harm=most,
            )
