"""Costs as ratios to torch's own, in one run and shuffled order: the stored results, tables and picture of the docs.

``python -m benchmarks.run`` measures everything in under fifteen minutes; ``center`` or ``layers`` as an argument that
part alone.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch

from benchmarks import speed
from benchmarks.pages import put
from geonorm.functional import center

DOCS = Path(__file__).parents[1] / "docs"
STORE = Path(__file__).with_name("results.csv")
KEPT = Path(__file__).with_name("pages.json")


def main() -> None:
    parts = sys.argv[1:] or ["center", "layers"]
    if "center" in parts:
        results = [result for shape in ((128, 64, 32, 32), (4096, 64)) for result in centers(shape)]
        speed.append(results, STORE)
        write("center", DOCS / "center.md", by_shape(results))
    if "layers" in parts:
        results = speed.run(full=True)
        speed.append(results, STORE)
        write("speed", DOCS / "speed.md", f"Measured on {speed.machine()}.\n\n{speed.table(results)}")
        speed.picture(results, DOCS / "images" / "speed.png")
        write("machines", DOCS / "speed.md", by_machine())


def by_machine() -> str:
    """The last ratios of geonorm on every machine in the store, in the cases of the last one: a Markdown table."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with STORE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["mode"] == "full" and line["provider"] == "geonorm" and line["target"] and int(line["threads"]) > 1:
                rows = found.pop(line["machine"], {})  # moved to the end
                rows.setdefault(line["row"], {})[line["case"]] = float(line["ratio"])
                found[line["machine"]] = rows
    machines = list(reversed(found))
    lines = [f"| geonorm, over torch's own | {' | '.join(machines)} |\n", "| --- |" + " --- |" * len(machines) + "\n"]
    for row, cases in found[machines[0]].items():
        ratios = [[found[machine].get(row, {}).get(case) for case in cases] for machine in machines]
        cells = ["" if None in of else f"{geometric_mean(of):.2f}" for of in ratios]
        lines.append(f"| {row} | {' | '.join(cells)} |\n")
    return "".join(lines)


def centers(shape: tuple[int, ...]) -> list[speed.Result]:
    torch.manual_seed(0)
    x = torch.randn(shape)
    dims = tuple(d for d in range(len(shape)) if d != 1)
    per_channel = torch.full((64,), 1.5)
    work = {
        "mean": lambda: x.mean(dims),
        "median (torch)": lambda: x.transpose(0, 1).reshape(64, -1).median(1).values,
        "center, φ=1": lambda: center(x, 1.0, dims),
        "center, φ=1.2": lambda: center(x, 1.2, dims),
        "center, φ=1.5": lambda: center(x, 1.5, dims),
        "center, φ=1.5 per channel": lambda: center(x, per_channel, dims),
        "center, φ=2": lambda: center(x, 2.0, dims),
        "center, φ=3": lambda: center(x, 3.0, dims),
    }
    return speed.measure(speed.Case("center", str(shape), work, {}, None), 4.0, "full")


def by_shape(results: list[speed.Result]) -> str:
    """A Markdown table with a column for each shape."""
    cases = list(dict.fromkeys(result.case for result in results))
    lines = [f"| forward | {' | '.join(cases)} |", "| --- |" + " --- |" * len(cases)]
    for provider in dict.fromkeys(result.provider for result in results):
        ratios = [result.ratio for result in results if result.provider == provider]
        lines.append(f"| {provider} | {' | '.join(f'{ratio:.1f}×' for ratio in ratios)} |")
    return "\n".join(lines) + "\n"


def keep(name: str, page: Path, table: str, result: dict[str, Any]) -> None:
    """Store a result with the table made of it, and put that into the page; a test compares the two."""
    stored = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    about = {"machine": speed.machine(), "versions": speed.versions()}
    stored[name] = {"page": str(page.relative_to(DOCS)), **about, "table": table, "result": result}
    KEPT.write_text(json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    write(name, page, table)


def write(name: str, page: Path, table: str) -> None:
    """Show a table, and put it between the page's marks."""
    print(table)
    put(page, f"benchmark: {name}", table)


if __name__ == "__main__":
    main()
