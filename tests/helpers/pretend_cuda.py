"""A CUDA device that is not there: tensors that say they are on it, with real values in the memory of the CPU.

Inside ``pretend_cuda()`` the device "cuda" may be used as if torch had one. Every operation runs on the CPU, and raises
where a real device would: if tensors of two devices meet. What passes between the devices is counted. CUDA's own
entries of autograd need a torch that is built for it, so for torch's C++ these tensors are on its "lazy" device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

from geonorm.ops import may_call_directly

_STAND_IN = "lazy"
_aten = torch.ops.aten
# Operations that take tensors of two devices on a real one too: copies, and indices on the CPU.
_MAY_MIX = {_aten.copy_.default, _aten._to_copy.default, _aten.index.Tensor, _aten._index_put_impl_.default,
            _aten.index_put_.default, _aten.index_put.default}  # fmt: skip
_COPIES = {_aten.copy_.default, _aten._to_copy.default}
_WAITS = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.nonzero.default}
_FROM_PYTHON = {torch.tensor, torch.as_tensor, Tensor.new_tensor}


@dataclass
class Log:
    """What passed between the devices, and what was asked of CUDA.

    Attributes:
        sent: tensors copied from the CPU to the device.
        pinned: how many of them came from pinned memory, without waiting.
        fetched: tensors copied to the CPU.
        waits: how often the CPU waited for values of the device.
        calls: what else was asked of CUDA, in order.
    """

    sent: list[Tensor] = field(default_factory=list)
    pinned: int = 0
    fetched: int = 0
    waits: int = 0
    calls: list[tuple[Any, ...]] = field(default_factory=list)


class OnCuda(Tensor):
    """A tensor that says it is on CUDA; ``values`` are on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor, device: torch.device) -> OnCuda:
        laid_out = {}
        if values.layout is torch.strided:  # a sparse matrix passes for a dense one
            laid_out = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        made: OnCuda = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.size(), dtype=values.dtype, device=device, **laid_out
        )
        made.values = values
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"OnCuda({self.values!r})"

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.values.untyped_storage()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise AssertionError("a tensor of the device is being pickled: where there is none, it could not be read")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of pretend_cuda()")


class _Operations(TorchDispatchMode):
    """Runs operations of tensors on the device, on the CPU."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given, shape = tree_flatten((args, kwargs))
        mine = [x for x in given if isinstance(x, OnCuda)]
        asked = kwargs.get("device")
        if not mine and (asked is None or asked.type != _STAND_IN):
            return func(*args, **kwargs)
        if mine and func not in _MAY_MIX:
            strangers = [x for x in given if isinstance(x, Tensor) and not isinstance(x, OnCuda) and x.dim()]
            assert not strangers, f"{func}: tensors of the device and of the CPU meet: {strangers[0].shape}"
        assert len({x.device for x in mine}) < 2, f"{func}: tensors of two devices meet"
        to = mine[0].device if asked is None else asked
        if func in _WAITS:
            self.log.waits += 1
        if func in _COPIES:
            self._count(func, args, to)
        cpu = torch.device("cpu")
        plain_args, plain_kwargs = tree_unflatten(
            [x.values if isinstance(x, OnCuda) else cpu if isinstance(x, torch.device) else x for x in given], shape
        )
        found = func(*plain_args, **plain_kwargs)
        if to.type == "cpu":
            return found
        to = torch.device(_STAND_IN, to.index or 0)
        before = {id(x.values): x for x in mine}  # operations in place return what they were given
        return tree_map_only(Tensor, lambda x: before[id(x)] if id(x) in before else OnCuda(x, to), found)

    def _count(self, func: Any, args: Any, to: torch.device) -> None:
        target, source = (args[0], args[1]) if func is _aten.copy_.default else (None, args[0])
        there = isinstance(target, OnCuda) if target is not None else to.type != "cpu"
        here = isinstance(source, OnCuda)
        if there and not here and source.dim():
            self.log.sent.append(source)
            self.log.pinned += hasattr(source, "_is_pinned_here")
        elif here and not there:
            self.log.fetched += 1
            self.log.waits += 1


def _values(x: Any) -> Any:
    return x.values if isinstance(x, OnCuda) else x


class _Names(TorchFunctionMode):
    """Translates "cuda" on the way in, and back where a tensor is asked for its device."""

    def __init__(self, log: Log, current: list[int]) -> None:
        super().__init__()
        self.log, self.current = log, current

    def _translated(self, value: Any) -> Any:
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            value = torch.device(value)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device(_STAND_IN, self.current[0] if value.index is None else value.index)
        return value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = resolve_name(func) or ""
        if func is Tensor.pin_memory:
            copy = args[0].clone()
            copy._is_pinned_here = True
            return copy
        if func == Tensor.device.__get__:
            device = func(*args)
            return torch.device("cuda", device.index) if device.type == _STAND_IN else device
        if func == Tensor.data.__set__ and isinstance(args[0], OnCuda):
            args[0].values = args[1].values
        if func == Tensor.is_cuda.__get__:
            return isinstance(args[0], OnCuda)
        if func is Tensor.tolist and isinstance(args[0], OnCuda):
            self.log.waits += 1
            return args[0].values.tolist()
        if func is torch.device:
            return func(*args, **kwargs)
        if func is Tensor.cuda:
            func, args = Tensor.to, (args[0], "cuda")
        args, kwargs = tree_map(self._translated, args), tree_map(self._translated, kwargs)
        if func in _FROM_PYTHON:  # their copy to the device is made where no mode sees it
            to = kwargs.pop("device", None)
            to = args[0].device if to is None and isinstance(args[0], OnCuda) else to
            plain = (_values(args[0]), *args[1:])
            return func(*plain, **kwargs) if to is None else func(*plain, **kwargs).to(to)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], OnCuda):
            args = (args[0], _without_lists(args[1]), *args[2:])
            if len(args) == 3 and not isinstance(args[2], Tensor):
                args = (*args[:2], torch.tensor(args[2], dtype=args[0].dtype))
        if name.endswith("Tensor.to") and hasattr(args[0], "_is_pinned_here"):
            assert kwargs.get("non_blocking"), "pinned memory is of use only where the copy does not wait"
        return func(*args, **kwargs)


def _without_lists(index: Any) -> Any:
    """An index with tensors on the CPU for lists, which torch would make tensors of where no mode sees it."""
    if isinstance(index, tuple):
        return tuple(_without_lists(part) for part in index)
    return torch.tensor(index, dtype=None if index else torch.long) if isinstance(index, list) else index


def _nothing_intercepts(*values: Any) -> bool:
    return not (torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack())


class _Event:
    """An event of CUDA; what lies between two of them took a millisecond."""

    def __init__(self, log: Log, enable_timing: bool) -> None:
        assert enable_timing
        self.log = log

    def record(self) -> None:
        self.log.calls.append(("event",))

    def synchronize(self) -> None:
        self.log.calls.append(("synchronize",))

    def elapsed_time(self, other: _Event) -> float:
        return 1.0


@contextmanager
def pretend_cuda(number: int = 1) -> Iterator[Log]:
    """A context with this many GPUs; what passes between them and the CPU goes into the log."""
    log, current = Log(), [0]

    def set_device(device: Any) -> None:
        current[0] = torch.device("cuda", device).index if isinstance(device, int) else torch.device(device).index or 0
        assert current[0] < number
        log.calls.append(("set_device", current[0]))

    def autocast(device_type: str, dtype: torch.dtype | None = None, **options: Any) -> Any:
        log.calls.append(("autocast", device_type, dtype))
        return real_autocast("cpu", dtype=dtype, **options)

    def noted(name: str) -> Any:
        return lambda *args: log.calls.append((name, *args))

    real_autocast = torch.autocast
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: number,
        "current_device": lambda: current[0],
        "set_device": set_device,
        "get_device_name": lambda *_: "a pretended GPU",
        "get_device_properties": lambda *_: SimpleNamespace(total_memory=80 << 30, name="a pretended GPU"),
        "manual_seed": noted("manual_seed"),
        "manual_seed_all": noted("manual_seed"),
        "is_initialized": lambda: True,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": noted("set_rng_state"),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)] * number,
        "set_rng_state_all": noted("set_rng_state"),
        "synchronize": noted("synchronize"),
        "Event": lambda enable_timing=False: _Event(log, enable_timing),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, function in replaced.items():
            patch.setattr(torch.cuda, name, function)
        patch.setattr(torch, "autocast", autocast)
        # These tensors count as plain ones. Many modules import the function by name, so its code is replaced.
        patch.setattr(may_call_directly, "__code__", _nothing_intercepts.__code__)
        # Another thread for backward, as devices have, would start threads of its own for every operation on the CPU.
        with torch.autograd.set_multithreading_enabled(False), _Operations(log), _Names(log, current):
            yield log
