"""A learning task: samples to train on and samples to test on, with labels and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..extras import require
from .errors import DataError
from .images import ImageFiles


@dataclass(frozen=True, eq=False)
class Split:
    """Samples with their labels.

    Attributes:
        x: a tensor with samples along dimension 0 (images float32 in [0, 1], NCHW); ``ImageFiles`` for images that are
            read when they are asked for; or a list of torch_geometric graphs.
        y: labels, int64.
        groups: which samples belong to which groups, bool of shape (samples, groups); groups may overlap.

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
        """The samples at some places, in their order."""
        x: Tensor | ImageFiles | list[Any]
        if isinstance(self.x, list):
            x = [self.x[i] for i in index.tolist()]
        elif isinstance(self.x, ImageFiles):
            x = self.x.take_samples(index)
        else:
            x = self.x[index]
        return Split(x, self.y[index], None if self.groups is None else self.groups[index])

    def sample(self, number: int) -> Split:
        """So many samples, always the same ones. Drawn: the first of a folder of images would be of one class."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(order[:number].sort().values)

    def tensor(self) -> Tensor:
        """The samples as a tensor; reads all images that are still in files."""
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
        group_names, class_names: as many as there are columns of groups, and labels.
        official: whether train and test are the published split; if not they were drawn here.
        note: what one must know when reading results.
        test_folds: places of the test samples of each published fold, among all samples.
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
        """The task cut for cross-validation: every sample is tested once, in k folds with equal shares of labels.

        Where the split is published the test samples stay out of it.

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
        """One of the ``folds``, counted from 0: each copies all samples, so large data take one at a time."""
        pool = self.pool()
        splitter = require("sklearn.model_selection", "scikit-learn").StratifiedKFold(
            k, shuffle=True, random_state=seed
        )
        train, test = list(splitter.split(pool.y.numpy(), pool.y.numpy()))[number]
        return self._fold(pool, torch.from_numpy(train), torch.from_numpy(test))

    def published_folds(self) -> list[Task]:
        """The task cut into the folds that came with the data; train is all that is not tested."""
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
        """What folds are cut from: the training samples, and the test samples too unless the split is published."""
        return self.train if self.official or not len(self.test) else joined(self.train, self.test)

    def _fold(self, pool: Split, train: Tensor, test: Tensor) -> Task:
        fold = replace(self, train=pool.take(train), test=pool.take(test), official=True, test_folds=())
        if self.mean is None or not isinstance(fold.train.x, Tensor):
            return fold
        mean, std = statistics(fold.train.x)
        return replace(fold, mean=mean, std=std)


def joined(first: Split, second: Split) -> Split:
    """The samples of both, in this order."""
    groups = None if first.groups is None or second.groups is None else torch.cat([first.groups, second.groups])
    if isinstance(first.x, list) and isinstance(second.x, list):
        return Split(first.x + second.x, torch.cat([first.y, second.y]), groups)
    return Split(torch.cat([first.tensor(), second.tensor()]), torch.cat([first.y, second.y]), groups)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel, in double precision inside."""
    dims = [0, *range(2, x.dim())]
    number = x.numel() / x.shape[1]
    mean = x.sum(dims, dtype=torch.float64) / number
    # In parts: a copy of large data in double precision would not fit.
    parts = [(part.double() - mean.view(-1, *[1] * (x.dim() - 2))).square().sum(dims) for part in x.split(4096)]
    return mean.float(), (torch.stack(parts).sum(0) / number).sqrt().float()


def clipped(task: Task, bound: float) -> Task:
    """A task whose samples are clipped at so many standard deviations from the mean, channel by channel; 0 for none.

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
    """Places of ``size`` samples with equal shares of labels, in order; all of them without a size."""
    labels = torch.as_tensor(y)
    if size is None or size >= len(labels):
        return torch.arange(len(labels))
    split = require("sklearn.model_selection", "scikit-learn").train_test_split
    number = len(labels.unique())
    if not number <= size <= len(labels) - number:
        raise ValueError(f"expected a size from {number} to {len(labels) - number} or all {len(labels)} (got {size})")
    kept, _ = split(range(len(labels)), train_size=size, stratify=labels.numpy(), random_state=seed)
    return torch.tensor(sorted(kept))
