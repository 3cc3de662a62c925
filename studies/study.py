"""A study: a table or figure of a paper as trainings to run, and how to read their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import smoke
from .page import Page
from .recipe import StudyRecipe
from .results import Results
from .verdicts import corrected

PRESETS = ("laptop", "paper")

Plan = Callable[[str], dict[str, StudyRecipe]]


@dataclass(frozen=True)
class Study:
    """One named study.

    Attributes:
        name: its name.
        line: what it shows, in one line.
        source: the paper, its tables and figures.
        minutes: approximate duration on two cores of each preset that was run; ``hours`` estimates the others.
        plan: makes the trainings of a preset, by part.
        read: makes the page from results.
        curves: figures stored for every epoch.
        ends: figures stored for the last epoch only, as a curve of one.
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
        """The page from results, also from those of a smoke, with its tests corrected for their number."""
        page = self.read(smoke.as_planned(results, self.plan(results.preset)) if results.smoke else results)
        return page._replace(verdicts=corrected(page.verdicts))
