"""Measured ratios on disk, as tables and as a picture."""

from __future__ import annotations

import csv
import math
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import torch

from geonorm.html.result import figure
from geonorm.ops import describe_backend
from geonorm.ops.choose import backend_for

from .cases import COMPILED, NATIVE, PEERS, SMALL_MAPS, TORCH

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """One provider in one case.

    Attributes:
        machine: processor, threads, and the instruction set of the kernels.
        versions: of geonorm and torch.
        code: the date of the commit that was measured.
        threads: that torch may use.
        mode: short or full.
        row, case, provider: what was measured.
        microseconds, ratio, low, high: median time, and the ratio to the baseline with its quartiles.
        kept: bytes kept for backward; 0 if not counted.
        moved: bytes that the algorithm has to move; 0 if not counted.
    """

    machine: str
    versions: str
    code: str
    threads: int
    mode: str
    row: str
    case: str
    provider: str
    microseconds: float
    ratio: float
    low: float
    high: float
    kept: int = 0
    moved: int = 0


def machine(device: str = "cpu") -> str:
    """The processor, the threads that torch may use, and which kernels run; of a GPU, its model and what serves it."""
    if device != "cpu":
        kernels = backend_for(device)
        served = "torch" if kernels is None else getattr(kernels, "__name__", "").rpartition(".")[2]
        return f"{torch.cuda.get_device_name() if device == 'cuda' else device}, geonorm's layers on {served}"
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    backend = describe_backend()
    return f"{name}, {torch.get_num_threads()} threads, {backend.get('instruction set', 'no native kernels')}"


def versions() -> str:
    """Of what was measured."""
    return f"geonorm {version('geonorm')}, torch {torch.__version__}"


def code_date() -> str:
    """The date of the commit that is checked out; nothing outside a clone."""
    try:
        command = ["git", "log", "-1", "--format=%cs", "--", "src"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def append(results: Sequence[Result], path: Path) -> None:
    """Add results to a CSV file; earlier ones stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)])
        if new:
            writer.writeheader()
        for result in results:
            row = asdict(result)
            row |= {name: f"{row[name]:.4g}" for name in ("microseconds", "ratio", "low", "high")}
            writer.writerow(row)


def read(path: Path) -> list[Result]:
    """The results in a CSV file."""
    kinds: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Result(**{field.name: kinds[str(field.type)](line[field.name]) for field in fields(Result)})  # type: ignore[arg-type]
            for line in csv.DictReader(file)
        ]


def by_row(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Comparisons in the order of their rows; small maps, a part of a row over several shapes, again by themselves."""
    rows: dict[str, list[Result]] = {}
    for result in results:
        if not result.row.startswith(("growth", "machine")):
            rows.setdefault(result.row, []).append(result)
    found = {}
    for row, members in rows.items():
        found[row] = members
        small = [member for member in members if member.case == str(SMALL_MAPS)]
        if 0 < len(small) < len(members):
            found[f"{row}, small maps"] = small
    return found


def mean_ratio(results: Iterable[Result], provider: str, which: str = "ratio") -> float | None:
    """Geometric mean of a provider's ratios over the cases of a row, or of a quartile, ``low`` or ``high``."""
    ratios = [getattr(result, which) for result in results if result.provider == provider]
    return statistics.geometric_mean(ratios) if ratios else None


def with_most_threads(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Those measured with the most threads, and those with one; the second empty if that is the same."""
    most = max(result.threads for result in results)
    main = [result for result in results if result.threads == most]
    return main, [result for result in results if result.threads == 1 and most > 1]


def table(results: Sequence[Result]) -> str:
    """A Markdown table: one line per row, ratios to torch's own with their quartiles."""
    main, single = with_most_threads(results)
    most, fewer = by_row(main), by_row(single)
    columns = [(f"{NATIVE}, {main[0].threads} threads" if single else NATIVE, most, NATIVE)]
    columns += [(f"{NATIVE}, 1 thread", fewer, NATIVE)] if single else []
    columns += [("without the kernels", most, TORCH), ("without them, compiled", most, COMPILED)]
    measured = {result.provider for result in results}
    columns = [column for column in columns if column[2] in measured]
    lines = [
        "| forward + backward, over torch's own | " + " | ".join(head for head, *_ in columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for row in most:
        cells = [_with_quartiles(rows.get(row, []), provider) for _, rows, provider in columns]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _with_quartiles(members: Sequence[Result], provider: str) -> str:
    found = [mean_ratio(members, provider, which) for which in ("ratio", "low", "high")]
    if None in found:
        return ""
    ratio, low, high = found
    return f"{ratio:.1f} ({low:.1f}–{high:.1f})" if ratio and ratio >= 10 else f"{ratio:.2f} ({low:.2f}–{high:.2f})"


def table_of_peers(results: Sequence[Result]) -> str:
    """The same for what else may take a layer's place, in the cases where it was measured: a Markdown table."""
    main, _ = with_most_threads(results)
    cases = {(result.row, result.case) for result in main if result.provider in PEERS}
    members = [result for result in main if (result.row, result.case) in cases]
    rows = [(name, _with_quartiles(members, name)) for name in (NATIVE, TORCH, COMPILED, *PEERS)]
    head = f"| images {' and '.join(dict.fromkeys(member.case for member in members))} | over BatchNorm2d |\n"
    return head + "| --- | --- |\n" + "".join(f"| {name} | {cell} |\n" for name, cell in rows if cell)


def picture(results: Sequence[Result], path: Path) -> None:
    """The rows as dots with quartiles."""
    rows = {
        row: members
        for row, members in by_row(with_most_threads(results)[0]).items()
        if mean_ratio(members, NATIVE) is not None
    }
    drawing = figure(8, 0.3 * len(rows) + 1.4)
    axes = drawing.subplots()
    for height, members in enumerate(reversed(rows.values())):
        ratio, low, high = (mean_ratio(members, NATIVE, which) or math.nan for which in ("ratio", "low", "high"))
        axes.plot([low, high], [height, height], color="C0", linewidth=3, alpha=0.5, solid_capstyle="round")
        axes.plot([ratio], [height], "o", color="C0", label="median and quartiles" if not height else None)
    axes.axvline(1.0, color="gray", linewidth=1)
    axes.set_yticks(range(len(rows)), list(reversed(rows)))
    axes.set_xlabel("time over torch's own layer (less is faster)")
    axes.set_xlim(0, max(2.0, 1.1 * max(mean_ratio(members, NATIVE) or 0 for members in rows.values())))
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=120)


def slope(sizes: Sequence[int], times: Sequence[float]) -> float:
    """The exponent of time against size, by least squares on logarithms; 1 is proportional."""
    return statistics.linear_regression([math.log(s) for s in sizes], [math.log(t) for t in times]).slope
