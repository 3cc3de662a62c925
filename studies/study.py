"""A study: a table or figure of a paper as trainings to run, and how to read what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from geonorm.lab.recipe import Recipe

from . import smoke
from .page import Page
from .results import Results
from .verdicts import corrected

PRESETS = ("laptop", "paper")

Plan = Callable[[str], dict[str, Recipe]]


@dataclass(frozen=True)
class Study:
    """One named study.

    Attributes:
        name: how it is called.
        line: what it shows, in one line.
        source: which paper, which tables and figures.
        minutes: about how long each preset takes on two cores; nothing for those that need more.
        plan: from a preset to its trainings, by part.
        read: from results to the page.
        curves: figures of every epoch that the results keep.
        ends: figures of which they keep the last epoch only, as a curve of one.
    """

    name: str
    line: str
    source: str
    minutes: Mapping[str, float]
    plan: Plan
    read: Callable[[Results], Page]
    curves: tuple[str, ...] = ("loss", "accuracy")
    ends: tuple[str, ...] = ()

    def page(self, results: Results) -> Page:
        """What ``read`` makes of results; of those of a smoke, too. Its tests are corrected for each other."""
        page = self.read(smoke.as_planned(results, self.plan(results.preset)) if results.smoke else results)
        return page._replace(verdicts=corrected(page.verdicts))
