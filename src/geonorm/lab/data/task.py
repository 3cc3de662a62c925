"""A learning task: training and test samples, with labels and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...introspect.moments import PooledMoments
from ..extras import require
from .errors import DataError
from .images import ImageFiles


@dataclass(frozen=True, eq=False)
class Split:
    """Samples with their labels.

    Attributes:
        x: a tensor with samples along dimension 0 (images float32 in [0, 1], NCHW); ``ImageFiles``, images that are
            read on access; or a list of torch_geometric graphs.
        y: labels, int64.
        groups: membership, bool of shape (samples, groups); groups may overlap.

    Examples:
        >>> import torch
        >>> from geonorm.lab.data import Split
        >>> len(Split(torch.zeros(5, 3), torch.arange(5)).take(torch.tensor([0, 3])))
        2
    """

    x: Tensor | ImageFiles | list[Any]
    y: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.x), len(self.y), *([] if self.groups is None else [len(self.groups)])}
        if len(lengths) != 1:
            raise ValueError(f"expected as many labels and rows of groups as samples (got lengths {sorted(lengths)})")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> Split:
        """The samples at these places, in this order."""
        x: Tensor | ImageFiles | list[Any]
        if isinstance(self.x, list):
            x = [self.x[i] for i in index.tolist()]
        elif isinstance(self.x, ImageFiles):
            x = self.x.take_samples(index)
        else:
            x = self.x[index]
        return Split(x, self.y[index], None if self.groups is None else self.groups[index])

    def sample(self, number: int) -> Split:
        """This many random samples, always the same ones. The first ones of an image folder would be of one class."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(order[:number].sort().values)

    def tensor(self) -> Tensor:
        """The samples as a tensor; reads images from their files."""
        if isinstance(self.x, list):
            raise ValueError("expected samples that are tensors (got graphs)")
        return self.x[torch.arange(len(self.x))] if isinstance(self.x, ImageFiles) else self.x


@dataclass(frozen=True, eq=False)
class Task:
    """Data to train and test on.

    Attributes:
        name: of the data.
        train, test, valid: the samples.
        classes: number of labels.
        input_shape: of one sample: (channels, height, width), or (features,), of a node for graphs.
        mean, std: of the training samples per channel or feature, for ``Standardize`` in the model; ImageNet's where
            images stay in files; not for graphs.
        group_names, class_names: one for each column of groups, and for each label.
        official: whether train and test are the published split, or were drawn here.
        note: what a reader of the results must know.
        test_folds: places of the test samples of each published fold.
    """

    name: str
    train: Split
    test: Split
    classes: int
    input_shape: tuple[int, ...]
    valid: Split | None = None
    mean: Tensor | None = None
    std: Tensor | None = None
    group_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    official: bool = True
    note: str = ""
    test_folds: tuple[Tensor, ...] = ()

    def folds(self, k: int = 10, seed: int = 0) -> list[Task]:
        """The task split for cross-validation: k folds with equal numbers of each label; every sample is tested once.

        If the train-test split is published, its test samples are not used.

        Args:
            k: number of folds.
            seed: of the shuffling.

        Examples:
            >>> from geonorm.lab.data import load
            >>> [len(fold.test) for fold in load("digits").folds(4)]
            [450, 449, 449, 449]
        """
        return [self.fold(number, k, seed) for number in range(k)]

    def fold(self, number: int, k: int = 10, seed: int = 0) -> Task:
        """One of the ``folds``, counted from 0. Each fold copies all samples, so use one at a time for large data."""
        pool = self.pool()
        splitter = require("sklearn.model_selection", "scikit-learn").StratifiedKFold(
            k, shuffle=True, random_state=seed
        )
        train, test = list(splitter.split(pool.y.numpy(), pool.y.numpy()))[number]
        return self._fold(pool, torch.from_numpy(train), torch.from_numpy(test))

    def published_folds(self) -> list[Task]:
        """The task split into the folds that came with the data; all other samples are for training."""
        if not self.test_folds:
            raise DataError(
                f"{self.name} came without folds; use folds(k, seed), or load TU graphs with layout='one-file'"
            )
        pool, found = self.pool(), []
        for test in self.test_folds:
            is_train = torch.ones(len(pool), dtype=torch.bool)
            is_train[test] = False
            found.append(self._fold(pool, is_train.nonzero().flatten(), test))
        return found

    def pool(self) -> Split:
        """The samples for folds: the training samples, and the test samples too unless the split is published."""
        return self.train if self.official or not len(self.test) else joined(self.train, self.test)

    def _fold(self, pool: Split, train: Tensor, test: Tensor) -> Task:
        fold = replace(self, train=pool.take(train), test=pool.take(test), official=True, test_folds=())
        if self.mean is None or not isinstance(fold.train.x, Tensor):
            return fold
        mean, std = statistics(fold.train.x)
        return replace(fold, mean=mean, std=std)


def joined(first: Split, second: Split) -> Split:
    """The samples of both splits, in this order."""
    groups = None if first.groups is None or second.groups is None else torch.cat([first.groups, second.groups])
    if isinstance(first.x, list) and isinstance(second.x, list):
        return Split(first.x + second.x, torch.cat([first.y, second.y]), groups)
    return Split(torch.cat([first.tensor(), second.tensor()]), torch.cat([first.y, second.y]), groups)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel, computed in float64."""
    moments = PooledMoments()
    for part in x.split(4096):  # a float64 copy of large data would not fit into memory
        moments.add(part.double())
    return moments.mean.float(), moments.var().sqrt().float()


def clipped(task: Task, bound: float) -> Task:
    """A task with samples clipped at ``bound`` standard deviations from the mean, per channel; 0 for no clipping.

    Mean and deviation are the task's own. NaN stays.

    Examples:
        >>> import torch
        >>> from geonorm.lab.data import Split, Task, clipped
        >>> split = Split(torch.tensor([[0.5], [99.0]]), torch.tensor([0, 1]))
        >>> task = Task("two", split, split, 2, (1,), mean=torch.zeros(1), std=torch.ones(1))
        >>> clipped(task, 5).train.x.flatten()
        tensor([0.5000, 5.0000])
    """
    if not bound:
        return task
    if task.mean is None or task.std is None or not isinstance(task.train.x, Tensor):
        raise ValueError(f"expected samples that are tensors, with mean and std, to clip them (got {task.name})")
    shape = (-1, *[1] * (task.train.x.dim() - 2))
    middle, reach = task.mean.view(shape), bound * task.std.view(shape)

    def within(split: Split) -> Split:
        return replace(split, x=split.tensor().clamp(middle - reach, middle + reach))

    valid = None if task.valid is None else within(task.valid)
    return replace(task, train=within(task.train), test=within(task.test), valid=valid)


def check_share(test_share: float) -> None:
    """Raise unless samples are left both to train and to test on."""
    if not 0 < test_share < 1:
        raise ValueError(f"expected test_share between 0 and 1 (got {test_share})")


def drawn(y: Sequence[int] | Tensor, size: int | None, seed: int) -> Tensor:
    """Places of ``size`` random samples with equal numbers of each label, in order; all samples if ``size`` is None."""
    labels = torch.as_tensor(y)
    if size is None or size >= len(labels):
        return torch.arange(len(labels))
    split = require("sklearn.model_selection", "scikit-learn").train_test_split
    number = len(labels.unique())
    if not number <= size <= len(labels) - number:
        raise ValueError(f"expected a size from {number} to {len(labels) - number} or all {len(labels)} (got {size})")
    kept, _ = split(range(len(labels)), train_size=size, stratify=labels.numpy(), random_state=seed)
    return torch.tensor(sorted(kept))
