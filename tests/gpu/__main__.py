"""``make test-gpu``: the checks on the GPU of this machine, in a few minutes; writes ``out/gpu/check.txt``.

Exit code 0 if all pass, 1 if one fails, 2 if there is no GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from geonorm.lab.bars import say
from geonorm.lab.devices import CPU, described, find_device
from geonorm.lab.info import facts

from . import checks

PAGE = Path("out/gpu/check.txt")
_WORST = 5  # shown of each part


def main() -> int:
    """Run everything, and write the page."""
    device = find_device("auto")
    if device == CPU:
        say(
            f"make test-gpu: torch {torch.__version__} finds no GPU here. It needs CUDA, ROCm or MPS, and a torch "
            "built for it; `make test` checks the CPU."
        )
        return 2
    lines = [f"{name}: {value}" for name, value in facts().items()] + [f"device: {described(device)}"]
    failed = 0
    for part, outcomes in parts(device):
        start = time.perf_counter()
        told, wrong = summed_up(part, outcomes)
        failed += wrong
        told[0] += f" ({time.perf_counter() - start:.0f} s)"
        say("\n".join(told))
        lines += ["", *told]
    lines += ["", f"{failed} checks failed" if failed else "all checks passed"]
    say(lines[-1])
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"Written to {PAGE}")
    return int(bool(failed))


def parts(device: str) -> Iterator[tuple[str, Iterable[checks.Outcome]]]:
    """The checks, by name."""
    for backend, why_not in checks.backends(device).items():
        if why_not:
            yield f"layers, {backend}: not checked, {why_not}", ()
        else:
            yield f"layers, {backend}", checks.layer_checks(device, backend)
            yield f"data, {backend}", checks.data_checks(device, backend)
    yield "the lab", checks.lab_checks(device)
    yield "screen and diagnose", checks.model_checks(device)


def summed_up(part: str, outcomes: Iterable[checks.Outcome]) -> tuple[list[str], int]:
    """A headline with the worst checks of a part, and how many failed. An error of a check is its failure."""
    found: list[checks.Outcome] = []
    lines: list[str] = []
    try:
        found.extend(outcomes)
    except Exception as error:
        lines.append(f"  ended by {type(error).__name__}: {error}")
    wrong = [one for one in found if not one.is_good]
    good = sorted((one for one in found if one.is_good), key=lambda one: one.share, reverse=True)
    for one in [*wrong, *good[:_WORST]]:
        word = "ok    " if one.is_good else "FAILED"
        lines.append(f"  {word} {one.name}: {one.error:.2g}, allowed {one.allowed:.2g}")
    failed = len(wrong) + sum("ended by" in line for line in lines)
    return [f"{part}: {len(found)} checks, {failed} failed", *lines], failed


if __name__ == "__main__":
    sys.exit(main())
