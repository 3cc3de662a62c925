"""The result of ``screen``: the broken samples of a data set, as a table, a plot and a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..html import notebook
from ..html.result import Result, figure
from ..html.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_SHOWN = 20


@dataclass(frozen=True)
class Broken:
    """One sample that looks broken.

    Attributes:
        index: its position in the data, in the order of the batches, from 0.
        score: how far it is from the others; above the cut. Inf if it is not finite.
        layer: the first place that saw it: ``"input"``, or the name of a layer.
        why: ``"not finite"``, ``"too large"``, ``"offset"``, ``"constant"``, ``"noise"``, or ``"unusual"`` where its
            own values show no reason.
        evidence: the figures behind the reason.
    """

    index: int
    score: float
    layer: str
    why: str
    evidence: str


@dataclass(frozen=True, eq=False, repr=False)
class Screening(Result):
    """The result of ``screen``.

    Attributes:
        broken: the samples that look broken, the highest score first.
        scores: of all samples, in the order of the batches.
        cut: the score above which a sample looks broken.
        layers: the places that were looked at, in the order of the model.
        skipped: places that were not looked at, with the reason.
        notes: what the user should know about the scores.
        model: class of the model.
    """

    broken: list[Broken]
    scores: Tensor
    cut: float
    layers: list[str]
    skipped: dict[str, str]
    notes: list[str]
    model: str

    @property
    def samples(self) -> int:
        """How many samples were checked."""
        return len(self.scores)

    @property
    def indices(self) -> list[int]:
        """Indices of the broken samples, the highest score first."""
        return [one.index for one in self.broken]

    @property
    def kept(self) -> list[int]:
        """Indices of all other samples in order, for ``torch.utils.data.Subset``."""
        out = set(self.indices)
        return [i for i in range(self.samples) if i not in out]

    def reasons(self) -> dict[str, int]:
        """How many broken samples there are for each reason, the most frequent first."""
        return dict(Counter(one.why for one in self.broken).most_common())

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("index", "score", "seen in", "why", "evidence")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each broken sample."""
        return [(one.index, one.score, one.layer, one.why, one.evidence) for one in self.broken]

    def headline(self) -> str:
        """The result in a sentence."""
        number = f"{self.samples:,} sample{'s' * (self.samples != 1)}"
        if not self.broken:
            return f"Nothing broken among {number}."
        reasons = ", ".join(f"{count:,} {why}" for why, count in self.reasons().items())
        return f"{len(self.broken):,} of {number} look{'s' * (len(self.broken) == 1)} broken: {reasons}."

    def __str__(self) -> str:
        lines = [self.headline()]
        if self.broken:
            rows = self.table().splitlines()
            lines += ["", *rows[: _MOST_SHOWN + 2]]
            rest = len(self.broken) - _MOST_SHOWN
            lines += [f"... and {rest:,} more"] if rest > 0 else []
        lines += ["", f"Looked at {', '.join(self.layers) or 'nothing'}."]
        lines += [f"* {note}" for note in self.notes]
        lines += [f"* {name} was not looked at: {reason}" for name, reason in self.skipped.items()]
        return visible("\n".join(lines))

    def _repr_html_(self) -> str:
        """The headline, the samples with the highest scores, and the remarks, for a notebook."""
        remarks = [f"Looked at {', '.join(self.layers) or 'nothing'}.", *self.notes]
        remarks += [f"{name} was not looked at: {reason}" for name, reason in self.skipped.items()]
        head = f'<p><b class="{"warning" if self.broken else "good"}">{escape(self.headline())}</b></p>'
        rows = notebook.table(self.head(), self.rows(), _MOST_SHOWN) if self.broken else ""
        return notebook.frame([head, rows, *[notebook.paragraph(text, "soft") for text in remarks]])

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain Python values, ready for JSON."""
        return {"samples": self.samples, "indices": self.indices, **super().to_dict()}

    def plot(self) -> Figure:
        """A histogram of the scores, with the cut."""
        from .score_counts import score_counts

        drawn = figure()
        axes = drawn.subplots()
        for bin in score_counts(self.scores, self.cut):
            color = "tab:red" if bin.low >= self.cut else "tab:blue"
            axes.bar(bin.low, bin.count, bin.high - bin.low, align="edge", color=color, edgecolor="white")
        axes.axvline(self.cut, color="black", linestyle="--", label=f"cut {self.cut:g}")
        axes.set(xscale="log", yscale="log", xlabel="score", ylabel="samples", title=self.headline())
        axes.legend(loc="best")
        return drawn

    def to_html(self, path: str | Path, batches: Any = None) -> Path:
        """Write one self-contained page, and return its path.

        Args:
            path: of the page.
            batches: the same batches again, in the same order, for small pictures of the samples if these are images.
        """
        from ..html.whole import write_whole
        from .screen_page import page

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page(self, batches))
        return path
