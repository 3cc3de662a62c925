"""The base of all diagnostic results: plain objects that print as tables, plot themselves and convert to JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .text import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result:
    """Base of the dataclasses that diagnostics return. A subclass defines head and rows of its table, and a plot."""

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        raise NotImplementedError

    def rows(self) -> Sequence[Sequence[Any]]:
        """The cells, as values: numbers stay numbers."""
        raise NotImplementedError

    def plot(self) -> Figure:
        """The result as a matplotlib figure; needs the extra ``geonorm[plots]``."""
        raise NotImplementedError

    def table(self) -> str:
        """The result as text, one line per row."""
        return "\n".join(table(self.head(), [[shown(cell) for cell in row] for row in self.rows()]))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain Python values, ready for JSON."""
        assert dataclasses.is_dataclass(self)
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def headline(self) -> str:
        """The result in a few words."""
        number = len(self.rows())
        return f"{number} row{'s' * (number != 1)}"

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        from . import notebook

        return notebook.frame([notebook.table(self.head(), self.rows())])


def shown(value: Any) -> str:
    """A cell as text: four significant digits, yes or no, empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Tensors as lists, dataclasses and named tuples as dicts; NaN and Inf, which JSON lacks, as None."""
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def figure(width: float = 7.0, height: float = 4.0) -> Figure:
    """An empty figure that is not attached to a window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("expected matplotlib to draw a result; pip install 'geonorm[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")
