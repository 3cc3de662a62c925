"""One training, epoch by epoch; its whole state can be saved and taken up again, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..nn._base import NormLayer
from ..optim import SphereSGD, project_scale_invariant
from ..robust.accuracy import check_scores
from ..surgery.placement import is_pre_norm
from .augment import AUGMENTS
from .batches import Batch, in_order, shuffled
from .choices import parse_loss
from .data import Split, Task
from .ddp_team import Team
from .probes import PROBES

_TEST_BATCH = 512
_TOGETHER = 32  # batches whose scores are kept until they are counted


class _Hits:
    """Counts samples that were guessed rightly, several batches at a time: in small networks each operation counts."""

    def __init__(self) -> None:
        self.counted = 0
        self.scores: list[Tensor] = []
        self.labels: list[Tensor] = []

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """One more batch."""
        self.scores.append(scores.detach())
        self.labels.append(labels)
        if len(self.scores) == _TOGETHER:
            self.count()

    def count(self) -> int:
        """How many were right up to now."""
        if self.scores:
            self.counted += int(_hits(torch.cat(self.scores), torch.cat(self.labels), 1).sum())
            self.scores, self.labels = [], []
        return self.counted


class Training:
    """A model, its optimizer, and the samples it learns from.

    Args:
        model: gives scores of the classes.
        task: the samples.
        choices: of a run: how a recipe trains, the loss and the seed.
        team: the processes that train it, each with a part of every batch.
    """

    def __init__(self, model: nn.Module, task: Task, choices: Mapping[str, Any], team: Team | None = None) -> None:
        self.model, self.task, self.choices = model, task, choices
        self.team = team or Team()
        self.called = self.team.wrapped(model)
        self.loss = parse_loss(choices["loss"])
        self.skips, self.largest = choices.get("skip_nonfinite", False), choices.get("clip_gradients", 0.0)
        rate, decay = choices["lr"], choices["weight_decay"]
        _scale_weights(model, choices["weight_scale"])
        self.optimizer: torch.optim.Optimizer
        if choices["optimizer"] == "sphere_sgd":
            self.optimizer = SphereSGD(project_scale_invariant(model), rate, choices["momentum"], weight_decay=decay)
        elif choices["optimizer"] == "adam":
            self.optimizer = torch.optim.Adam(model.parameters(), rate, weight_decay=decay)
        else:
            groups = _imitating_kappa(model, choices.get("weights_as_kappa", 1.0), decay)
            self.optimizer = torch.optim.SGD(groups, rate, choices["momentum"], weight_decay=decay)
        self.done, self.checked = 0, False
        self.tested: Tensor | None = None  # which test samples were right after the last epoch

    def epoch(self) -> dict[str, Any]:
        """Train one epoch and test; the figures."""
        of, seed = self.choices, self.choices["seed"]
        for group in self.optimizer.param_groups:
            rate = of["lr"] * decayed(of["decay"], self.done / of["epochs"], of["milestones"])
            group["lr"] = rate * group.get("share", 1.0)
        # Dropout draws the same in an epoch that is taken up again; each process its own. The lab trains on the CPU;
        # torch.manual_seed would note the seed for other devices as well, which takes a fifth of a small step.
        torch.default_generator.manual_seed(2_000_003 * seed + 1_009 * self.team.rank + self.done)
        self.called.train()
        total, number, hits = 0.0, 0, _Hits()
        for size, batch in shuffled(self.task.train, of["batch_size"], seed, self.done, self.team):
            total, number = total + self._step(self._augmented(batch), size, hits) * size, number + size
        self.done += 1
        self.tested = correct(self.model, self.task.test, self.team)
        figures: dict[str, Any] = {
            "loss": total / max(1, number),
            "train_accuracy": self.team.total(hits.count()) / max(1, number),
            "accuracy": float(self.tested.double().mean()),
        }
        exponents = learned_exponents(self.model)
        if exponents:
            figures["phi"] = exponents
        return figures | {name: PROBES[name](self.model, self.task) for name in of["probes"]}

    def _augmented(self, batch: Batch) -> Batch:
        for name in self.choices["augment"]:
            batch = batch._replace(inputs=(AUGMENTS[name](batch.inputs[0]), *batch.inputs[1:]))
        return batch

    def _step(self, batch: Batch, size: int, hits: _Hits) -> float:
        """One step on a batch of which this process has a part; the loss of the whole batch."""
        scores = batch.scores(self.called)
        if not self.checked:  # in words, once
            check_scores(scores, batch.labels)
            self.checked = True
        loss, whole = self._losses(scores, batch.labels, size)
        hits.add(scores, batch.labels)
        if self.skips and not loss.isfinite():  # of no sample: nothing to learn here
            return whole.item()
        self.optimizer.zero_grad()
        loss.backward()
        if self.largest:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.largest)
        self.optimizer.step()
        return whole.item()

    def _losses(self, scores: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The loss to differentiate, of this process's part; and that of the whole batch."""
        if self.skips:
            each = nn.functional.cross_entropy(scores, labels, reduction="none")
            mean = each[each.isfinite()].mean()
            return mean, mean
        if self.team.size == 1 and self.choices["loss"] == "erm":
            mean = nn.functional.cross_entropy(scores, labels)  # torch's own is one operation
            return mean, mean
        each = nn.functional.cross_entropy(scores, labels, reduction="none")
        if self.team.size == 1:
            whole = self.loss(each).loss
            return whole, whole
        # The gradient of a loss are its weights, and those need all samples; DDP divides by the processes.
        found = self.loss(self.team.joined(each, size))
        return (each * self.team.part(found.weights)).sum() * self.team.size, found.loss

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]


@torch.no_grad()
def correct(model: nn.Module, split: Split, team: Team | None = None, top: int = 1) -> Tensor:
    """Which samples are classified rightly, in evaluation mode; scores that are not finite are wrong.

    Each process of a team tests its part.
    """
    team = team or Team()
    model.eval()
    mine = split.take(team.part(torch.arange(len(split)))) if team.size > 1 else split
    found = [_hits(batch.scores(model), batch.labels, top) for batch in in_order(mine, _TEST_BATCH)]
    right = torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)
    return team.joined(right.to(torch.uint8), len(split)).bool()


def _hits(scores: Tensor, labels: Tensor, top: int) -> Tensor:
    """Where the label has one of the largest scores. NaN counts as the largest, which must not be a hit."""
    best = scores.topk(min(top, scores.shape[1])).indices
    return (best == labels.unsqueeze(1)).any(1) & scores.isfinite().all(1)


def _scale_weights(model: nn.Module, factor: float) -> None:
    if factor == 1:
        return
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.weight *= factor


def _imitating_kappa(model: nn.Module, kappa: float, decay: float) -> list[dict[str, Any]]:
    """Groups of parameters for SGD, with those behind POP-Norms changed: F(w/κ) from w is F(v) from v = w/κ."""
    behind = [module.get_parameter("weight") for module in model.modules() if is_pre_norm(module) and kappa != 1]
    with torch.no_grad():
        for weight in behind:
            weight.div_(kappa)
    chosen = {id(weight) for weight in behind}
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in chosen]}]
    if behind:
        groups.append({"params": behind, "weight_decay": decay * kappa**2, "share": 1 / kappa**2})
    return groups


def decayed(kind: str, passed: float, milestones: Sequence[float] = ()) -> float:
    """The factor on the learning rate when a share of the epochs has passed."""
    if kind == "linear":
        return 1 - passed
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * passed))
    if kind == "step":
        return float(0.1 ** sum(passed >= share for share in milestones))
    return 1.0


def learned_exponents(model: nn.Module) -> dict[str, float]:
    """The mean φ of every layer that learns it, by name."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, NormLayer)]
    return {name: float(torch.as_tensor(layer.phi).detach().mean()) for name, layer in layers if layer.learn_phi}
