"""The pages on speed, from the stored results: ``python -m benchmarks.run pages`` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks import speed
from benchmarks.pages import put
from benchmarks.speed.cases import NATIVE, TORCH

DOCS = Path(__file__).parents[1] / "docs"
STORE = Path(__file__).with_name("results.csv")
GPUS = Path(__file__).with_name("results_gpu.csv")  # runs of `geonorm bench --device`, one after the other
OPTIONS = ("φ=1.5", "φ learned", "robust spread", "guard", "median")  # a row that names none is in the first column
LEVEL = 0.1  # a ratio this close to 1 is called about as fast


@cache
def stored() -> tuple[speed.Result, ...]:
    """The full runs."""
    return tuple(result for result in speed.read(STORE) if result.mode == "full") if STORE.exists() else ()


def newest() -> list[speed.Result]:
    """The run on the pages: the last one with all its providers."""
    machines = [result.machine for result in stored() if result.provider == TORCH]
    if not machines:
        raise SystemExit(f"{STORE.name} has no full run: python -m benchmarks.run measures one")
    machine = machines[-1]
    return [result for result in stored() if result.machine == machine and result.row != "center"]


def ratio(row: str, provider: str = NATIVE) -> float:
    """Time over torch's own layer, with the most threads."""
    return ratios(newest(), provider)[row]


def ratios(results: Sequence[speed.Result], provider: str = NATIVE) -> dict[str, float]:
    rows = speed.by_row(speed.with_most_threads(results)[0])
    found = {row: speed.mean_ratio(members, provider) for row, members in rows.items()}
    return {row: value for row, value in found.items() if value is not None}


def measured_on() -> str:
    of = newest()[0]
    return f"Code of {of.code}, {of.versions.split(', ')[1]}, on {of.machine}. {speed.about_machine(newest())}"


def ratios_by_machine() -> dict[str, dict[str, float]]:
    """Geonorm in the newest runs of the same code on every machine and instruction set; that of the pages is first."""
    code = newest()[0].code
    same = [result.machine for result in stored() if result.code == code and result.row != "center"]
    machines = dict.fromkeys([newest()[0].machine, *same])
    return {machine: ratios([result for result in stored() if result.machine == machine]) for machine in machines}


def by_machine() -> str:
    """The same as a Markdown table."""
    machines = ratios_by_machine()
    columns = list(machines.values())
    lines = [f"| code of {newest()[0].code} | {' | '.join(machines)} |\n", "| --- |" + " --- |" * len(columns) + "\n"]
    for row in columns[0]:
        cells = [f"{column[row]:.2f}" if row in column else "" for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |\n")
    return "".join(lines)


def by_gpu() -> str:
    """Geonorm in the newest run of every GPU: a Markdown table; a sentence if there is none."""
    runs: dict[str, list[speed.Result]] = {}
    for result in speed.read(GPUS) if GPUS.exists() else []:
        runs.setdefault(result.machine, []).append(result)
    if not runs:
        return "No measurement has been sent yet.\n"
    columns = [
        ratios([one for one in of if (one.code, one.mode) == (of[-1].code, of[-1].mode)]) for of in runs.values()
    ]
    heads = [f"{machine}, {of[-1].versions.split(', ')[1]}, code of {of[-1].code}" for machine, of in runs.items()]
    lines = [f"| over torch's own | {' | '.join(heads)} |\n", "| --- |" + " --- |" * len(heads) + "\n"]
    for row in dict.fromkeys(row for column in columns for row in column):
        cells = [f"{column[row]:.2f}" if row in column else "" for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |\n")
    return "".join(lines)


def expected() -> str:
    """The rows without small maps, by torch's layer and by option: a Markdown table."""
    kinds: dict[str, dict[str, float]] = {}
    for row, value in ratios(newest()).items():
        if not row.endswith("small maps") and "compiled" not in row:
            option = next((option for option in OPTIONS if f", {option}" in row), OPTIONS[0])
            kinds.setdefault(row.replace(f", {option}", ""), {})[option] = value
    lines = [f"| over torch's | {' | '.join(OPTIONS)} |\n", "| --- |" + " --- |" * len(OPTIONS) + "\n"]
    for kind, values in kinds.items():
        cells = [f"{values[option]:.2f}" if option in values else "" for option in OPTIONS]
        lines.append(f"| {kind} | {' | '.join(cells)} |\n")
    return "".join(lines)


def limits() -> str:
    """What docs/limits.md says of speed."""
    found = ratios(newest())
    layers = {row: value for row, value in found.items() if "ResNet" not in row and "evaluation" not in row}
    slowest = max(layers, key=layers.__getitem__)
    steps = {
        row.removeprefix("ResNet-20 step, "): value for row, value in found.items() if row.startswith("ResNet-20 step,")
    }
    torch = ratios(newest(), TORCH)
    slower = sum(value > 1 + LEVEL for value in layers.values())
    return (
        f"- **{slower} of {len(layers)} kinds of layer and input are slower than torch's own**,"
        f" by up to {layers[slowest]:.1f} times ({slowest}).\n"
        f"- **A training step of ResNet-20** takes {listed(steps)} times as long as with BatchNorm.\n"
        f"- **In evaluation** a layer takes {found['evaluation, φ=1.5']:.2f} times as long as BatchNorm2d, until it is"
        " [fused](guide/fuse.md).\n"
        "- **Without the kernels** — no compiler at install, or a case that"
        " [torch takes over](speed.md#which-one-runs) —"
        f" a layer takes {torch['BatchNorm2d, φ=1.5']:.0f} times as long as BatchNorm2d at φ=1.5,"
        f" {torch['BatchNorm2d, guard']:.0f} times with a guard, and {torch['BatchNorm1d, φ=1.5']:.0f} times as long as"
        " BatchNorm1d in dense layers.\n"
    )


def listed(values: dict[str, float]) -> str:
    *first, last = [f"{value:.2f} ({name})" for name, value in values.items()]
    return f"{', '.join(first)} and {last}"


def tables() -> dict[tuple[str, str], str]:
    """What stands between the marks of the pages."""
    results = newest()
    return {
        ("speed.md", "benchmark: expected"): expected(),
        ("speed.md", "benchmark: speed"): f"{measured_on()}\n{speed.table(results)}",
        ("speed.md", "benchmark: peers"): speed.table_of_peers(results),
        ("speed.md", "benchmark: machines"): by_machine(),
        ("speed.md", "benchmark: bounds"): speed.table_of_limits(results),
        ("speed.md", "benchmark: gpus"): by_gpu(),
        ("limits.md", "benchmark: limits"): limits(),
        ("center.md", "benchmark: center"): by_shape([result for result in stored() if result.row == "center"]),
    }


def by_shape(results: Sequence[speed.Result]) -> str:
    """A Markdown table with a column for each shape."""
    cases = list(dict.fromkeys(result.case for result in results))
    lines = [f"| forward | {' | '.join(cases)} |", "| --- |" + " --- |" * len(cases)]
    for provider in dict.fromkeys(result.provider for result in results):
        of = {result.case: result.ratio for result in results if result.provider == provider}
        lines.append(f"| {provider} | {' | '.join(f'{of[case]:.1f}×' for case in cases)} |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """All of them, and the picture."""
    for (page, mark), text in tables().items():
        put(DOCS / page, mark, text)
    speed.picture(newest(), DOCS / "images" / "speed.png")
