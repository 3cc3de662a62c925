"""Where the kernels' time goes, by the system's profiler ``perf``: one case after the other, one thread.

``python -m benchmarks.profiles`` writes the table of docs/speed.md; with the name of a case it shows that one alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import geonorm.nn as ours
from benchmarks.run import DOCS, keep

PARTS = ("search", "packing, spread and output", "backward", "fresh memory")
SECONDS = 5.0


def learned(layer: nn.Module) -> nn.Module:
    nn.init.normal_(layer.phi_offset, 0.0, 0.3)  # away from the start, which has a short form
    return layer


def images() -> Tensor:
    return torch.randn(128, 64, 32, 32)


CASES: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "images (128, 64, 32, 32), φ=1.5": lambda: (ours.AugBatchNorm2d(64), images()),
    "the same, φ learned": lambda: (learned(ours.AugBatchNorm2d(64, learn_phi=True)), images()),
    "the same, robust spread": lambda: (ours.AugBatchNorm2d(64, spread="robust"), images()),
    "the same, φ=1.5, bfloat16": lambda: (ours.AugBatchNorm2d(64).bfloat16(), images().bfloat16()),
    "(4096, 64), φ=1.5": lambda: (ours.AugBatchNorm1d(64), torch.randn(4096, 64)),
    "(4096, 64), φ learned": lambda: (learned(ours.AugBatchNorm1d(64, learn_phi=True)), torch.randn(4096, 64)),
    "LayerNorm (64, 128, 384)": lambda: (ours.AugLayerNorm(384), torch.randn(64, 128, 384)),
    "GroupNorm (64, 64, 32, 32)": lambda: (ours.AugGroupNorm(32, 64), torch.randn(64, 64, 32, 32)),
    "channels_last (128, 512, 4, 4)": lambda: (
        ours.AugBatchNorm2d(512),
        torch.randn(128, 512, 4, 4).to(memory_format=torch.channels_last),
    ),
    "(128, 64), φ=1.5": lambda: (ours.AugBatchNorm1d(64), torch.randn(128, 64)),
}


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        return work(sys.argv[2])
    if len(sys.argv) > 1:
        return print(profile(sys.argv[1]))
    found = {case: profile(case) for case in CASES}
    lines = [f"| with one thread | {' | '.join(PARTS)} |\n", "| --- |" + " --- |" * len(PARTS) + "\n"]
    for case, shares in found.items():
        cells = [f"{100 * shares[part] / shares['of the process']:.0f} %" for part in PARTS]
        lines.append(f"| {case} | {' | '.join(cells)} |\n")
    keep("profile", DOCS / "speed.md", "".join(lines), found)


def work(case: str) -> None:
    torch.set_num_threads(1)
    layer, x = CASES[case]()
    x.requires_grad_()
    gradient = torch.randn_like(x)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        x.grad = None
        layer(x).backward(gradient)


def profile(case: str) -> dict[str, float]:
    """Per cent of the process's time in each part; starting Python is in the rest."""
    with tempfile.NamedTemporaryFile() as file:
        work = [sys.executable, "-m", "benchmarks.profiles", "--work", case]
        record = ["perf", "record", "-q", "-F", "500", "-o", file.name, *work]
        subprocess.run(record, check=True, capture_output=True, cwd=DOCS.parent)
        report = ["perf", "report", "-i", file.name, "--no-children", "--stdio"]
        text = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    shares = dict.fromkeys(PARTS, 0.0)
    for line in text.splitlines():
        if re.search("libgeonorm|clear_page|exc_page", line) and not line.startswith("#"):
            shares[part_of(line)] += float(line.split("%")[0])
    return {
        **{part: round(share, 2) for part, share in shares.items()},
        "of the process": round(sum(shares.values()), 2),
    }


def part_of(line: str) -> str:
    if "page" in line:
        return "fresh memory"
    if "backward" in line:
        return "backward"
    return "search" if re.search("earch|solve_lanes|find_center", line) else "packing, spread and output"


if __name__ == "__main__":
    main()
