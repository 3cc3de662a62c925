"""One training, epoch by epoch; its whole state can be saved and taken up again, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..nn._base import NormLayer
from ..robust.accuracy import check_scores
from .batches import in_order, shuffled
from .choices import parse_loss
from .data import Split, Task

_TEST_BATCH = 512


class Training:
    """A model, its optimizer, and the samples it learns from.

    Args:
        model: gives scores of the classes.
        task: the samples.
        choices: batch_size, optimizer, lr, momentum, weight_decay, decay, epochs, loss and seed, as in a recipe.
    """

    def __init__(self, model: nn.Module, task: Task, choices: Mapping[str, Any]) -> None:
        self.model, self.task, self.choices = model, task, choices
        self.loss = parse_loss(choices["loss"])
        rate, decay = choices["lr"], choices["weight_decay"]
        self.optimizer: torch.optim.Optimizer
        if choices["optimizer"] == "adam":
            self.optimizer = torch.optim.Adam(model.parameters(), rate, weight_decay=decay)
        else:
            self.optimizer = torch.optim.SGD(model.parameters(), rate, choices["momentum"], weight_decay=decay)
        self.done = 0

    def epoch(self) -> dict[str, Any]:
        """Train one epoch and test; the figures."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.choices["lr"] * decayed(self.choices["decay"], self.done / self.choices["epochs"])
        self.model.train()
        total, number = 0.0, 0
        for batch in shuffled(self.task.train, self.choices["batch_size"], self.choices["seed"], self.done):
            scores = batch.scores(self.model)
            if not self.done and not number:  # in words, once
                check_scores(scores, batch.labels)
            each = nn.functional.cross_entropy(scores, batch.labels, reduction="none")
            loss = self.loss(each).loss
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, number = total + loss.item() * len(batch.labels), number + len(batch.labels)
        self.done += 1
        right = correct(self.model, self.task.test)
        figures = {"loss": total / max(1, number), "accuracy": float(right.double().mean())}
        exponents = learned_exponents(self.model)
        return {**figures, "phi": exponents} if exponents else figures

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
            "random": torch.get_rng_state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]
        torch.set_rng_state(state["random"])


@torch.no_grad()
def correct(model: nn.Module, split: Split) -> Tensor:
    """Which samples are classified rightly, in evaluation mode; scores that are not finite are wrong."""
    model.eval()
    found = []
    for batch in in_order(split, _TEST_BATCH):
        scores = batch.scores(model)
        found.append((scores.argmax(1) == batch.labels) & scores.isfinite().all(1))  # argmax calls NaN the largest
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)


def decayed(kind: str, passed: float) -> float:
    """The factor on the learning rate when a share of the epochs has passed."""
    if kind == "linear":
        return 1 - passed
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * passed))
    if kind == "step":
        return 1.0 if passed < 0.5 else 0.1 if passed < 0.75 else 0.01
    return 1.0


def learned_exponents(model: nn.Module) -> dict[str, float]:
    """The mean φ of every layer that learns it, by name."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, NormLayer)]
    return {name: float(torch.as_tensor(layer.phi).detach().mean()) for name, layer in layers if layer.learn_phi}
