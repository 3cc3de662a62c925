"""Colours and dashes of lines, the same on pages and in pictures.

The colours are those of Okabe and Ito, which people with any colour vision can distinguish, without the yellow that is
hard to see on white. The baseline has the colour of the text. When the colours run out, they repeat with dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

TEXT = "#1c2128"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH = 1.6  # of lines in pictures; matplotlib measures dashes in line widths


class Look(NamedTuple):
    """How a line is drawn.

    Attributes:
        colour: its index in ``COLOURS``; None for the colour of the text.
        dash: the pattern in SVG notation; empty for a solid line.
    """

    colour: int | None
    dash: str


def looks(names: Sequence[str], baseline: str | None = None) -> dict[str, Look]:
    """A look for each name.

    Examples:
        >>> from geonorm.html.palette import looks
        >>> looks(["ln", "bn"], "bn")
        {'ln': Look(colour=0, dash=''), 'bn': Look(colour=None, dash='')}
    """
    others = [name for name in names if name != baseline]
    found = {name: Look(i % len(COLOURS), DASHES[i // len(COLOURS) % len(DASHES)]) for i, name in enumerate(others)}
    return {name: found.get(name, Look(None, "")) for name in names}


def line_style(look: Look) -> dict[str, Any]:
    """The look as keyword arguments of matplotlib."""
    dash = (0, [float(part) / _WIDTH for part in look.dash.split()]) if look.dash else "-"
    return {"color": TEXT if look.colour is None else COLOURS[look.colour], "linestyle": dash, "linewidth": _WIDTH}
