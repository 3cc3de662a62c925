"""The user's own samples: any dataset, loader or iterable of batches, checked and loaded into memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from .data import Split


def in_memory(data: Split | Dataset[Any] | Iterable[Any], name: str) -> Split:
    """All samples with their labels.

    Args:
        data: a dataset of (input, label); or a loader, or any iterable, of batches of them.
        name: of the data, for messages.

    Examples:
        >>> import torch
        >>> from geonorm.lab.samples import in_memory
        >>> len(in_memory([(torch.zeros(3, 2), torch.tensor([0, 1, 1]))], "train"))
        3
    """
    if isinstance(data, Split):
        return data
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        raise ValueError(f"expected {name} to be a dataset or a loader (got two tensors); make TensorDataset(x, y)")
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        pairs, one_by_one = [data[i] for i in range(len(data))], True  # type: ignore[arg-type]
    elif isinstance(data, Iterable):
        pairs, one_by_one = list(data), isinstance(data, IterableDataset)
    else:
        raise ValueError(f"expected {name} to be a dataset or a loader (got {type(data).__name__})")
    if not pairs:
        raise ValueError(f"expected samples in {name} (got none)")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"expected {name} to contain pairs of input and label (got {type(pair).__name__})")
    inputs, labels = ([_tensor(pair[place], name) for pair in pairs] for place in (0, 1))
    join = torch.stack if one_by_one else torch.cat
    try:
        x, y = join(inputs), join(labels)
    except RuntimeError as error:
        raise ValueError(f"expected inputs of one shape in {name}, and their labels ({error})") from error
    return Split(x, _class_numbers(y, name))


def _tensor(value: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"expected inputs and labels in {name} that are tensors, arrays or numbers (got {type(value).__name__}); "
            "turn them into tensors in the dataset"
        ) from error


def _class_numbers(labels: Tensor, name: str) -> Tensor:
    """Labels as int64; anything other than one class number per sample raises, and nothing is rounded."""
    if labels.dim() != 1:
        raise ValueError(
            f"expected one class number per sample in {name} (got labels of shape {tuple(labels.shape)}); for one-hot "
            "labels take argmax(1)"
        )
    numbers = labels.long()
    if not torch.equal(numbers.to(labels.dtype), labels):
        raise ValueError(
            f"expected class numbers as labels in {name} (got {labels[:3].tolist()}); targets of a "
            "regression cannot be compared here"
        )
    if len(numbers) and numbers.min() < 0:
        raise ValueError(f"expected labels from 0 in {name} (got {int(numbers.min())}); number the classes from 0")
    return numbers
