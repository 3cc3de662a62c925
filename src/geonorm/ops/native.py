"""The native kernels: where the library is, whether it may be used, and the calls into it.

The only file that knows ctypes. ``GEONORM_BACKEND`` says which backend to use: ``auto`` (native where it can),
``torch``, or ``native`` (the library must be there; what it has no kernel for still runs on torch).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arrange import Arrangement

DONE, REFUSED = 0, 1
NO_SPREAD, RMS, MEAN_ABS, MAX_ABS, ROBUST = range(5)
NEED_PHI = 1

_PATH = Path(__file__).with_name("libgeonorm.so")
_PROCESS = os.getpid()
_JOB = struct.Struct("=17q8d24Q")  # csrc/job.h
_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class _Library(NamedTuple):
    """The functions of the shared library."""

    forward: Any
    backward: Any
    offsets: Any
    instruction_set: str
    state_size: int


def requested() -> str:
    """The backend that the environment asks for."""
    name = os.environ.get("GEONORM_BACKEND", "auto") or "auto"
    if name not in ("auto", "torch", "native"):
        raise RuntimeError(f"expected GEONORM_BACKEND to be auto, torch or native (got {name!r})")
    return name


@cache
def _load() -> _Library | str:
    """The library, or why there is none."""
    if not _PATH.exists():
        return f"{_PATH.name} was not built; install a C++ compiler and run: pip install --force-reinstall geonorm"
    try:
        library = ctypes.CDLL(str(_PATH))
        for name in ("geonorm_forward", "geonorm_backward"):
            function = getattr(library, name)
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int64
        library.geonorm_offsets.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
        library.geonorm_offsets.restype = ctypes.c_int64
        library.geonorm_job_size.restype = library.geonorm_state_size.restype = ctypes.c_int64
        library.geonorm_instruction_set.restype = ctypes.c_char_p
        library.geonorm_use_openmp.argtypes, library.geonorm_use_openmp.restype = [ctypes.c_void_p], None
        library.geonorm_use_openmp(_openmp())
        if library.geonorm_job_size() != _JOB.size:
            return f"{_PATH.name} belongs to another version of geonorm; reinstall geonorm"
        return _Library(
            library.geonorm_forward,
            library.geonorm_backward,
            library.geonorm_offsets,
            library.geonorm_instruction_set().decode(),
            library.geonorm_state_size(),
        )
    except (OSError, AttributeError) as error:
        return f"{_PATH.name} cannot be loaded: {error}"


def _openmp() -> int | None:
    """The address of GOMP_parallel in the OpenMP library that torch has loaded; None if torch uses another.

    Not in a forked child: the threads of its parent are not there.
    """
    if os.getpid() != _PROCESS:
        return None
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


@cache
def library() -> _Library | None:
    """The library if it is to be used. A backend that was asked for and is missing raises."""
    name = requested()
    if name == "torch":
        return None
    found = _load()
    if isinstance(found, _Library):
        return found
    if name == "native":
        raise RuntimeError(f"GEONORM_BACKEND=native, but {found}; or unset GEONORM_BACKEND to run on torch")
    return None


def state_size() -> int:
    """Numbers that forward keeps of each group."""
    found = library()
    assert found is not None
    return found.state_size


def describe() -> dict[str, str]:
    """Which backend is in use and why, for people."""
    name, found = requested(), _load()
    if name == "torch":
        return {"backend": "torch", "because": "GEONORM_BACKEND=torch"}
    if isinstance(found, str):
        return {"backend": "torch", "because": found}
    why = f"the kernels are there, and GEONORM_BACKEND={name}"
    return {"backend": "native", "because": why, "instruction set": found.instruction_set}


class Numbers(NamedTuple):
    """The choices of one normalization as the kernels take them."""

    phi: float
    alpha: float
    eps: float
    psi: float
    psi_factor: float
    spread_floor: float
    grad_floor: float
    momentum: float
    centered: bool
    spread: int


def _address(value: Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()


def segment_offsets(batch: Tensor, number: int) -> Tensor | None:
    """The first row of every segment, and the number of rows; None unless the segments are sorted and in range."""
    found = library()
    if found is None or batch.dtype != torch.int64 or batch.device.type != "cpu":
        return None
    batch = batch.contiguous()
    offsets = torch.empty(number + 1, dtype=torch.int64, device="cpu")
    status = found.offsets(batch.data_ptr(), len(batch), number, offsets.data_ptr())
    return offsets if status == DONE else None


def _pack(
    x: Tensor, a: Arrangement, numbers: Numbers, needs: int, offsets: Tensor | None, addresses: tuple[int, ...]
) -> bytes:
    return _JOB.pack(
        _CODES[x.dtype],
        *a[:9],
        a.parameters,
        a.period,
        a.phi_count,
        numbers.centered,
        numbers.spread,
        needs,
        torch.get_num_threads(),
        *numbers[:8],
        _address(offsets),
        *addresses,
    )


def forward(
    x: Tensor,
    y: Tensor,
    a: Arrangement,
    numbers: Numbers,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    statistics: tuple[Tensor | None, ...],
    running: tuple[Tensor | None, ...],
) -> bool:
    """Normalize x into y; False if the kernels refuse the data, with nothing changed but y, state and statistics.

    Args:
        x, y: dense, of the same strides.
        a, numbers, offsets: what to do.
        parameters: φ, α, shift, γ, β as contiguous tensors of the computing dtype.
        state: float64, filled for backward.
        statistics: center, spread, mean, var, filled if given.
        running: buffers of mean, var, center and squared spread that follow.
    """
    found = library()
    assert found is not None
    addresses = (
        x.data_ptr(),
        0,
        y.data_ptr(),
        0,
        *map(_address, parameters),
        state.data_ptr(),
        *map(_address, statistics),
        *map(_address, running),
        0,
        0,
        0,
        0,
        0,
    )
    return _check(found.forward(_pack(x, a, numbers, 0, offsets, addresses)))


def backward(
    x: Tensor,
    g: Tensor,
    dx: Tensor,
    a: Arrangement,
    numbers: Numbers,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    gradients: tuple[Tensor | None, ...],
) -> None:
    """Gradients into dx and, if given, those of φ, α, shift, γ and β."""
    found = _load()  # whichever backend is asked for now: forward ran here
    assert isinstance(found, _Library)
    addresses = (
        x.data_ptr(),
        g.data_ptr(),
        0,
        dx.data_ptr(),
        *map(_address, parameters),
        state.data_ptr(),
        *(0,) * 8,
        *map(_address, gradients),
    )
    needs = NEED_PHI if gradients[0] is not None else 0
    if not _check(found.backward(_pack(x, a, numbers, needs, offsets, addresses))):
        raise MemoryError("geonorm: not enough memory for the gradient")


def _check(status: int) -> bool:
    if status not in (DONE, REFUSED):
        raise RuntimeError("geonorm: the native kernels were given an unsound job; please report this")
    return bool(status == DONE)


@contextmanager
def using_backend(name: str) -> Iterator[None]:
    """Within, another backend than ``GEONORM_BACKEND`` says; for comparisons. Holds for the whole process."""
    former = os.environ.get("GEONORM_BACKEND")
    os.environ["GEONORM_BACKEND"] = name
    library.cache_clear()
    try:
        yield
    finally:
        if former is None:
            del os.environ["GEONORM_BACKEND"]
        else:
            os.environ["GEONORM_BACKEND"] = former
        library.cache_clear()
