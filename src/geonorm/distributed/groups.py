"""Process groups by name: a layer that stores a name instead of the group can be copied, pickled and compiled."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Group: TypeAlias = "ProcessGroup | str"

WORLD = "world"  # all processes; torch's default group need not exist yet
# The default group, and the name of the second group made for norms. Nothing here may keep a group alive: a group that
# outlives destroy_process_group is destroyed at exit, and aborts the interpreter.
_own_world: tuple[weakref.ref[ProcessGroup], str] | None = None


class Members(NamedTuple):
    """An existing group: its name in torch, and the number of its processes."""

    name: str
    size: int


def group_name(group: Group | None) -> str | None:
    """The name of a process group; ``"world"`` is the default group. None, for no group, stays None."""
    if group is None or isinstance(group, str):
        return group
    name = getattr(group, "group_name", None)
    if not isinstance(name, str):
        raise TypeError(
            "expected process_group to be a torch.distributed.ProcessGroup, a group's name, 'world' for the default "
            f"group, or None (got {type(group).__name__})"
        )
    import torch.distributed as dist

    return WORLD if group is dist.group.WORLD else name


def members(name: str) -> Members:
    """The group of that name."""
    import torch.distributed as dist

    if not dist.is_available():
        raise RuntimeError(f"expected a torch with torch.distributed for process_group={name!r} (this one has none)")
    if not dist.is_initialized():
        raise RuntimeError(
            f"expected an initialized process group for process_group={name!r}; call "
            "torch.distributed.init_process_group first, or geonorm.unsync(model) to train in one process"
        )
    if name == WORLD:
        group = _group_for_norms(dist.group.WORLD)
    else:
        try:
            group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
        except (KeyError, RuntimeError, ValueError) as error:
            raise RuntimeError(
                f"expected a process group named {name!r} in this process (there is none); "
                "set another group with geonorm.sync(model, process_group)"
            ) from error
    assert group is not None
    if dist.get_rank(group) < 0:
        raise RuntimeError(f"expected this process to be a member of process_group={name!r} (it is not)")
    return Members(group.group_name, group.size())


@contextmanager
def explaining_failures(collective: str, name: str) -> Iterator[None]:
    """Add the collective, the group and what to do to the error of a collective that fails in this context."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"{collective} on process group {name!r} failed in a normalization: another process has ended, has failed, "
            "or does not run the same layers (see the cause above); restart all processes from the last checkpoint"
        ) from error


# The attribute that torch.compiler.assume_constant_result sets; the decorator itself would import the whole compiler.
members._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _group_for_norms(world: ProcessGroup | None) -> ProcessGroup:
    """A second group of the same processes, for norms only.

    If norms shared the group of DistributedDataParallel, a gradient that is ready at different times in different
    processes could be mistaken for the statistics of a norm.
    """
    import torch.distributed as dist

    global _own_world
    assert world is not None
    if world.size() == 1:
        return world
    if _own_world is None or _own_world[0]() is not world:
        options = getattr(world._get_backend(torch.device("cpu")), "options", None) if _has_cpu(world) else None
        own = dist.new_group(timeout=getattr(options, "_timeout", None), group_desc="geonorm")
        _own_world = weakref.ref(world), own.group_name
    return dist.distributed_c10d._resolve_process_group(_own_world[1])  # type: ignore[attr-defined, arg-type]


def _has_cpu(world: ProcessGroup) -> bool:
    return any(device.type == "cpu" for device in world._device_types)
