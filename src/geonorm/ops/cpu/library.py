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

STATE_SIZE = len(COLUMNS)  # numbers per group that forward saves

_PATH = Path(__file__).with_name("libgeonorm.so")
_PROCESS = os.getpid()
CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class Task(IntEnum):
    """Parts of a job, numbered as in csrc/job.h."""

    MEASURE = 1
    SWEEP = 2
    WRITE = 3
    ADD_UP = 4
    SPREAD_OUT = 5


POINTS, MEASURES, SWEPT, PARTS, FLOWS = 4, 5, 8, 6, 4  # numbers per group that the tasks take and return


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
    """The library, or the reason why it is not available."""
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

    None in a forked child: it does not have its parent's threads.
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


class KernelOptions(NamedTuple):
    """The options of one normalization, as numbers for the kernels."""

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
    phi_high: float = 0.0  # 0: φ is not learned
    phi_start: float = 0.0


# The fields of csrc/job.h in order: first those that all calls with like tensors share, then those of a single call.
_SPEC_FIELDS = ("dtype", *Arrangement._fields[:9], "parameters", "period", "phi_count", *KernelOptions._fields)
_CALL_FIELDS = (
    "threads", "momentum", "normal_scale", "offsets", "x", "g", "y", "dx", "phis", "alphas", "shifts", "gammas",
    "betas", "state", "running_mean", "running_var", "running_center", "running_scale",
    "seen_mean", "seen_var", "seen_center", "seen_scale", "batches",
    "d_phi", "d_alpha", "d_shift", "d_gamma", "d_beta", "verdict", "guard_counts",
    "task", "sizes", "points", "found", "places",
)  # fmt: skip
_SPEC, _CALL = struct.Struct("=17q11d"), struct.Struct("=q2d32Q")


_NO_GRADIENTS = (None,) * 5
NO_COPIES: tuple[Tensor | None, ...] = (None,) * 4
NO_BUFFERS: tuple[Tensor | None, ...] = (None,) * 9
_WHOLE_JOB = (0,) * 5  # no single task, and no samples stored elsewhere


def layout() -> str:
    """The layout of what this file packs and reads, spelled as the library does: names and offsets of the fields."""
    fields = " ".join(f"{name}:{8 * i}" for i, name in enumerate((*_SPEC_FIELDS, *_CALL_FIELDS)))
    columns = " ".join(f"{name}:{i}" for i, name in enumerate(COLUMNS))
    return f"job {fields} state {columns}"


def encode_spec(dtype: torch.dtype, a: Arrangement, options: KernelOptions) -> bytes:
    """The first part of a job, the same for all calls with tensors of this dtype and arrangement."""
    return _SPEC.pack(CODES[dtype], *a[:9], a.parameters, a.period, a.phi_count, *options)


def segment_offsets(batch: Tensor, number: int) -> Tensor | None:
    """The first row of every segment, and the number of rows; None unless the segments are sorted and in range."""
    if batch.dtype != torch.int64 or not batch.is_cpu:
        return None
    batch = batch.contiguous()
    offsets = torch.empty(number + 1, dtype=torch.int64, device="cpu")
    status = _library().offsets(batch.data_ptr(), len(batch), number, offsets.data_ptr())
    return offsets if status == DONE else None


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> tuple[Tensor, Tensor, Tensor] | None:
    """The verdict on the samples of a batch, and mean and variance after it; None if the kernels refuse the data."""
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
    encoded_spec: bytes,
    x: Tensor,
    y: Tensor | None,
    offsets: Tensor | None,
    parameters: Sequence[Tensor | None],
    state: Tensor,
    running: tuple[Tensor | None, ...] = NO_BUFFERS,
    momentum: float = 0.0,
    normal_scale: float = 1.0,
    verdict: Tensor | None = None,
    guard_counts: Tensor | None = None,
) -> bool:
    """Normalize x into y; False if the kernels refuse the data. Then only y and state have changed.

    Args:
        encoded_spec: dtype, arrangement and options, from ``encode_spec``.
        x, y: dense, of the same strides; without y only the state is filled.
        offsets: first rows of the segments.
        parameters: φ, α, shift, γ, β as contiguous tensors of the computing dtype.
        state: float64, filled for backward.
        running: buffers to update: mean, var, center, squared spread; copies of the four from the last update; and the
            number of batches.
        momentum: how far the buffers move towards this batch.
        normal_scale: what the squared spread of normal data is over its variance.
        verdict: filled for a guarded batch: factors and distances of samples, center and scales of channels, radius.
        guard_counts: int64, added to: batches, batches with a pull, samples pulled, samples not finite.
    """
    tensors = (
        offsets,
        x,
        None,
        y,
        None,
        *parameters,
        state,
        *running,
        None,
        None,
        None,
        None,
        None,
        verdict,
        guard_counts,
    )
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    call = _CALL.pack(torch.get_num_threads(), momentum, normal_scale, *addresses, *_WHOLE_JOB)
    return _check(_library().forward(encoded_spec + call))


def backward(
    encoded_spec: bytes,
    x: Tensor,
    g: Tensor,
    dx: Tensor,
    offsets: Tensor | None,
    parameters: Sequence[Tensor | None],
    state: Tensor,
    gradients: Sequence[Tensor | None],
    verdict: Tensor | None = None,
) -> None:
    """Gradients into dx and, if given, those of φ, α, shift, γ and β."""
    tensors = (offsets, x, g, None, dx, *parameters, state, *(None,) * 9, *gradients, verdict, None)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    call = _CALL.pack(torch.get_num_threads(), 0.0, 1.0, *addresses, *_WHOLE_JOB)
    if not _check(_library().backward(encoded_spec + call)):
        raise MemoryError("geonorm: not enough memory for the gradient")


def part(
    encoded_spec: bytes,
    task: Task,
    x: Tensor,
    parameters: Sequence[Tensor | None],
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
    """One task of forward or backward, for groups with values in other processes; False if the kernels refuse the data.

    Args:
        encoded_spec, x, parameters, state: as in ``forward``; parameters are the same for all values of a group.
        task: which one.
        points: float64, the input of the task per group: POINTS or FLOWS numbers of csrc/job.h.
        found: float64, filled with the result: MEASURES, SWEPT or PARTS numbers per group.
        sizes: work on |z| instead of x.
        y, g, dx: output, its gradient and the gradient of x, where the task reads or writes them.
        d_phi: any tensor, if the sums for φ's gradient are wanted.
    """
    tensors = (None, x, g, y, dx, *parameters, state, *(None,) * 9, d_phi, *(None,) * 6)
    addresses = [0 if value is None else value.data_ptr() for value in tensors]
    ends = [0 if value is None else value.data_ptr() for value in (points, found)]
    call = _CALL.pack(torch.get_num_threads(), 0.0, 1.0, *addresses, task, sizes, *ends, 0)
    library = _library()
    run = library.backward if task >= Task.ADD_UP else library.forward
    return _check(run(encoded_spec + call))


def advance(rows: Tensor, parts: Tensor | None, k: int, wide: bool, adaptive: bool) -> bool:
    """Compiled version of ``joint.decide.advance``."""
    given = (0, 0) if parts is None else (parts.data_ptr(), len(parts))
    going_on: int = _library().advance(rows.data_ptr(), len(rows), *given, k, wide, adaptive)
    return going_on > 0


def _check(status: int) -> bool:
    if status not in (DONE, REFUSED):
        raise RuntimeError("geonorm: the native kernels got an inconsistent job; this is a bug, please report it")
    return bool(status == DONE)
