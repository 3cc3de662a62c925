"""The settings of a comparison in words: norms, columns, numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...nn.specs import parse_call
from ..choices import ATTACKS
from ..recipe import OWN
from ..results import Column
from ..statistics import LEVEL

_NORMS = {  # that everyone knows by a name; the others are called by their spec, which is what one types to use them
    OWN: "the model's own norm",
    "none": "the network without norms",
    "bn": "BatchNorm",
    "ln": "LayerNorm",
    "gn": "GroupNorm",
    "in": "InstanceNorm",
    "graphnorm": "GraphNorm",
    "wn": "weight normalization",
    "ws": "weight standardization",
    "sn": "spectral normalization",
}
_CORRUPTED = {
    "offset": "offset",
    "gain": "multiplied by a wrong gain",
    "heavy_tails": "full of outliers",
    "feature": "wrong in one feature",
    "noise": "noisy",
    "stuck": "stuck at one value",
    "minority": "of a louder minority",
    "labels": "labelled wrongly",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def display_name(norm: str) -> str:
    """The common name of a norm, with its arguments; its spec where it has none.

    Examples:
        >>> from geonorm.lab.report.labels import display_name
        >>> display_name("bn"), display_name("gn(groups=4)"), display_name("guardbn")
        ('BatchNorm', 'GroupNorm(groups=4)', 'guardbn')
    """
    name, bracket, arguments = norm.partition("(")
    return _NORMS.get(name, name) + bracket + arguments


def sentence(text: str) -> str:
    """The text with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def number(n: int) -> str:
    """A small number as a word.

    Examples:
        >>> from geonorm.lab.report.labels import number
        >>> number(8), number(13)
        ('eight', '13')
    """
    return _NUMBERS[n] if 0 <= n < len(_NUMBERS) else str(n)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names as an enumeration; all but the first few are only counted.

    Examples:
        >>> from geonorm.lab.report.labels import listed
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e"])
        ('a, b and c', 'a, b, c and 2 others')
    """
    shown = list(names) if len(names) <= most + 1 else [*names[:most], f"{len(names) - most} others"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def probability(p: float) -> str:
    """A p value with as many digits as needed, or "no test".

    Examples:
        >>> from geonorm.lab.report.labels import probability
        >>> [probability(p) for p in (0.0001, 0.01234, 0.04996, 0.4, float("nan"))]
        ['p < 0.001', 'p = 0.012', 'p = 0.04996', 'p = 0.40', 'no test']
    """
    if math.isnan(p):
        return "no test"
    if p < 0.001:
        return "p < 0.001"
    digits = 3 if p < 0.1 else 2
    while digits < 8 and p != LEVEL and round(p, digits) == LEVEL:  # show on which side of the level it is
        digits += 1
    return f"p = {p:.{digits}f}"


def signed(value: float) -> str:
    """A difference in points, with its sign; a dash for NaN."""
    if math.isnan(value):
        return "–"
    text = f"{abs(value):.1f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def circumstances(column: Column, say_loss: bool) -> str:
    """How a column was trained and tested, as the beginning of a sentence.

    Args:
        column: the column.
        say_loss: whether to mention the loss, because columns differ in it.

    Examples:
        >>> from geonorm.lab.report.labels import circumstances
        >>> from geonorm.lab.results import Column
        >>> circumstances(Column("erm", "offset(share=0.1)", "noise(std=0.25)"), say_loss=False)
        'With 10 % of the training samples offset, tested with noise(std=0.25)'
    """
    parts = [_training(column.corruption), *([f"with the loss {column.loss}"] if say_loss else [])]
    name = _call(column.evaluation)[0]
    if name in ATTACKS:
        parts.append(f"attacked by {column.evaluation}")
    elif column.evaluation != "clean":
        parts.append(f"tested with {column.evaluation}")
    return sentence(", ".join(parts))


def _training(corruption: str) -> str:
    name, arguments = _call(corruption)
    share = f"{100 * arguments.get('share', 0.1):g} % of the training samples"
    if name in _CORRUPTED:
        return f"with {share} {_CORRUPTED[name]}{_by(name, arguments)}"
    if name == "spurious":
        return f"with an attribute that misleads in {share}"
    return "on clean data" if name == "clean" else f"trained on {corruption}"


def _by(name: str, arguments: Mapping[str, float]) -> str:
    """The strength of a corruption, if it was set."""
    if "strength" not in arguments:
        return ""
    strength = f"{arguments['strength']:g}"
    return f" by {strength} standard deviations" if name == "offset" else f" (strength {strength})"


def _call(text: str) -> tuple[str, dict[str, float]]:
    """Name and arguments, if they can be parsed: a store may be written by a later version."""
    try:
        name, arguments = parse_call(text, "")
    except ValueError:
        return text, {}
    return name, {key: value for key, value in arguments.items() if isinstance(value, int | float)}
