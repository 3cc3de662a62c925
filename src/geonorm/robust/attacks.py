"""Attacks inside the l∞ ball: one step (FGSM), several (BIM), several from a random start (PGD).

torchattacks runs them where it is installed and supports the case. Otherwise the loop below does the same; a test
compares the two.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .accuracy import check_scores

BACKENDS = ("auto", "torchattacks", "own")


def fgsm(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    eps: float = 8 / 255,
    *,
    between: tuple[float, float] = (0.0, 1.0),
    backend: str = "auto",
) -> Tensor:
    """The fast gradient sign method: one step of size eps up the loss.

        x + eps · sign ∇ₓ loss        clipped to ``between``

    The model is attacked in evaluation mode and left unchanged; its parameters get no gradients.

    Args:
        model: returns scores ``(N, classes)`` for inputs in ``between``; see ``Standardize`` for other input ranges.
        x: inputs.
        labels: their classes ``(N,)``; the loss is cross entropy.
        eps: largest change of a value.
        between: range of valid inputs.
        backend: ``"auto"``, ``"torchattacks"`` or ``"own"``.

    Examples:
        >>> import torch
        >>> from geonorm.robust import fgsm
        >>> model = torch.nn.Linear(4, 2).eval()
        >>> x = torch.full((3, 4), 0.5)
        >>> bool(((fgsm(model, x, torch.tensor([0, 1, 0]), 0.1) - x).abs() - 0.1).abs().max() < 1e-6)
        True
    """
    return _run("FGSM", model, x, labels, between, backend, {"eps": eps})


def bim(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    eps: float = 8 / 255,
    *,
    step: float = 2 / 255,
    steps: int = 10,
    between: tuple[float, float] = (0.0, 1.0),
    backend: str = "auto",
) -> Tensor:
    """The basic iterative method: several steps up the loss, each clipped to the l∞ ball; PGD from x itself.

        x_{k+1} = clip(x_k + step · sign ∇ₓ loss(x_k))        to |x_k − x| ≤ eps and ``between``

    Args:
        model, x, labels, eps, between, backend: as in ``fgsm``.
        step: size of a step.
        steps: number of steps, at least 1.

    Examples:
        >>> import torch
        >>> from geonorm.robust import bim
        >>> model = torch.nn.Linear(4, 2).eval()
        >>> x = torch.full((3, 4), 0.5)
        >>> bool(((bim(model, x, torch.tensor([0, 1, 0]), 0.1, step=0.03) - x).abs() - 0.1).abs().max() < 1e-6)
        True
    """
    return _run("BIM", model, x, labels, between, backend, {"eps": eps, "alpha": step, "steps": steps})


def pgd(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    eps: float = 8 / 255,
    *,
    step: float = 2 / 255,
    steps: int = 10,
    between: tuple[float, float] = (0.0, 1.0),
    backend: str = "auto",
) -> Tensor:
    """Projected gradient descent: BIM from a random point of the l∞ ball. It draws from torch's random state.

    Args:
        model, x, labels, eps, between, backend: as in ``fgsm``.
        step: size of a step.
        steps: number of steps, at least 1.

    Examples:
        >>> import torch
        >>> from geonorm.robust import pgd
        >>> model = torch.nn.Linear(4, 2).eval()
        >>> x = torch.full((3, 4), 0.5)
        >>> bool((pgd(model, x, torch.tensor([0, 1, 0]), 0.1) - x).abs().max() < 0.1 + 1e-6)
        True
    """
    return _run("PGD", model, x, labels, between, backend, {"eps": eps, "alpha": step, "steps": steps})


def _run(
    kind: str,
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    between: tuple[float, float],
    backend: str,
    sizes: dict[str, Any],  # by torchattacks' names
) -> Tensor:
    low, high = between
    if not low < high:
        raise ValueError(f"expected between=(low, high) with low < high (got {between})")
    eps, step, steps = sizes["eps"], sizes.get("alpha", 0.0), sizes.get("steps", 1)
    if not eps >= 0 or not step >= 0 or steps < 1:
        raise ValueError(f"expected eps >= 0, step >= 0 and steps >= 1 (got eps={eps}, step={step}, steps={steps})")
    if not x.is_floating_point():
        raise TypeError(f"expected floating-point inputs (got {x.dtype}); attack x / 255 if they are bytes")
    if x.numel() and (float(x.min()) < low or float(x.max()) > high):
        raise ValueError(
            f"expected inputs in {between} (got {float(x.min()):.4g} to {float(x.max()):.4g}); put geonorm.robust."
            "Standardize before a model of standardized inputs, or pass between="
        )
    if not x.numel():
        return x.clone()
    with _evaluation(model), torch.enable_grad():
        if _uses_torchattacks(backend, model, x, between):
            import torchattacks

            attacked: Tensor = getattr(torchattacks, kind)(model, **sizes)(x, labels)
            return attacked
        if kind == "FGSM":
            sizes = {**sizes, "alpha": sizes["eps"], "steps": 1}
        return _ascend_loss(model, x.detach(), labels, sizes, between, random_start=kind == "PGD")


def _ascend_loss(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    sizes: dict[str, Any],
    between: tuple[float, float],
    random_start: bool,
) -> Tensor:
    eps, (low, high) = sizes["eps"], between
    floor, ceiling = (x - eps).clamp(min=low), (x + eps).clamp(max=high)
    attacked = x
    if random_start:
        attacked = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(low, high)
    for _ in range(sizes["steps"]):
        attacked = attacked.detach().requires_grad_()
        scores = model(attacked)
        check_scores(scores, labels)
        loss = nn.functional.cross_entropy(scores, labels)
        (gradient,) = torch.autograd.grad(loss, attacked)
        attacked = torch.minimum(torch.maximum(attacked.detach() + sizes["alpha"] * gradient.sign(), floor), ceiling)
    return attacked.detach()


def _uses_torchattacks(backend: str, model: nn.Module, x: Tensor, between: tuple[float, float]) -> bool:
    """Whether torchattacks runs the attack: it needs inputs in [0, 1], float32 or float64, and a model's parameters."""
    if backend not in BACKENDS:
        raise ValueError(f"expected backend to be one of {BACKENDS} (got {backend!r})")
    if backend == "own":
        return False
    there = importlib.util.find_spec("torchattacks") is not None
    fits = between == (0.0, 1.0) and x.dtype in (torch.float32, torch.float64) and any(True for _ in model.parameters())
    if backend == "torchattacks" and not there:
        raise ImportError(
            "expected torchattacks for backend='torchattacks'; pip install torchattacks, or use backend='own'"
        )
    if backend == "torchattacks" and not fits:
        raise ValueError(
            f"expected between=(0, 1), float32 or float64 and a model with parameters for backend='torchattacks' "
            f"(got {between}, {x.dtype}); use backend='own'"
        )
    return there and fits


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module gets its former mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
