"""Costs as ratios to torch's own, in one run and shuffled order: the stored results, tables and picture of the docs.

``python -m benchmarks.run`` measures everything in under twenty minutes. Parts, as arguments: ``center``; ``layers``;
``avx2``, the layers again with geonorm and torch both limited to AVX2, if the processor has AVX-512; ``pages``, which
measures nothing and writes the tables from what is stored.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import performance, speed
from benchmarks.pages import put
from benchmarks.performance import DOCS, STORE
from geonorm.functional import center
from geonorm.ops import describe_backend

KEPT = Path(__file__).with_name("pages.json")
PARTS = ("center", "layers", "avx2", "pages")
LIMITED_PART = "limited"  # what the process started by avx2 does
# Variables that limit the kernels of geonorm, and those of torch.
LIMITED = {"GEONORM_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--seconds", type=float, help="for each case, instead of the usual ones: for trying this script"
    )
    chosen = parser.parse_args()
    parts = chosen.parts or PARTS
    if unknown := set(parts) - {*PARTS, LIMITED_PART}:
        parser.error(f"expected some of {', '.join(PARTS)} (got {', '.join(sorted(unknown))})")
    if "center" in parts:
        results = [result for shape in ((128, 64, 32, 32), (4096, 64)) for result in centers(shape)]
        store(results, [result for result in stored() if result.row != "center"])
    if "layers" in parts:
        keep_run(speed.run(full=True, seconds=chosen.seconds))
    if LIMITED_PART in parts:
        check_limited()
        keep_run(speed.run(full=True, seconds=chosen.seconds or 2.0, over_torch=True))
    if "avx2" in parts and describe_backend().get("instruction set") == "avx512":
        again = [sys.executable, "-m", "benchmarks.run", LIMITED_PART]
        again += ["--seconds", str(chosen.seconds)] if chosen.seconds else []
        with tempfile.TemporaryDirectory() as cache:  # torch would take compiled graphs for AVX-512 from the usual one
            environment = {**os.environ, **LIMITED, "TORCHINDUCTOR_CACHE_DIR": cache}
            if subprocess.run(again, check=False, env=environment).returncode:
                raise SystemExit("the run limited to AVX2 failed; its message is above")
    if "pages" in parts:
        from benchmarks import readme  # it imports this file

        performance.write()
        readme.main()
        print(f"{speed.table(performance.newest())}\n{performance.by_machine()}")


def check_limited() -> None:
    found = describe_backend().get("instruction set")
    if found != LIMITED["GEONORM_ISA"]:
        raise SystemExit(f"the kernels were not built for AVX2 (got {found}): python src/geonorm/csrc/build.py")


def stored() -> list[speed.Result]:
    return speed.read(STORE) if STORE.exists() else []


def keep_run(results: Sequence[speed.Result]) -> None:
    """Store a run in the place of the former one of this machine."""
    here = speed.machine()
    store(results, [result for result in stored() if result.machine != here or result.row == "center"])


def store(results: Sequence[speed.Result], others: Sequence[speed.Result]) -> None:
    STORE.unlink(missing_ok=True)
    speed.append([*others, *results], STORE)


def centers(shape: tuple[int, ...]) -> list[speed.Result]:
    torch.manual_seed(0)
    x = torch.randn(shape)
    dims = tuple(d for d in range(len(shape)) if d != 1)
    per_channel = torch.full((64,), 1.5)
    work: dict[str, Any] = {
        "mean": lambda: x.mean(dims),
        "median (torch)": lambda: x.transpose(0, 1).reshape(64, -1).median(1).values,
        "center, φ=1": lambda: center(x, 1.0, dims),
        "center, φ=1.2": lambda: center(x, 1.2, dims),
        "center, φ=1.5": lambda: center(x, 1.5, dims),
        "center, φ=1.5 per channel": lambda: center(x, per_channel, dims),
        "center, φ=2": lambda: center(x, 2.0, dims),
        "center, φ=3": lambda: center(x, 3.0, dims),
    }
    providers = {name: speed.Provider(lambda call=call: call) for name, call in work.items()}
    return speed.measure(speed.Case("center", str(shape), tuple, providers, lambda call: call), 4.0, "full")


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
