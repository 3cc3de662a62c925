"""``Monitor``: sizes of weights during training, and their effects."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...introspect.invariance import Unit
from ...introspect.scale_parts import parts_by_table, parts_of
from ...introspect.select import check_model
from .log import Growth, Log, Send
from .norms import NormHook, norm_watches
from .weights import WeightWatch


class Monitor:
    """Watches a training loop: sizes of scale-invariant weights, effective learning rates, statistics of norms.

        with Monitor(model, optimizer, file="growth.jsonl") as monitor:
            for x, y in batches:
                ...; loss.backward(); optimizer.step(); monitor.step(loss)

    Every ``every``-th step is recorded. For each weight that is scale invariant, over its parts w (rows, groups or the
    whole matrix): its size ‖W‖; for SGD the effective learning rate η/‖w‖²; how much ‖W‖² grew in the step, and how
    much plain SGD predicts, η²‖∇‖² − (2ηλ − η²λ²)‖W‖²; and the size at which growth and weight decay balance,
    ‖w‖⁴ = ηE‖g̃‖²/(2λ(1 − m)) with g̃ = ‖w‖·∇ and momentum m. For each batch norm: the gaps |γ² − σ²| and |β − μ| to the
    moments of its input: raw, with ‖W‖ = 1 and no bias before it, and with the running moments; how far the running
    statistics lag; learned φ and α; if it is guarded, the samples pulled in the step, those not finite, and the share
    of batches with a pull. After 20 batches, a guard that pulled samples in more than half of them warns once.

    Only recorded steps cost time. A compiled model ignores hooks that are added later: gaps and lag may be missing.

    Args:
        model: the model in training; it is not changed.
        optimizer: its optimizer, or a wrapper that holds it as ``optimizer``, such as Accelerate's. Without one there
            is no learning rate, no prediction and no equilibrium.
        every: record one step in this many, including the first.
        file: append each record to this file at once, as one line of JSON; step numbers continue from its last record.
        log: a function of (values, step) that gets at most eight curves of each recorded step, such as ``wandb.log``
            or ``mlflow.log_metrics``; ``geonorm.analysis.growth.curves.curves`` says which.
        tensorboard: a folder, or a ``SummaryWriter``, for the same curves; needs the tensorboard package.
        units: the result of ``invariance``; by default the known table is used, without running the model.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import Monitor
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)).double()
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with Monitor(model, optimizer, every=1) as monitor:
        ...     for _ in range(3):
        ...         loss = model(torch.randn(16, 4).double()).square().mean()
        ...         optimizer.zero_grad()
        ...         loss.backward()
        ...         optimizer.step()
        ...         monitor.step(loss)
        >>> last = monitor.result().records[-1]["weights"]["0.weight"]
        >>> abs(last["growth"] / last["predicted"] - 1) < 1e-2  # eps is the rest
        True
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        every: int = 50,
        file: str | Path | None = None,
        log: Send | None = None,
        tensorboard: Any = None,
        units: Iterable[Unit] | None = None,
    ) -> None:
        check_model(model, "monitor")
        if every < 1:
            raise ValueError(f"expected every >= 1 (got {every})")
        optimizer = None if optimizer is None else _innermost(optimizer)
        parts = parts_by_table(model) if units is None else parts_of(units)
        self._weights = [WeightWatch(model, part, optimizer) for part in parts]
        self._norms = norm_watches(model)
        self._guards = [norm.guard for norm in self._norms if norm.guard is not None]
        self._optimizer, self._every = optimizer, every
        self._log = Log(file, tensorboard, log)
        self._steps = self._log.next_step
        self._handles: list[Any] = []
        self._is_armed = False
        self._arm()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Call after each ``optimizer.step()``."""
        if self._log.closed:
            raise RuntimeError("expected an open monitor (got a closed one); create a new one")
        if self._is_armed:
            self._disarm()
            self._log.write(
                {
                    "step": self._steps,
                    "loss": None if loss is None else float(torch.as_tensor(loss).detach()),
                    "weights": {watch.name: watch.record() for watch in self._weights},
                    "norms": {watch.name: watch.record() for watch in self._norms},
                }
            )
        self._steps += 1
        if self._steps % self._every == 0:
            self._arm()
        for guard in self._guards:
            guard.warn()

    def result(self) -> Growth:
        """The records so far."""
        return Growth(list(self._log.records))

    def close(self) -> None:
        """Remove the hooks and close the file."""
        self._disarm()
        self._log.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arm(self) -> None:
        """Add hooks for the step to be recorded; other steps have none."""
        self._is_armed = True
        for norm in self._norms:
            norm.forget()
            self._handles.append(norm.module.register_forward_pre_hook(NormHook(norm), with_kwargs=True))
        for weight in self._weights:
            weight.forget()
        if self._optimizer is not None:
            # Right before and after the step: later, the loop may clear gradients or change weights.
            self._handles.append(self._optimizer.register_step_pre_hook(self._before_step))
            self._handles.append(self._optimizer.register_step_post_hook(self._after_step))

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*(value for value in args if not isinstance(value, Optimizer)), *kwargs.values()]
        for weight in self._weights:
            weight.before(any(callable(value) for value in given))

    def _after_step(self, *_: Any) -> None:
        for weight in self._weights:
            weight.after()

    def _disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._is_armed = False


def _innermost(optimizer: Any) -> Optimizer:
    """The optimizer that makes the steps: a wrapper only passes them on, and calls no hooks."""
    given = optimizer
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, Optimizer) or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(
            "expected optimizer to be a torch.optim.Optimizer, or a wrapper that holds one as .optimizer "
            f"(got {type(given).__name__}); pass the optimizer that makes the steps"
        )
    return optimizer
