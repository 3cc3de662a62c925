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

_PATH = Path(__file__).with_name("libgeonorm.so")
_PROCESS = os.getpid()
_KIND, _CALL = struct.Struct("=17q11d"), struct.Struct("=qd28Q")  # the two parts of csrc/job.h
_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class _Library(NamedTuple):
    """The functions of the shared library."""

    forward: Any
    backward: Any
    offsets: Any
    guarded_moments: Any
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
        address, number = ctypes.c_void_p, ctypes.c_int64
        library.geonorm_guarded_moments.argtypes = [
            address, address, number, number, ctypes.c_double, number, number, address, address, address, address
        ]  # fmt: skip
        library.geonorm_guarded_moments.restype = ctypes.c_int64
        library.geonorm_job_size.restype = library.geonorm_state_size.restype = ctypes.c_int64
        library.geonorm_instruction_set.restype = ctypes.c_char_p
        library.geonorm_use_openmp.argtypes, library.geonorm_use_openmp.restype = [ctypes.c_void_p], None
        library.geonorm_use_openmp(_openmp())
        if library.geonorm_job_size() != _KIND.size + _CALL.size:
            return f"{_PATH.name} belongs to another version of geonorm; reinstall geonorm"
        return _Library(
            library.geonorm_forward,
            library.geonorm_backward,
            library.geonorm_offsets,
            library.geonorm_guarded_moments,
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
    """Which backend is in use and why, for people; none if the one that was asked for is missing."""
    name, found = requested(), _load()
    if name == "torch":
        return {"backend": "torch", "because": "GEONORM_BACKEND=torch"}
    if isinstance(found, str):
        missing = {"backend": "none", "because": f"GEONORM_BACKEND=native, but {found}"}
        return missing if name == "native" else {"backend": "torch", "because": found}
    why = f"the kernels are there, and GEONORM_BACKEND={name}"
    return {"backend": "native", "because": why, "instruction set": found.instruction_set}


class Numbers(NamedTuple):
    """The choices of one normalization as the kernels take them."""

    centered: bool
    spread: int
    samples: int
    positions: int
    phi: float
    alpha: float
    eps: float
    psi: float
    psi_factor: float
    spread_floor: float
    grad_floor: float
    guard: float
    phi_low: float = 0.0
    phi_high: float = 0.0  # 0: φ is given as it is
    phi_start: float = 0.0


def kind(dtype: torch.dtype, a: Arrangement, numbers: Numbers) -> bytes:
    """What all calls with tensors of one kind tell the kernels."""
    return _KIND.pack(_CODES[dtype], *a[:9], a.parameters, a.period, a.phi_count, *numbers)


def segment_offsets(batch: Tensor, number: int) -> Tensor | None:
    """The first row of every segment, and the number of rows; None unless the segments are sorted and in range."""
    found = library()
    if found is None or batch.dtype != torch.int64 or batch.device.type != "cpu":
        return None
    batch = batch.contiguous()
    offsets = torch.empty(number + 1, dtype=torch.int64, device="cpu")
    status = found.offsets(batch.data_ptr(), len(batch), number, offsets.data_ptr())
    return offsets if status == DONE else None


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Joint center, factors, mean and variance of a guarded batch; None if the kernels cannot tell."""
    found = library()
    if found is None or not mean.is_cpu or mean.dtype not in (torch.float32, torch.float64) or not mean.numel():
        return None
    mean, deviation = mean.contiguous(), deviation.contiguous()
    samples, channels = mean.shape
    factor, center = mean.new_empty(samples), mean.new_empty(channels)
    total, var = mean.new_empty(channels), mean.new_empty(channels)
    status = found.guarded_moments(
        mean.data_ptr(),
        deviation.data_ptr(),
        samples,
        channels,
        k,
        torch.get_num_threads(),
        mean.dtype == torch.float64,
        *[value.data_ptr() for value in (factor, center, total, var)],
    )
    return (center, factor, total, var) if _check(status) else None


def forward(
    kind: bytes,
    x: Tensor,
    y: Tensor,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    statistics: tuple[Tensor | None, ...],
    running: tuple[Tensor | None, ...],
    momentum: float,
    verdict: Tensor | None = None,
    guard_counts: Tensor | None = None,
) -> bool:
    """Normalize x into y; False if the kernels refuse the data, with nothing changed but y, state and statistics.

    Args:
        kind: of the tensors, and what to do.
        x, y: dense, of the same strides.
        offsets: of segments.
        parameters: φ, α, shift, γ, β as contiguous tensors of the computing dtype.
        state: float64, filled for backward.
        statistics: center, spread, mean, var, filled if given.
        running: buffers of mean, var, center and squared spread that follow, and the number of batches.
        momentum: how far they follow.
        verdict: of a guarded batch, filled: factors and distances of samples, center and scales of channels, radius.
        guard_counts: int64, batches, batches with a pull, samples pulled, samples not finite; added to.
    """
    found = library()
    assert found is not None
    tensors = (offsets, x, None, y, None, *parameters, state, *statistics, *running)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    guard = [0 if value is None else value.data_ptr() for value in (verdict, guard_counts)]
    call = _CALL.pack(torch.get_num_threads(), momentum, *addresses, 0, 0, 0, 0, 0, *guard, 0)
    return _check(found.forward(kind + call))


def backward(
    kind: bytes,
    x: Tensor,
    g: Tensor,
    dx: Tensor,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    gradients: tuple[Tensor | None, ...],
    verdict: Tensor | None = None,
) -> None:
    """Gradients into dx and, if given, those of φ, α, shift, γ and β."""
    found = _load()  # whichever backend is asked for now: forward ran here
    assert isinstance(found, _Library)
    tensors = (offsets, x, g, None, dx, *parameters, state, *(None,) * 9, *gradients, verdict)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    if not _check(found.backward(kind + _CALL.pack(torch.get_num_threads(), 0.0, *addresses, 0, 0))):
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
