"""The results of a comparison: accuracies by column and norm, curves, and a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..html.text import table
from .recipe import AXES, Run
from .rescue import check
from .statistics import Summary, summarize
from .store import Finished, Store


class Column(NamedTuple):
    """A column of the table: training with a loss on corrupted samples, tested by an evaluation."""

    loss: str
    corruption: str
    evaluation: str


class Pair(NamedTuple):
    """Seed and fold of a run: runs of two norms with the same ones share initial weights, batches and test samples."""

    seed: int
    fold: int | None


@dataclass(frozen=True, repr=False)
class Comparison:
    """A comparison and its results.

    Attributes:
        runs: its trainings.
        store: the store with their figures.
    """

    runs: tuple[Run, ...]
    store: Store

    @classmethod
    def from_store(cls, path: str | Path) -> list[Comparison]:
        """The comparisons in a results file: one for each choice of data, model and settings, finished or not.

        Args:
            path: the results file; raises if it does not exist or is damaged.
        """
        if not Path(path).is_file():
            raise ValueError(f"expected a file of results (got {str(path)!r}, which does not exist)")
        store = Store(path)
        check(path)
        together: dict[str, list[Run]] = {}
        for choices in store.known():
            shared = {name: value for name, value in choices.items() if name not in AXES}
            together.setdefault(json.dumps(shared, sort_keys=True), []).append(Run(choices))
        return [cls(tuple(runs), store) for runs in together.values()]

    def settings(self) -> dict[str, Any]:
        """The settings that all runs share: data, model, training."""
        return {name: value for name, value in self.runs[0].choices.items() if name not in AXES} if self.runs else {}

    def title(self) -> str:
        """The comparison in a few words, such as ``mlp on digits, 10 epochs``."""
        settings = self.settings()
        if not settings:
            return "no runs"
        model, data = (settings[name].removeprefix("__main__:") for name in ("model", "data"))
        return f"{model} on {data}, {settings['epochs']} epoch{'s' * (settings['epochs'] != 1)}"

    def norms(self) -> list[str]:
        """The norms, in the order of the recipe."""
        return list(dict.fromkeys(run["norm"] for run in self.runs))

    def columns(self) -> dict[Column, str]:
        """The columns of the table, each with a label of the settings in which they differ."""
        found = dict.fromkeys(
            Column(run["loss"], run["corruption"], evaluation) for run in self.runs for evaluation in run["evaluations"]
        )
        varies = [len({column[i] for column in found}) > 1 for i in range(3)]
        if not any(varies):
            varies[2] = True
        return {
            column: ", ".join(part for part, shown in zip(column, varies, strict=True) if shown) for column in found
        }

    def finished(self) -> list[Finished]:
        """The trainings of this comparison that are done, in the order of the recipe."""
        done = {run.key: run for run in self.store.finished()}
        return [done[run.key] for run in self.runs if run.key in done]

    def accuracies(self) -> dict[Column, dict[str, dict[Pair, float]]]:
        """Accuracies in per cent by column, norm and pair. Norms without finished runs are included, empty."""
        found: dict[Column, dict[str, dict[Pair, float]]] = {
            column: {norm: {} for norm in self.norms()} for column in self.columns()
        }
        for run in self.finished():
            about = run.choices
            for evaluation in about["evaluations"]:
                column = Column(about["loss"], about["corruption"], evaluation)
                pair = Pair(about["seed"], about["fold"])
                found[column][about["norm"]][pair] = 100 * run.figures[evaluation]["accuracy"]
        return found

    def table(self) -> str:
        """Mean accuracy in per cent and its standard deviation over seeds, one line per norm."""
        found, labels = self.accuracies(), self.columns()
        lines = [
            [norm, *[mean_and_deviation(summarize(values[norm].values())) for values in found.values()]]
            for norm in self.norms()
        ]
        return "\n".join(table(["norm", *labels.values()], [line for line in lines if any(line[1:])]))

    def __repr__(self) -> str:
        number = len(self.runs)
        return f"<Comparison: {self.title()}, {number} run{'s' * (number != 1)}>"

    def _repr_html_(self) -> str:
        """The answer, every run and the table, for a notebook."""
        from .report.notebook import notebook

        return notebook(self)

    def curves(self) -> dict[str, list[dict[str, Any]]]:
        """The figures of every run for each epoch, by the key of the run."""
        return {run.key: self.store.curve(run.key) for run in self.runs}


def mean_and_deviation(found: Summary) -> str:
    """Such as ``97.0 ± 0.2``; only the mean for one run, empty for none, "diverged" if all are lost."""
    if not found.number:
        return "diverged" if found.lost else ""
    return f"{found.mean:.1f}" + (f" ± {found.deviation:.1f}" if found.number > 1 else "")
