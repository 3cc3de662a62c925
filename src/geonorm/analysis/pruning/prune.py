"""``prune``: which channels a network can do without, rule by rule, with controls that show what a rule is worth.

Two channels with the same (γ, β) have outputs on the same sphere, but not at the same point. So the proposal to merge
channels that are close in (γ, β) is compared with controls: random pairs, and pairs whose outputs are close.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ...html.result import Result, figure
from ...introspect.observe import call_model, check_readable, filled_batches, labelled, state_restored, uncompiled
from ...introspect.progress import progress
from ...robust.accuracy import Accuracy, count_correct, wilson
from .channels import Drop, OutputGram, channel_norms, masked, output_grams

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PruneTrial(NamedTuple):
    """Accuracy without some channels.

    Attributes:
        rule: which channels were left out first.
        fraction: the requested share of all channels.
        channels: how many were left out; fewer than requested if the rule runs out.
        accuracy: with Wilson's interval.
    """

    rule: str
    fraction: float
    channels: int
    accuracy: Accuracy


class Pair(NamedTuple):
    """A channel, its nearest neighbour in (γ, β), and how similar they are.

    Attributes:
        layer: name of the norm.
        channel, nearest: the two channels.
        distance: between their (γ, β).
        correlation: of their outputs.
    """

    layer: str
    channel: int
    nearest: int
    distance: float
    correlation: float


@dataclass(repr=False)
class Pruning(Result):
    """What ``prune`` found.

    Attributes:
        channels: number of channels.
        trials: by rule and fraction.
        pairs: nearest neighbours in (γ, β), the nearest first.
        similarity: mean |correlation| of the outputs of these pairs, and of random pairs of the same layers.
        orders: for each rule, the channels in the order in which they are left out, up to the largest fraction.
    """

    channels: int
    trials: list[PruneTrial]
    pairs: list[Pair]
    similarity: dict[str, float]
    orders: dict[str, list[Drop]]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("rule", "fraction", "channels", "accuracy", "from", "to")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each trial."""
        return [
            (t.rule, t.fraction, t.channels, t.accuracy.share, t.accuracy.low, t.accuracy.high) for t in self.trials
        ]

    def table(self) -> str:
        """The table, and how similar the outputs of channels with similar (γ, β) are."""
        nearest, at_random = (f"{self.similarity[key]:.3f}" for key in ("nearest", "random"))
        similarity = f"mean |correlation| of outputs: {nearest} for neighbours in (γ, β), {at_random} for random pairs"
        return f"{super().table()}\n\n{similarity}"

    def plot(self) -> Figure:
        """Accuracy against the fraction left out, for each rule."""
        drawn = figure()
        axes = drawn.subplots()
        for rule in self.orders:
            own = [trial for trial in self.trials if trial.rule == rule]
            fractions = [trial.channels / self.channels for trial in own]
            (line,) = axes.plot(fractions, [trial.accuracy.share for trial in own], "o-", label=rule)
            ends = [trial.accuracy.low for trial in own], [trial.accuracy.high for trial in own]
            axes.fill_between(fractions, *ends, color=line.get_color(), alpha=0.15)
        axes.set_xlabel("channels left out")
        axes.set_ylabel("accuracy")
        axes.legend()
        return drawn


def prune(
    model: nn.Module,
    batches: Any,
    fractions: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    rules: Sequence[str] = ("gamma", "pairs", "outputs", "random", "random_pairs"),
    *,
    seed: int = 0,
) -> Pruning:
    """Accuracy of a classifier without some channels of its batch norms, for several rules that rank them.

    | rule | the next channel is | its output becomes |
    | --- | --- | --- |
    | `gamma` | the one with the smallest \\|γ\\| | 0 |
    | `pairs` | one of the two closest in (γ, β) | that of the other |
    | `outputs` | one of the two whose outputs are closest, E(y₁ − y₂)² | that of the other |
    | `random` | a random one | 0 |
    | `random_pairs` | one of two random ones of a layer | that of the other |

    Channels are compared over all layers; each layer keeps at least one. The model runs in evaluation and is not
    changed; ``remove_channels`` removes channels for good.

    Args:
        model: a classifier with batch norms that have γ and β.
        batches: a batch or several, each (input, labels). Run once for each rule and fraction.
        fractions: shares of all channels to leave out, from 0 to 1.
        rules: which rules to try.
        seed: of the random rules.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import prune
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> found = prune(model, (torch.randn(50, 4), torch.arange(50) % 2), (0.0, 0.5), ("gamma", "random"))
        >>> [(trial.rule, trial.channels) for trial in found.trials]
        [('gamma', 0), ('gamma', 4), ('random', 0), ('random', 4)]
    """
    check_readable(model, "leave out channels of")
    if not all(0 <= fraction <= 1 for fraction in fractions) or not fractions:
        raise ValueError(f"expected fractions from 0 to 1 (got {tuple(fractions)})")
    unknown = [rule for rule in rules if rule not in _RULES]
    if unknown or not rules:
        raise ValueError(f"expected rules out of {tuple(_RULES)} (got {tuple(rules)})")
    norms = channel_norms(model)
    given = list(filled_batches(batches))
    with state_restored(model), torch.no_grad(), uncompiled():
        model.eval()
        grams = output_grams(model, norms, given)
        layers = [_Layer(name, norm, grams[name]) for name, norm in norms.items() if grams[name].count]
        total = sum(layer.size for layer in layers)
        most = round(max(fractions) * total)
        orders = {rule: _compatible(_RULES[rule](layers, random.Random(seed)), layers, most) for rule in rules}
        trials = []
        for rule, fraction in progress([(r, f) for r in rules for f in fractions], "prune"):
            drops = orders[rule][: round(fraction * total)]
            with masked(model, drops):
                trials.append(PruneTrial(rule, float(fraction), len(drops), _accuracy(model, given)))
    pairs = sorted((pair for layer in layers for pair in layer.nearest()), key=lambda pair: pair.distance)
    return Pruning(total, trials, pairs, _similarity(layers, pairs), orders)


class _Layer:
    """γ, β and outputs of one norm's channels."""

    def __init__(self, name: str, norm: Any, gram: OutputGram) -> None:
        self.name, self.size = name, len(norm.weight)
        self.gamma, self.beta = norm.weight.detach().double().cpu(), norm.bias.detach().double().cpu()
        self.differences, self.correlations = gram.differences().cpu(), gram.correlations().cpu()
        places = torch.stack([self.gamma, self.beta], 1)
        # Computed directly: cdist uses a matrix product, in which small distances are lost to rounding.
        self.distances = (places[:, None] - places[None, :]).square().sum(2).sqrt()

    def nearest(self) -> Iterator[Pair]:
        """Each channel with its nearest neighbour in (γ, β), once."""
        if self.size < 2:
            return
        lowest, other = self.distances.clone().fill_diagonal_(float("inf")).min(1)
        for i, (distance, j) in enumerate(zip(lowest.tolist(), other.tolist(), strict=True)):
            if i < j or int(other[j]) != i:
                yield Pair(self.name, i, j, distance, float(self.correlations[i, j]))


def _by_gamma(layers: Sequence[_Layer], _: random.Random) -> Iterable[Drop]:
    found = [(size, layer.name, i) for layer in layers for i, size in enumerate(layer.gamma.abs().tolist())]
    return [Drop(name, i) for _, name, i in sorted(found)]


def _at_random(layers: Sequence[_Layer], chance: random.Random) -> Iterable[Drop]:
    found = [Drop(layer.name, i) for layer in layers for i in range(layer.size)]
    chance.shuffle(found)
    return found


def _closest(which: Callable[[_Layer], Tensor]) -> Callable[[Sequence[_Layer], random.Random], Iterable[Drop]]:
    def rule(layers: Sequence[_Layer], _: random.Random) -> Iterator[Drop]:
        above = [torch.triu_indices(layer.size, layer.size, 1) for layer in layers]
        values = torch.cat([which(layer)[tuple(pairs)] for layer, pairs in zip(layers, above, strict=True)])
        owners = torch.cat([torch.full((pairs.shape[1],), i) for i, pairs in enumerate(above)])
        both = torch.cat(above, 1)
        for place in values.sort(stable=True).indices.tolist():
            keep, drop = both[:, place].tolist()
            yield Drop(layers[int(owners[place])].name, drop, keep)

    return rule


def _pairs_at_random(layers: Sequence[_Layer], chance: random.Random) -> Iterator[Drop]:
    sizes = {layer.name: layer.size for layer in layers}
    for drop in _at_random(layers, chance):
        others = list(range(sizes[drop.layer]))
        chance.shuffle(others)
        yield from (Drop(drop.layer, drop.channel, other) for other in others if other != drop.channel)


_RULES: dict[str, Callable[[Sequence[_Layer], random.Random], Iterable[Drop]]] = {
    "gamma": _by_gamma,
    "pairs": _closest(lambda layer: layer.distances),
    "outputs": _closest(lambda layer: layer.differences),
    "random": _at_random,
    "random_pairs": _pairs_at_random,
}
RULES = tuple(_RULES)


def _compatible(proposed: Iterable[Drop], layers: Sequence[_Layer], most: int) -> list[Drop]:
    """The first drops that are compatible: a channel that replaces another stays, and no layer becomes empty."""
    left = {layer.name: layer.size for layer in layers}
    gone: set[tuple[str, int]] = set()
    needed: set[tuple[str, int]] = set()
    found: list[Drop] = []
    for proposal in proposed:
        if len(found) >= most:
            break
        for drop in _either_way(proposal):
            own = (drop.layer, drop.channel)
            other = None if drop.into is None else (drop.layer, drop.into)
            if own in gone or own in needed or other in gone or left[drop.layer] == 1:
                continue
            gone.add(own)
            if other is not None:
                needed.add(other)
            left[drop.layer] -= 1
            found.append(drop)
            break
    return found


def _either_way(drop: Drop) -> list[Drop]:
    """A drop, and the same pair the other way round."""
    return [drop] if drop.into is None else [drop, Drop(drop.layer, drop.into, drop.channel)]


def _accuracy(model: nn.Module, batches: Sequence[Any]) -> Accuracy:
    correct = total = 0
    for batch in batches:
        _, labels = labelled(batch)
        correct += count_correct(call_model(model, batch), labels)
        total += len(labels)
    return wilson(correct, total)


def _similarity(layers: Sequence[_Layer], pairs: Sequence[Pair]) -> dict[str, float]:
    """Mean |correlation| of neighbours, and of all pairs of the same layers, with the same weight per layer."""
    if not pairs:
        return {"nearest": float("nan"), "random": float("nan")}
    of_layer = {
        layer.name: float(layer.correlations[tuple(torch.triu_indices(layer.size, layer.size, 1))].abs().mean())
        for layer in layers
        if layer.size > 1
    }
    return {
        "nearest": sum(abs(pair.correlation) for pair in pairs) / len(pairs),
        "random": sum(of_layer[pair.layer] for pair in pairs) / len(pairs),
    }
