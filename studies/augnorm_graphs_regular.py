"""Regular graphs, whose features a norm over each graph can erase: said of GraphNorm in AugNorm on graphs."""

from __future__ import annotations

from .augnorm_graphs_plan import REGULAR, REGULAR_NORMS, WHOLE
from .page import Table, spread
from .results import Pair, Results, accuracy
from .verdicts import OWN, Verdict, above, below

SEEN = 40.0  # per cent of three classes: more than chance


def of_regular_graphs(results: Results) -> list[Verdict]:
    """The verdicts: one of the paper, and our questions about a learned share."""
    found = []
    for claim, end, published, judge in (
        ("removing the whole mean of each graph erases its features: under", WHOLE, "§2, of GraphNorm", below),
        ("a learned share of the mean, from 1, keeps some: over", "", OWN, above),
        ("a learned share of the mean, from 0.5, keeps some: over", "(alpha=0.5)", OWN, above),
    ):
        values = results.values(accuracy(), REGULAR, norm=f"graphnorm{end}")
        if values:
            ours = f"{spread(values)}; {_seen(values)} seeds over {SEEN:g} %"
            title = f"Regular graphs: {claim} {SEEN:g} % right"
            found.append(Verdict(title, published, ours, *judge(values, SEEN)))
    return found


def _seen(values: dict[Pair, float]) -> str:
    """How many seeds classify better than by chance."""
    return f"{sum(value > SEEN for value in values.values())} of {len(values)}"


def regular_table(results: Results) -> Table:
    """The accuracies by norm."""
    rows = []
    for norm, removed in REGULAR_NORMS.items():
        values = results.values(accuracy(), REGULAR, norm=norm)
        rows.append([f"`{norm}`", removed, spread(values), _seen(values)])
    note = (
        "Three degrees are the classes, and all nodes of a graph are alike. What is left of a feature μ is (1 − α)μ, "
        "and its rms over the graph is |(1 − α)μ| too: with α below 1 the norm lets the sign through, and little else. "
        "The mean is over seeds that made use of it and seeds that did not; the last column counts the first."
    )
    return Table("Regular graphs", ["norm", "removes", "accuracy, %", f"seeds over {SEEN:g} %"], rows, note)
