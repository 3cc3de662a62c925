"""The processes that train one model together under torchrun; usually a single one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..surgery import sync
from .devices import CPU, CUDA

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """The processes of one training. Each has a part of every batch; the first one reads and writes the results.

    Attributes:
        rank: the number of this process.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def started(cls, device: str = CPU) -> Team:
        """The processes that torchrun started, or this one alone. On CUDA each has a GPU of its own."""
        if not dist.is_torchelastic_launched():
            return cls()
        if device == CUDA:
            local, here = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
            if local >= here:
                raise ValueError(
                    f"expected a GPU for each process of torchrun on this machine (got {here} for at least {local + 1} "
                    f"processes): start it with --nproc-per-node {here}"
                )
            torch.cuda.set_device(local)
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device == CUDA else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this is the first process."""
        return self.rank == 0

    def part(self, index: Tensor) -> Tensor:
        """The samples of this process."""
        return index.tensor_split(self.size)[self.rank]

    def gather(self, part: Tensor, total: int) -> Tensor:
        """The values of all samples, concatenated from those of each process, without a gradient."""
        if self.size == 1:
            return part.detach()
        longest = -(-total // self.size)
        places = [part.new_empty(longest) for _ in range(self.size)]
        dist.all_gather(places, torch.cat([part.detach(), part.new_zeros(longest - len(part))]))
        sizes = [len(one) for one in torch.empty(total).tensor_split(self.size)]
        return torch.cat([place[:size] for place, size in zip(places, sizes, strict=True)])

    def sum(self, part: int) -> int:
        """The sum over all processes."""
        sizes = torch.tensor([part])
        if self.size > 1:
            dist.all_reduce(sizes)
        return int(sizes)

    def broadcast(self, value: T) -> T:
        """The value of the first process."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model to call in training: gradients are averaged, and norms use the statistics of the whole batch."""
        if self.size == 1:
            return model
        sync(model)
        return DistributedDataParallel(model)
