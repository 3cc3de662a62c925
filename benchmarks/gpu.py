"""The Triton kernels without a GPU: compiled for three of them, and their traffic as arithmetic.

    python -m benchmarks.gpu            # both tables of docs/gpu.md
    python -m benchmarks.gpu --check    # compiles a few cases for sm_80; an error if a kernel that streams data spills

Needs triton, and no GPU: the real host code runs on meta tensors, under a driver that can compile and not launch. Every
launch is compiled as it would be specialized at run time. `make test-triton` sets up an environment with triton.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.pages import put
from geonorm.ops import Axes, Grouping, Inputs, Rule, Running, Seen, Segments
from geonorm.ops import triton as backend

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what Triton 3.9 does unless told otherwise; 3.10 does not
PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
LEARNED = (1.2, 3.0, -1.6)


class Case(NamedTuple):
    """A layer on a batch. ``gamma``: shape of its γ and β. ``segments``: graphs of its rows, and α is learned."""

    name: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    gamma: tuple[int, ...]
    phi: float | None  # None: learned
    power: float | None = 2.0
    guard: float | None = None
    channels_last: bool = False
    segments: int = 0

    def run(self, dtype: torch.dtype) -> None:
        """A forward and a backward on meta tensors."""
        memory = torch.channels_last if self.channels_last else torch.contiguous_format
        x = torch.empty(self.shape, dtype=dtype, device="meta").contiguous(memory_format=memory)
        gamma, beta = torch.empty(self.gamma, device="meta"), torch.empty(self.gamma, device="meta")
        phi = torch.empty(self.gamma, device="meta") if self.phi is None else self.phi
        learned = LEARNED if self.phi is None else None
        rule = Rule(power=self.power, guard=self.guard, learned=learned, phi_strictly_inside=learned is not None)
        groups: Grouping = Axes(self.dims)
        alpha: float | torch.Tensor = 1.0
        if self.segments:
            index = torch.empty(self.shape[0], dtype=torch.int64, device="meta")
            groups, alpha = Segments(index, self.segments), torch.empty(self.gamma, device="meta")
        of = Inputs(x, phi, alpha, None, gamma, beta, None)
        running = buffers(self.shape[1]) if 0 in self.dims else None
        counts = None if self.guard is None else torch.empty(4, dtype=torch.int64, device="meta")
        found = backend.normalize(of, groups, rule, running, counts)
        needs = (True, self.phi is None, bool(self.segments), False, True, True, False)
        if found is None or not found.running_updated:
            raise RuntimeError(f"expected kernels for {self.name} (got none): see ops/triton/plan.py")
        if backend.normalize_backward(x, of, groups, rule, found.saved, needs) is None:
            raise RuntimeError(f"expected kernels for {self.name} (got none): see ops/triton/plan.py")


def buffers(channels: int) -> Running:
    """Running statistics of a batch norm, with their copies."""
    each = [torch.empty(channels, device="meta") for _ in range(8)]
    batches = torch.empty((), dtype=torch.int64, device="meta")
    return Running(*each[:4], 0.1, (), batches, Seen(*each[4:], 1.0))


IMAGES, CHANNELS = (128, 64, 32, 32), (1, 64, 1, 1)
CASES = [
    Case("guard", IMAGES, (0, 2, 3), CHANNELS, 2.0, guard=3.0),
    Case("φ=2 (POP-Norm)", IMAGES, (0, 2, 3), CHANNELS, 2.0),
    Case("φ=1.5", IMAGES, (0, 2, 3), CHANNELS, 1.5),
    Case("φ=1.5, channels_last", IMAGES, (0, 2, 3), CHANNELS, 1.5, channels_last=True),
    Case("φ learned", IMAGES, (0, 2, 3), CHANNELS, None),
    Case("φ=1.5, robust spread", IMAGES, (0, 2, 3), CHANNELS, 1.5, None),
    Case("rows, φ=1.5", (8192, 384), (1,), (1, 384), 1.5),
    Case("batch of 4096 rows, φ=1.5", (4096, 64), (0,), (1, 64), 1.5),
    Case("batch of 4096 rows, robust spread", (4096, 64), (0,), (1, 64), 1.5, None),
    Case("graphs, φ=1.5", (16384, 64), (), (64,), 1.5, segments=512),
    Case("graphs, φ learned", (16384, 64), (), (64,), None, segments=512),
    Case("graphs, φ=1.5, robust spread", (16384, 64), (), (64,), 1.5, None, segments=512),
    Case("8 groups, φ=1.5", (32, 8, 8, 56, 56), (2, 3, 4), (1, 8, 8, 1, 1), 1.5),
]
HUGE = Case("offsets of 64 bits", (1 << 17, 64, 16, 16), (0, 2, 3), CHANNELS, 1.5, None)  # compiled, in no table
# These may spill a few bytes, which they need before and after their loops: a float64 division is a call on sm_90.
OTHERS = {
    "small_kernel", "finish_kernel", "verdict_kernel", "running_kernel", "segments_kernel", "segments_backward_kernel",
}  # fmt: skip


class Launch(NamedTuple):
    """One launch, compiled."""

    kernel: str
    grid: tuple[int, ...]
    registers: int
    spilled: int  # bytes per thread
    shared: int  # bytes per program


class _CompilesOnly:
    """A driver of Triton that names a target."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    @property
    def launcher_cls(self) -> Any:
        raise RuntimeError("nothing can be launched here")


def targets() -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget

    return {
        "sm_80": GPUTarget("cuda", 80, 32),
        "sm_90": GPUTarget("cuda", 90, 32),
        "gfx942": GPUTarget("hip", "gfx942", 64),
    }


@contextmanager
def compiling_for(target: Any) -> Iterator[list[Launch]]:
    """Launches compile for the target and are listed; nothing runs."""
    import triton
    from triton.runtime.jit import JITFunction

    launches: list[Launch] = []
    real = JITFunction.run
    last: dict[Any, Any] = {}

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
        if last.get(self) != target:
            self.device_caches.clear()  # a function keeps the target of its first use for ever
            last[self] = target
        compiled = real(self, *args, grid=grid, warmup=True, **options)
        assert compiled.metadata.target == target
        launches.append(Launch(self.fn.__name__, grid, *usage(compiled)))
        return compiled

    triton.runtime.driver.set_active(_CompilesOnly(target))
    JITFunction.run = run
    try:
        yield launches
    finally:
        JITFunction.run = real


def launches_of(case: Case) -> list[str]:
    """The kernels that a forward and a backward launch, by name; nothing is compiled."""
    from triton.runtime.jit import JITFunction

    names: list[str] = []
    real = JITFunction.run
    JITFunction.run = lambda self, *_, **__: names.append(self.fn.__name__)
    try:
        case.run(torch.float32)
    finally:
        JITFunction.run = real
    return names


def usage(compiled: Any) -> tuple[int, int, int]:
    """Registers per thread, spilled bytes per thread, shared bytes per program."""
    shared = int(compiled.metadata.shared)
    if "cubin" not in compiled.asm:
        text = compiled.asm["amdgcn"]
        return _number(r"\.vgpr_count:\s+(\d+)", text), 4 * _number(r"\.vgpr_spill_count:\s+(\d+)", text), shared
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        text = _tool("cuobjdump", "-res-usage", str(cubin))
        frame = _number(r"STACK:(\d+)", text) + _number(r"LOCAL:(\d+)", text)
        stores = bool(frame) and " STL" in _tool("nvdisasm", "-c", str(cubin))  # a frame may only be for calls
    return _number(r"REG:(\d+)", text), frame if stores else 0, shared


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    found = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return found.stdout + found.stderr


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern} in what the compiler says"
    return int(found[1])


def kernels_table(compiled: dict[str, dict[str, list[Launch]]]) -> str:
    """Per kernel and target the most that any case needs."""
    names = list(
        dict.fromkeys(launch.kernel for cases in compiled.values() for one in cases.values() for launch in one)
    )
    lines = [
        "| kernel | " + " | ".join(compiled) + " |",
        "| --- |" + " --- |" * len(compiled),
    ]
    for name in names:
        cells = []
        for cases in compiled.values():
            own = [launch for launches in cases.values() for launch in launches if launch.kernel == name]
            most = [
                max(column) for column in zip(*[(one.registers, one.spilled, one.shared) for one in own], strict=True)
            ]
            cells.append("{} · {} · {}".format(*most))
        lines.append(f"| `{name.removesuffix('_kernel')}` | " + " | ".join(cells) + " |")
    note = (
        "Registers per thread · bytes spilled per thread · bytes of shared memory per program: the most that any\n"
        "layer of the next table needs, in float32 and bfloat16. Compiled with Triton {}, never run. `small`,\n"
        "`finish`, `verdict`, `running` and those of segments may spill a few bytes, outside of their loops; the\n"
        "kernels that stream the data spill none.\n"
    )
    import triton

    return "\n".join(lines) + "\n\n" + note.format(triton.__version__)


# Bytes, as passes over a tensor of the size of x. What every launch reads and writes, from the code of the kernels; the
# numbers per group are left out.
READS_AND_WRITES = {
    "start_kernel": 0, "about_kernel": 0, "finish_kernel": 0, "settle_kernel": 0, "running_kernel": 0,
    "usable_kernel": 0, "medians_kernel": 0, "distances_kernel": 0, "center_kernel": 0, "verdict_kernel": 0,
    "combine_kernel": 0,
    "sweep_kernel": 1, "row_moments_kernel": 1, "small_kernel": 2, "output_kernel": 2, "reduce_kernel": 2,
    "dx_kernel": 3, "affine_kernel": 2, "segments_kernel": 2, "segments_backward_kernel": 3,
}  # fmt: skip
BACKWARD = {"reduce_kernel", "dx_kernel", "affine_kernel", "segments_backward_kernel"}
# Statistics read x, the output reads x and writes y; backward reads x and g twice, and writes dx.
BATCHNORM = {False: 3, True: 5}
BATCHNORM_LAUNCHES = 4
# Memory bandwidth in bytes per second, as NVIDIA states it: A100 SXM with 80 GB, H100 SXM.
BANDWIDTH = {"A100": 2.039e12, "H100": 3.35e12}
REACHED, SECONDS_PER_LAUNCH = 0.85, 3e-6
LARGE = (256, 64, 56, 56)
BYTES = {"float32": 4, "bfloat16": 2}


def expected_seconds(passes: int, launches: int, gpu: str, dtype: str) -> float:
    """Arithmetic: the time of so many passes over a tensor of shape ``LARGE``."""
    return passes * math.prod(LARGE) * BYTES[dtype] / (REACHED * BANDWIDTH[gpu]) + launches * SECONDS_PER_LAUNCH


def expected_ratio(passes: int, launches: int, gpu: str, dtype: str) -> float:
    """Over that of torch's BatchNorm."""
    other = expected_seconds(sum(BATCHNORM.values()), BATCHNORM_LAUNCHES, gpu, dtype)
    return expected_seconds(passes, launches, gpu, dtype) / other


def traffic_table(cases: dict[str, list[str]]) -> str:
    """Launches and passes over the tensor of every case, beside torch's BatchNorm."""
    lines = [
        "| layer | launches forward + backward | passes over the tensor | over BatchNorm's 3 + 5 | "
        + " | ".join(f"{gpu}, {' · '.join(BYTES)}" for gpu in BANDWIDTH)
        + " |",
        "| --- | --- | --- | --- |" + " --- |" * len(BANDWIDTH),
    ]
    for name, launches in cases.items():
        parts = [[one for one in launches if (one in BACKWARD) == backward] for backward in (False, True)]
        passes = [sum(READS_AND_WRITES[one] for one in part) for part in parts]
        ratio = sum(passes) / sum(BATCHNORM.values())
        times = [
            " · ".join(f"{expected_ratio(sum(passes), len(launches), gpu, dtype):.2f}" for dtype in BYTES)
            for gpu in BANDWIDTH
        ]
        cells = [name, f"{len(parts[0])} + {len(parts[1])}", f"{passes[0]} + {passes[1]}", f"{ratio:.2f}", *times]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + (
        "\n\nThis is arithmetic, not a measurement: the launches of the code, and a pass for each time one of them\n"
        "reads or writes a tensor as large as x. Of a large group the third sweep is counted in full; it is skipped\n"
        "where the second one has certified the center. A group without a certificate after three sweeps is read as\n"
        "often as its search needs. The rows of a graph are counted once, as if they stayed in the cache. Torch\n"
        "operations on parameters alone are not counted, nor the sort that lists the rows of every graph.\n\n"
        "The last columns are the time over BatchNorm's that this makes for a tensor of {}: arithmetic, not a\n"
        "measurement. {:g} µs a launch, of which BatchNorm has {}, and the bytes at {:.0%} of the bandwidth: {}.\n"
        "The time to compute is not in it. Where one program searches whole groups, as for rows, short batches and\n"
        "graphs, it may be the larger part.\n"
    ).format(
        " × ".join(str(size) for size in LARGE),
        SECONDS_PER_LAUNCH * 1e6,
        BATCHNORM_LAUNCHES,
        REACHED,
        ", ".join(f"{gpu} {each / 1e12:g} TB/s" for gpu, each in BANDWIDTH.items()),
    )


def compile_all(names: list[str], dtypes: list[torch.dtype], chosen: list[Case]) -> dict[str, dict[str, list[Launch]]]:
    compiled: dict[str, dict[str, list[Launch]]] = {}
    for name in names:
        compiled[name] = {}
        for case in chosen:
            with compiling_for(targets()[name]) as launches:
                for dtype in dtypes:
                    case.run(dtype)
            compiled[name][case.name] = list(launches)
            print(f"{name}: {case.name}, {len(launches)} launches", file=sys.stderr, flush=True)
    return compiled


def spills(compiled: dict[str, dict[str, list[Launch]]]) -> list[str]:
    """The kernels that stream the data and spill registers."""
    return [
        f"{target}: {one.kernel} of {case} spills {one.spilled} bytes"
        for target, cases in compiled.items()
        for case, launches in cases.items()
        for one in launches
        if one.spilled and one.kernel not in OTHERS
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compile a few cases for sm_80")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        few = [
            case
            for case in CASES
            if case.name in ("guard", "φ learned", "rows, φ=1.5", "φ=1.5, channels_last", "graphs, φ learned")
        ]
        compiled = compile_all(["sm_80"], [torch.float32], [*few, HUGE])
    else:
        compiled = compile_all(list(targets()), [torch.float32, torch.bfloat16], CASES)
        put(PAGE, "benchmark: kernels", kernels_table(compiled))
        put(PAGE, "benchmark: traffic", traffic_table({case.name: launches_of(case) for case in CASES}))
    found = spills(compiled)
    print("\n".join(found) or "no kernel that streams the data spills registers")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
