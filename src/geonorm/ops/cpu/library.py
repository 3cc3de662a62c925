"""The compiled library: where it is, and the calls into it. The only file that knows ctypes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..problem import COLUMNS
from .arrange import Arrangement

DONE, REFUSED = 0, 1
NO_SPREAD, RMS, MEAN_ABS, MAX_ABS, ROBUST = range(5)

STATE_SIZE = len(COLUMNS)  # numbers that forward keeps of each group

_PATH = Path(__file__).with_name("libgeonorm.so")
_PROCESS = os.getpid()
CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class Task(IntEnum):
    """Parts of a job, as csrc/job.h has them."""

    MEASURE = 1
    SWEEP = 2
    WRITE = 3
    ADD_UP = 4
    SPREAD_OUT = 5


POINTS, MEASURES, SWEPT, PARTS, FLOWS = 4, 5, 8, 6, 4  # numbers per group that they take and find


class _Library(NamedTuple):
    """The functions of the shared library."""

    forward: Any
    backward: Any
    offsets: Any
    guarded_moments: Any
    advance: Any
    instruction_set: str


@cache
def load() -> _Library | str:
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
            address, address, number, number, ctypes.c_double, number, number, address, address, address
        ]  # fmt: skip
        library.geonorm_guarded_moments.restype = ctypes.c_int64
        library.geonorm_advance.argtypes = [address, number, address, number, number, number, number]
        library.geonorm_advance.restype = ctypes.c_int64
        library.geonorm_layout.restype = library.geonorm_instruction_set.restype = ctypes.c_char_p
        library.geonorm_use_openmp.argtypes, library.geonorm_use_openmp.restype = [ctypes.c_void_p], None
        library.geonorm_use_openmp(_openmp())
        if library.geonorm_layout().decode() != layout():
            return f"{_PATH.name} belongs to another version of geonorm; reinstall geonorm"
        return _Library(
            library.geonorm_forward,
            library.geonorm_backward,
            library.geonorm_offsets,
            library.geonorm_guarded_moments,
            library.geonorm_advance,
            library.geonorm_instruction_set().decode(),
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


def _library() -> _Library:
    found = load()
    assert isinstance(found, _Library)
    return found


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


# The fields of csrc/job.h in their order: those that all calls with tensors of one kind share, and those of one call.
_KIND_FIELDS = ("dtype", *Arrangement._fields[:9], "parameters", "period", "phi_count", *Numbers._fields)
_CALL_FIELDS = (
    "threads", "momentum", "offsets", "x", "g", "y", "dx", "phis", "alphas", "shifts", "gammas", "betas", "state",
    "running_mean", "running_var", "running_center", "running_scale", "batches",
    "d_phi", "d_alpha", "d_shift", "d_gamma", "d_beta", "verdict", "guard_counts",
    "task", "sizes", "points", "found", "places",
)  # fmt: skip
_KIND, _CALL = struct.Struct("=17q11d"), struct.Struct("=qd28Q")


_ALL_OF_IT = (0,) * 5  # no part of a job, nor samples that lie elsewhere


def layout() -> str:
    """What this file packs and reads, in the words of the library: names and places of fields and columns."""
    fields = " ".join(f"{name}:{8 * i}" for i, name in enumerate((*_KIND_FIELDS, *_CALL_FIELDS)))
    columns = " ".join(f"{name}:{i}" for i, name in enumerate(COLUMNS))
    return f"job {fields} state {columns}"


def kind(dtype: torch.dtype, a: Arrangement, numbers: Numbers) -> bytes:
    """What all calls with tensors of one kind tell the kernels."""
    return _KIND.pack(CODES[dtype], *a[:9], a.parameters, a.period, a.phi_count, *numbers)


def segment_offsets(batch: Tensor, number: int) -> Tensor | None:
    """The first row of every segment, and the number of rows; None unless the segments are sorted and in range."""
    if batch.dtype != torch.int64 or not batch.is_cpu:
        return None
    batch = batch.contiguous()
    offsets = torch.empty(number + 1, dtype=torch.int64, device="cpu")
    status = _library().offsets(batch.data_ptr(), len(batch), number, offsets.data_ptr())
    return offsets if status == DONE else None


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> tuple[Tensor, Tensor, Tensor] | None:
    """The verdict on the samples of a batch, mean and variance after it; None if the kernels cannot tell."""
    if mean.dtype not in (torch.float32, torch.float64) or not mean.numel():
        return None
    mean, deviation = mean.contiguous(), deviation.contiguous()
    samples, channels = mean.shape
    verdict = mean.new_empty(2 * (samples + channels) + 1)
    total, var = mean.new_empty(channels), mean.new_empty(channels)
    status = _library().guarded_moments(
        mean.data_ptr(),
        deviation.data_ptr(),
        samples,
        channels,
        k,
        torch.get_num_threads(),
        mean.dtype == torch.float64,
        *[value.data_ptr() for value in (verdict, total, var)],
    )
    return (verdict, total, var) if _check(status) else None


def forward(
    kind: bytes,
    x: Tensor,
    y: Tensor | None,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    running: tuple[Tensor | None, ...],
    momentum: float,
    verdict: Tensor | None = None,
    guard_counts: Tensor | None = None,
) -> bool:
    """Normalize x into y; False if the kernels refuse the data, with nothing changed but y and state.

    Args:
        kind: of the tensors, and what to do.
        x, y: dense, of the same strides; without y only the state is filled.
        offsets: of segments.
        parameters: φ, α, shift, γ, β as contiguous tensors of the computing dtype.
        state: float64, filled for backward.
        running: buffers of mean, var, center and squared spread that follow, and the number of batches.
        momentum: how far they follow.
        verdict: of a guarded batch, filled: factors and distances of samples, center and scales of channels, radius.
        guard_counts: int64, batches, batches with a pull, samples pulled, samples not finite; added to.
    """
    tensors = (offsets, x, None, y, None, *parameters, state, *running)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    guard = [0 if value is None else value.data_ptr() for value in (verdict, guard_counts)]
    call = _CALL.pack(torch.get_num_threads(), momentum, *addresses, 0, 0, 0, 0, 0, *guard, *_ALL_OF_IT)
    return _check(_library().forward(kind + call))


def backward(
    kind: bytes,
    x: Tensor,
    g: Tensor,
    dx: Tensor,
    offsets: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    gradients: Sequence[Tensor | None],
    verdict: Tensor | None = None,
) -> None:
    """Gradients into dx and, if given, those of φ, α, shift, γ and β."""
    tensors = (offsets, x, g, None, dx, *parameters, state, *(None,) * 5, *gradients, verdict)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    if not _check(_library().backward(kind + _CALL.pack(torch.get_num_threads(), 0.0, *addresses, 0, *_ALL_OF_IT))):
        raise MemoryError("geonorm: not enough memory for the gradient")


def part(
    kind: bytes,
    task: Task,
    x: Tensor,
    parameters: tuple[Tensor | None, ...],
    state: Tensor,
    points: Tensor | None = None,
    found: Tensor | None = None,
    *,
    sizes: bool = False,
    y: Tensor | None = None,
    g: Tensor | None = None,
    dx: Tensor | None = None,
    d_phi: Tensor | None = None,
) -> bool:
    """A part of forward or backward for groups whose other values are elsewhere; False if the kernels refuse the data.

    Args:
        kind, x, parameters, state: as in ``forward``; parameters are the same for all values of a group.
        task: which part.
        points: float64, what the task needs of every group: POINTS or FLOWS numbers of csrc/job.h.
        found: float64, filled with what it finds: MEASURES, SWEPT or PARTS.
        sizes: of |z| in place of x.
        y, g, dx: where the task reads or writes them.
        d_phi: any tensor, if the sums for φ's gradient are wanted.
    """
    tensors = (None, x, g, y, dx, *parameters, state, *(None,) * 5, d_phi, *(None,) * 6)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    ends = [0 if value is None else value.data_ptr() for value in (points, found)]
    call = _CALL.pack(torch.get_num_threads(), 0.0, *addresses, task, sizes, *ends, 0)
    library = _library()
    run = library.backward if task >= Task.ADD_UP else library.forward
    return _check(run(kind + call))


def advance(rows: Tensor, parts: Tensor | None, k: int, wide: bool, adaptive: bool) -> bool:
    """As ``joint.decide.advance``."""
    given = (0, 0) if parts is None else (parts.data_ptr(), len(parts))
    going_on: int = _library().advance(rows.data_ptr(), len(rows), *given, k, wide, adaptive)
    return going_on > 0


def _check(status: int) -> bool:
    if status not in (DONE, REFUSED):
        raise RuntimeError("geonorm: the native kernels were given an unsound job; please report this")
    return bool(status == DONE)
