"""What the callbacks of every framework do: watch a training, diagnose it, screen its data, recalibrate at its end."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from ..analysis import Diagnosis, Monitor, diagnose
from ..analysis.growth.log import Send
from ..introspect.observe import Forward
from ..robust import Screening, screen
from ..surgery import Report, recalibrate

logger = logging.getLogger("geonorm")


class TrainingWatch:
    """What to do during a training. A framework's callback calls it, or your own loop does:

        watch = TrainingWatch(diagnose_every=500, recalibrate=True)
        watch.start(model, optimizer, loader)
        for x, y in loader:
            ...; loss.backward(); optimizer.step(); watch.step(model, loader, loss)
        watch.end(model, loader)

    Args:
        every, file, log: as in ``Monitor``. With ``every=None`` there is no monitor.
        diagnose_every: run ``diagnose`` after this many optimizer steps, again and again; never by default.
        screen: run ``screen`` on the training data before the first step.
        recalibrate: recompute the running statistics at the end of training.
        guard: for the recalibration, as in ``geonorm.recalibrate``.
        batches: how many training batches a diagnosis or the recalibration reads.
        forward: how to call the model on a batch, ``forward(model, batch)``, where its first entry is not enough.

    Attributes:
        monitor: the ``Monitor``, during and after training.
        screening: the result of ``screen``.
        diagnoses: results of ``diagnose``, by the number of steps after which each was made.
        recalibration: the report of ``recalibrate``.

    Examples:
        >>> import torch
        >>> from geonorm.integrations import TrainingWatch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
        >>> optimizer, batches = torch.optim.SGD(model.parameters(), lr=0.1), [torch.randn(16, 4)]
        >>> watch = TrainingWatch(every=1, recalibrate=True)
        >>> watch.start(model, optimizer, batches)
        >>> loss = model(batches[0]).square().mean()
        >>> loss.backward()
        >>> optimizer.step()
        >>> watch.step(model, batches, loss)
        >>> watch.end(model, batches)
        >>> len(watch.monitor.result().records), watch.recalibration.changed[0].after
        (1, '16 values in 1 batch')
    """

    def __init__(
        self,
        *,
        every: int | None = 50,
        file: str | Path | None = None,
        log: Send | None = None,
        diagnose_every: int | None = None,
        screen: bool = False,
        recalibrate: bool = False,
        guard: float | None = None,
        batches: int = 16,
        forward: Forward | None = None,
    ) -> None:
        for name, number in (("every", every), ("diagnose_every", diagnose_every), ("batches", batches)):
            if number is not None and number < 1:
                raise ValueError(f"expected {name} >= 1 (got {number})")
        if every is None and (file is not None or log is not None):
            raise ValueError("expected every= with file= or log= (got every=None, which records nothing)")
        if guard is not None and not recalibrate:
            raise ValueError("expected recalibrate=True with guard= (got False): the guard is for the recalibration")
        self._every, self._file, self._log = every, file, log
        self._diagnose_every, self._screens, self._recalibrates = diagnose_every, screen, recalibrate
        self._guard, self._batches, self._forward = guard, batches, forward
        self.forget()

    def forget(self) -> None:
        """Start over, for another training."""
        self.monitor: Monitor | None = None
        self.screening: Screening | None = None
        self.diagnoses: dict[int, Diagnosis] = {}
        self.recalibration: Report | None = None
        self._steps, self._is_alone = 0, True
        self._said: set[tuple[str, str]] = set()

    def start(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        data: Iterable[Any],
        log: Send | None = None,
        processes: int = 1,
        is_first: bool = True,
    ) -> None:
        """Before the first step.

        Args:
            model, optimizer, data: of the training; data is what its loop iterates over.
            log: where curves go if the user did not say.
            processes: how many train together. With several, only the first one records, and nothing is run beside
                the training: a synced layer that runs in one process would wait for the others.
            is_first: whether this is the first of them.
        """
        if isinstance(data, Iterator) and (self._diagnose_every or self._recalibrates):
            raise TypeError(
                f"expected data that can be read again (got {type(data).__name__}): diagnose and recalibrate would "
                "take batches away from the training; pass the DataLoader itself"
            )
        self.forget()
        self._is_alone = processes == 1
        if self._every is not None and is_first:
            self.monitor = Monitor(model, optimizer, every=self._every, file=self._file, log=self._log or log)
        if not self._is_alone and (self._screens or self._diagnose_every):
            logger.warning("geonorm: screen and diagnose run in trainings of one process only; they are left out")
        elif self._screens:
            self._screen(model, data)

    def step(self, model: nn.Module, data: Iterable[Any], loss: Any = None) -> None:
        """After each step of the optimizer."""
        self._steps += 1
        if self.monitor is not None:
            self.monitor.step(loss)
        if self._is_alone and self._diagnose_every and self._steps % self._diagnose_every == 0:
            found = diagnose(model, _first(data, self._batches), self._forward)
            self.diagnoses[self._steps] = found
            for finding in found.findings:
                if finding.severity != "note" and (finding.layer, finding.what) not in self._said:
                    self._said.add((finding.layer, finding.what))
                    logger.warning("geonorm, step %d: %s: %s", self._steps, finding.layer or "model", finding.what)

    def end(self, model: nn.Module, data: Iterable[Any]) -> None:
        """After the last step."""
        self.close()
        if self._recalibrates:
            some = list(_first(data, self._batches))
            self.recalibration = recalibrate(model, some, self._forward, guard=self._guard)

    def close(self) -> None:
        """Remove the hooks, also after an error."""
        if self.monitor is not None:
            self.monitor.close()

    def _screen(self, model: nn.Module, data: Iterable[Any]) -> None:
        ordered = in_order(data)
        if ordered is None:
            logger.warning("geonorm: the training data have no fixed order, so screen cannot name samples; left out")
            return
        self.screening = screen(model, ordered, self._forward)
        if self.screening.broken:
            logger.warning("geonorm: %s", self.screening.headline())


def _first(data: Iterable[Any], number: int) -> Iterator[Any]:
    """The first batches. Asked for one by one: to begin a loader draws random numbers, which ``diagnose`` restores."""
    yield from itertools.islice(data, number)


def in_order(data: Iterable[Any]) -> Iterable[Any] | None:
    """The batches of a loader in the order of its data set, so that an index names a sample; None if there is none."""
    dataset: Any = getattr(data, "dataset", None)
    if dataset is None:
        return data if isinstance(data, (list, tuple)) else None
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return None
    size, collate = getattr(data, "batch_size", None), getattr(data, "collate_fn", None)
    return DataLoader(dataset, batch_size=size or 64, collate_fn=collate)
