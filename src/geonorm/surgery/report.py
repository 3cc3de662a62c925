"""What a verb did: a table of the modules it changed, and of those it left with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from ..html import notebook
from ..html.text import table, visible


class Change(NamedTuple):
    """One module that was changed.

    Attributes:
        name: its name in the model.
        before: what it was.
        after: what it is now.
        note: what the user should know about it; may be empty.
    """

    name: str
    before: str
    after: str
    note: str = ""


class Left(NamedTuple):
    """One module that was left as it is.

    Attributes:
        name: its name in the model.
        kind: its class.
        reason: why, and what to do about it.
    """

    name: str
    kind: str
    reason: str


@dataclass(repr=False)
class Report:
    """What a verb did to a model. Prints as a table.

    Attributes:
        verb: the verb, with its main argument.
        changed: modules that were changed.
        left: modules that were left, with the reason.
        notes: what concerns the whole model.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.RMSNorm(8))
        >>> report = geonorm.convert(model, "aug(phi=2)")
        >>> [change.name for change in report.changed], [left.name for left in report.left]
        (['1'], ['2'])
    """

    verb: str
    changed: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def headline(self) -> str:
        """The verb, and how many modules it changed and left."""
        return f"{self.verb}: {_count(len(self.changed), 'module')} changed, {len(self.left)} left"

    def __str__(self) -> str:
        lines = [self.headline()]
        changed, notes = self.changed, list(self.notes)
        if len(changed) > 1 and changed[0].note and len({change.note for change in changed}) == 1:
            notes.insert(0, f"all: {changed[0].note}")
            changed = [change._replace(note="") for change in changed]
        if changed:
            lines += ["", *table(("module", "before", "after", "note"), changed)]
        if self.left:
            lines += ["", *table(("left", "kind", "reason"), self.left)]
        if notes:
            lines += ["", *[f"* {note}" for note in notes]]
        return visible("\n".join(lines))

    def __repr__(self) -> str:
        return f"<Report: {self.headline()}>"

    def _repr_html_(self) -> str:
        """The tables, for a notebook."""
        head = f"<p><b>{escape(self.headline())}</b></p>"
        changed = notebook.table(("module", "before", "after", "note"), self.changed) if self.changed else ""
        left = notebook.table(("left", "kind", "reason"), self.left) if self.left else ""
        return notebook.frame([head, changed, left, *[notebook.paragraph(note) for note in self.notes]])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
