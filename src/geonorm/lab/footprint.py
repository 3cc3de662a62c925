"""The memory of a training step: what the forward pass keeps for the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..introspect.observe import state_restored
from .batches import Batch


def bytes_kept(model: nn.Module, batch: Batch) -> int:
    """Bytes that a forward pass in training keeps until the backward pass; parameters are there anyway.

    A storage that several operations keep counts once. The model is left as it was.

    Args:
        model: the network.
        batch: the samples of one step.

    Examples:
        >>> import torch
        >>> from geonorm.lab.batches import Batch
        >>> from geonorm.lab.footprint import bytes_kept
        >>> batch = Batch((torch.randn(8, 4),), torch.zeros(8))
        >>> bytes_kept(torch.nn.Linear(4, 2), batch)  # its input: 8 x 4 values of 4 bytes
        128
    """
    ours = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:  # the edges of graphs, the same under every norm
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ours:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with state_restored(model), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        batch.scores(model.train())
    return sum(kept.values())
