"""Where trainings run: a device by name, the GPU of each process, and how values get there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

CPU, CUDA, MPS = "cpu", "cuda", "mps"
AUTO = "auto"  # the first that is here: CUDA, MPS, the CPU
DEVICES = (CPU, CUDA, MPS)
FLOAT32, BF16 = "float32", "bf16"
PRECISIONS = (FLOAT32, BF16)

T = TypeVar("T")


class DeviceError(ValueError):
    """A device is not here; the message says what to do."""


def find_device(name: str) -> str:
    """A device by name; for ``"auto"`` the first that is here.

    Examples:
        >>> from geonorm.lab.devices import find_device
        >>> find_device("cpu")
        'cpu'
    """
    if name != AUTO:
        return name
    return next((one for one in (CUDA, MPS) if _is_here(one)), CPU)


def check_device(name: str) -> None:
    """Raise unless a device is here."""
    if not _is_here(name):
        wants = {CUDA: "an NVIDIA or AMD GPU and a torch built for it", MPS: "a Mac with an Apple GPU"}[name]
        raise DeviceError(
            f"expected a device {name!r} (torch {torch.__version__} finds none here): it needs {wants}; leave the "
            "device out to run on the CPU"
        )


def _is_here(name: str) -> bool:
    if name == CUDA:
        return torch.cuda.is_available()
    return name == CPU or torch.backends.mps.is_available()


def described(name: str) -> str:
    """The device that this process uses, with the model of a GPU: results of another one differ in the last digits."""
    return f"{CUDA}: {torch.cuda.get_device_name()}" if name == CUDA else name


def count(name: str) -> int | None:
    """How many devices of a type are here; ``None`` for the CPU, whose cores are counted instead."""
    return {CPU: None, MPS: 1}[name] if name != CUDA else torch.cuda.device_count()


def use_one(name: str, number: int) -> None:
    """Deal out the devices: a process uses the GPU of its number, or begins with the first again after the last."""
    if name == CUDA:
        torch.cuda.set_device(number % torch.cuda.device_count())


def home_of(model: nn.Module) -> torch.device:
    """The device of a model: that of its first parameter or buffer."""
    first = next(itertools.chain(model.parameters(), model.buffers()), None)
    return torch.device(CPU) if first is None else first.device


def moved(values: T, device: torch.device) -> T:
    """Values with all their tensors on a device; to CUDA from pinned memory, so that the CPU need not wait."""

    def move(tensor: Tensor) -> Tensor:
        if device.type == CUDA and tensor.device.type == CPU:
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    found: T = tree_map_only(Tensor, move, values)
    return found


def forward_context(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The context of a forward pass in training: for bf16, torch's autocast. It needs no scaling of the loss."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == BF16 else nullcontext()


@contextmanager
def repeatable(name: str) -> Iterator[None]:
    """Within, CUDA repeats its numbers bit for bit where torch can; where it cannot, torch warns.

    A killed run repeats its last epochs, which must give the same figures again.
    """
    if name != CUDA:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product of matrices is computed
    strict, only_warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    tries, fills = torch.backends.cudnn.benchmark, memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # all of it is written before it is read
    if tries:
        torch.backends.cudnn.benchmark = False  # it chooses algorithms by their time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=only_warns)
        if tries:
            torch.backends.cudnn.benchmark = True
        memory.fill_uninitialized_memory = fills
