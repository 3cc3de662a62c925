"""Measured ratios on disk, as a table and as a picture."""

from __future__ import annotations

import csv
import math
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import torch

from geonorm.html.result import figure
from geonorm.ops import describe_backend

from .cases import COMPILED, NATIVE, TORCH

_COLUMNS = (NATIVE, TORCH, COMPILED, "published recipe", "median by torch", "GroupNorm", "clone")


@dataclass(frozen=True)
class Result:
    """One provider in one case.

    Attributes:
        machine: processor, threads, and the instruction set of the kernels.
        versions: of geonorm and torch.
        threads: that torch may use.
        mode: short or full.
        row, case, provider: what was measured.
        microseconds, ratio, low, high: median time, and the ratio to the baseline with its quartiles.
        kept: bytes kept for backward; empty if not counted.
        target: ratio to reach; empty if there is none.
    """

    machine: str
    versions: str
    threads: int
    mode: str
    row: str
    case: str
    provider: str
    microseconds: float
    ratio: float
    low: float
    high: float
    kept: str = ""
    target: str = ""


def machine() -> str:
    """The processor, the threads that torch may use, and which kernels run."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    backend = describe_backend()
    return f"{name}, {torch.get_num_threads()} threads, {backend.get('instruction set', 'no native kernels')}"


def versions() -> str:
    """Of what was measured."""
    return f"geonorm {version('geonorm')}, torch {torch.__version__}"


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


def by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results in the order of their rows."""
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.row, []).append(result)
    return rows


def mean_ratio(results: Sequence[Result], provider: str) -> float | None:
    """Geometric mean of a provider's ratios over the cases of a row."""
    ratios = [result.ratio for result in results if result.provider == provider]
    return statistics.geometric_mean(ratios) if ratios else None


def with_most_threads(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Those measured with the most threads, and those with one; the second empty if that is the same."""
    most = max(result.threads for result in results)
    main = [result for result in results if result.threads == most]
    return main, [result for result in results if result.threads == 1 and most > 1]


def table(results: Sequence[Result]) -> str:
    """A Markdown table: one line per row, providers as columns, ratios to torch's own; one thread beside."""
    results, single = with_most_threads(results)
    alone = by_row(single)
    providers = [name for name in dict.fromkeys(result.provider for result in results) if name in _COLUMNS]
    heads = [f"{NATIVE}, 1 thread"] if single else []
    lines = [
        "| forward + backward, over torch's own | to reach | " + " | ".join([*providers, *heads]) + " |",
        "| --- | --- |" + " --- |" * len([*providers, *heads]),
    ]
    for row, members in by_row(results).items():
        if row.startswith("growth"):
            continue
        target = next((float(member.target) for member in members if member.target), None)
        cells = []
        for provider in providers:
            mean = mean_ratio(members, provider)
            cell = "" if mean is None else f"{mean:.2f}"
            missed = provider == NATIVE and mean is not None and target is not None and mean > target
            cells.append(f"{cell} (missed)" if missed else cell)
        if single:
            mean = mean_ratio(alone.get(row, []), NATIVE)
            cells.append("" if mean is None else f"{mean:.2f}")
        lines.append(f"| {row} | {'' if target is None else f'≤ {target:g}'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def picture(results: Sequence[Result], path: Path) -> None:
    """The rows as dots with quartiles, beside the ratio to reach."""
    rows = {
        row: members
        for row, members in by_row(with_most_threads(results)[0]).items()
        if mean_ratio(members, NATIVE) is not None
    }
    drawing = figure(8, 0.42 * len(rows) + 1.4)
    axes = drawing.subplots()
    for height, members in enumerate(reversed(rows.values())):
        ratio = mean_ratio(members, NATIVE)
        assert ratio is not None
        mine = [member for member in members if member.provider == NATIVE]
        low, high = (statistics.geometric_mean([getattr(m, name) for m in mine]) for name in ("low", "high"))
        axes.plot([low, high], [height, height], color="C0", linewidth=3, alpha=0.5, solid_capstyle="round")
        axes.plot([ratio], [height], "o", color="C0", label="measured, with quartiles" if not height else None)
        targets = [float(member.target) for member in mine if member.target]
        if targets:
            axes.plot(
                targets[:1], [height], "|", color="black", markersize=14, label="to reach" if not height else None
            )
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
