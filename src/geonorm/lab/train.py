"""One training, epoch by epoch; it can be saved and resumed bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ..nn._base import NormLayer
from ..optim import SphereSGD, project_scale_invariant
from ..robust.accuracy import check_scores
from .augment import AUGMENTS
from .batches import Batch, in_order, shuffled
from .choices import parse_loss
from .data import Split, Task
from .ddp_team import Team
from .devices import CPU, FLOAT32, forward_context, home_of, moved
from .footprint import bytes_kept

_TEST_BATCH = 512
_TOGETHER = 32  # batches whose scores are counted together

Groups = Callable[[nn.Module], list[dict[str, Any]]]
Measure = Callable[[nn.Module, Task], dict[str, Any]]


class _Tally:
    """The loss and the correct samples of an epoch, counted several batches at a time.

    In small networks every operation takes time, and on a GPU to read a figure is to wait for it.

    Attributes:
        correct: samples of this process that were classified correctly, of the batches counted.
        loss: the sum over all samples of the batches counted.
        number: of these samples.
    """

    def __init__(self) -> None:
        self.correct, self.loss, self.number = 0, 0.0, 0
        self._waiting: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def add(self, scores: Tensor, labels: Tensor, loss: Tensor, size: int) -> None:
        """Add a batch: scores and labels of this process, mean loss and size of the whole batch."""
        self._waiting.append((scores.detach(), labels, loss.detach(), size))
        if len(self._waiting) == _TOGETHER:
            self.count()

    def count(self) -> None:
        """Count the batches that wait for it."""
        if not self._waiting:
            return
        scores, labels, losses, sizes = zip(*self._waiting, strict=True)
        self._waiting = []
        self.correct += int(_hits(torch.cat(scores), torch.cat(labels), 1).sum())
        for loss, size in zip(torch.stack(losses).tolist(), sizes, strict=True):
            self.loss, self.number = self.loss + loss * size, self.number + size


class Training:
    """The training of a model: its optimizer, its samples, and its state.

    Args:
        model: returns scores of the classes.
        task: the samples.
        choices: the settings of a run: training, loss and seed.
        team: the processes that train it, each with a part of every batch.
        groups: makes groups of parameters for SGD from the model; one group of all parameters by default. A group with
            a ``share`` has this fraction of the learning rate.
        measure: computes further figures from the model and the samples after every epoch.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        choices: Mapping[str, Any],
        team: Team | None = None,
        groups: Groups | None = None,
        measure: Measure | None = None,
    ) -> None:
        self.device = torch.device(choices.get("device", CPU))
        model.to(self.device)
        self.model, self.task, self.choices, self.measure = model, task, choices, measure
        self.team = team or Team()
        self.parallel_model = self.team.wrapped(model)
        self.loss = parse_loss(choices["loss"])
        self.skips, self.largest = choices.get("skip_nonfinite", False), choices.get("clip_gradients", 0.0)
        rate, decay = choices["lr"], choices["weight_decay"]
        self.optimizer: torch.optim.Optimizer
        if choices["optimizer"] == "sphere_sgd":
            self.optimizer = SphereSGD(project_scale_invariant(model), rate, choices["momentum"], weight_decay=decay)
        elif choices["optimizer"] == "adam":
            self.optimizer = torch.optim.Adam(model.parameters(), rate, weight_decay=decay)
        else:
            learned = model.parameters() if groups is None else groups(model)
            self.optimizer = torch.optim.SGD(learned, rate, choices["momentum"], weight_decay=decay)
        self.done, self.checked = 0, False
        self.tested: Tensor | None = None  # which test samples were correct after the last epoch

    def epoch(self) -> dict[str, Any]:
        """Train one epoch and test; returns the figures."""
        of, seed = self.choices, self.choices["seed"]
        for group in self.optimizer.param_groups:
            rate = of["lr"] * decayed(of["decay"], self.done / of["epochs"], of["milestones"])
            group["lr"] = rate * group.get("share", 1.0)
        once = {} if self.done else self._measured_once()
        # Dropout draws the same numbers in a resumed epoch, and different ones in each process. On the CPU
        # torch.manual_seed would also seed other devices, which takes a fifth of the time of a small step.
        seed_all = torch.default_generator.manual_seed if self.device.type == CPU else torch.manual_seed
        seed_all(2_000_003 * seed + 1_009 * self.team.rank + self.done)
        self.parallel_model.train()
        steps, tally = 0, _Tally()
        for size, batch in shuffled(self.task.train, of["batch_size"], seed, self.done, self.team):
            # Augmented before they are moved: the same images on every device.
            self._step(moved(self._augmented(batch), self.device), size, tally)
            steps += 1
        tally.count()
        self.done += 1
        self.tested = correct(self.model, self.task.test, self.team)
        figures: dict[str, Any] = {
            "loss": tally.loss / max(1, tally.number),
            "train_accuracy": self.team.sum(tally.correct) / max(1, tally.number),
            "accuracy": float(self.tested.double().mean()),
        }
        exponents = learned_exponents(self.model)
        if exponents:
            figures["phi"] = exponents
        if once:
            figures |= {"steps": steps, **once}
        return figures | (self.measure(self.model, self.task) if self.measure else {})

    def _measured_once(self) -> dict[str, int]:
        """What is the same in every epoch, for the first one; a team has only parts of batches."""
        first = next(shuffled(self.task.train, self.choices["batch_size"], self.choices["seed"], 0, self.team), None)
        if first is None or self.team.size > 1:
            return {}
        with self._forward_context():
            return {"bytes_kept": bytes_kept(self.model, moved(first[1], self.device))}

    def _augmented(self, batch: Batch) -> Batch:
        for name in self.choices["augment"]:
            batch = batch._replace(inputs=(AUGMENTS[name](batch.inputs[0]), *batch.inputs[1:]))
        return batch

    def _step(self, batch: Batch, size: int, tally: _Tally) -> None:
        """One step on this process's part of a batch of this size."""
        with self._forward_context():
            scores = batch.scores(self.parallel_model)
            if not self.checked:  # once, for a clear error
                check_scores(scores, batch.labels)
                self.checked = True
            loss, whole = self._losses(scores, batch.labels, size)
        tally.add(scores, batch.labels, whole, size)
        if self.skips and not loss.isfinite():  # no sample has a finite loss: skip the step
            return
        self.optimizer.zero_grad()
        loss.backward()
        if self.largest:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.largest)
        self.optimizer.step()

    def _forward_context(self) -> AbstractContextManager[Any]:
        return forward_context(self.device, self.choices.get("precision", FLOAT32))

    def _losses(self, scores: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The loss of this process's part, to differentiate, and that of the whole batch."""
        if self.skips:
            each = nn.functional.cross_entropy(scores, labels, reduction="none")
            mean = each[each.isfinite()].mean()
            return mean, mean
        if self.team.size == 1 and self.choices["loss"] == "erm":
            mean = nn.functional.cross_entropy(scores, labels)  # torch's own is a single operation
            return mean, mean
        each = nn.functional.cross_entropy(scores, labels, reduction="none")
        if self.team.size == 1:
            whole = self.loss(each).loss
            return whole, whole
        # The gradient of a robust loss is its weights, which need all samples; DDP divides by the number of processes.
        found = self.loss(self.team.gather(each, size))
        return (each * self.team.part(found.weights)).sum() * self.team.size, found.loss

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; on the CPU, so that it can be read on any machine."""
        weights = self.model.state_dict()
        for name, value in weights.items():  # in place: the dict also knows the versions of the layers
            weights[name] = moved(value, torch.device(CPU))
        return {
            "model": weights,
            "optimizer": moved(self.optimizer.state_dict(), torch.device(CPU)),
            "done": self.done,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]


@torch.no_grad()
def correct(model: nn.Module, split: Split, team: Team | None = None, top: int = 1) -> Tensor:
    """Which samples are classified correctly, in evaluation mode; scores that are not finite are wrong.

    Each process of a team tests its part, on the device of the model.
    """
    team, home = team or Team(), home_of(model)
    model.eval()
    mine = split.take(team.part(torch.arange(len(split)))) if team.size > 1 else split
    batches = (moved(batch, home) for batch in in_order(mine, _TEST_BATCH))
    found = [_hits(batch.scores(model), batch.labels, top) for batch in batches]
    right = torch.cat(found).cpu() if found else torch.zeros(0, dtype=torch.bool)
    return team.gather(right.to(torch.uint8), len(split)).bool()


def _hits(scores: Tensor, labels: Tensor, top: int) -> Tensor:
    """Whether the label has one of the ``top`` scores. A NaN ranks first, but must not count as correct."""
    best = scores.topk(min(top, scores.shape[1])).indices
    return (best == labels.unsqueeze(1)).any(1) & scores.isfinite().all(1)


def decayed(kind: str, passed: float, milestones: Sequence[float] = ()) -> float:
    """The factor on the learning rate after a fraction of the epochs."""
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
