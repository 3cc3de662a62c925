"""The table of results in the README, from stored results: ``python -m benchmarks.readme`` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from statistics import fmean

from benchmarks import performance
from benchmarks.pages import put
from benchmarks.run import DOCS, KEPT
from studies.index import count
from studies.study import PRESETS

README = DOCS.parent / "README.md"


def table() -> str:
    """A row for each measurement."""
    clean, broken = (
        {norm: f"{fmean(runs):.1f} %" for norm, runs in norms.items()}
        for norms in json.loads(KEPT.read_text(encoding="utf-8"))["digits"]["result"].values()
    )
    first = ("bn", "ln", "robustbn", "guardbn")
    rows = [
        ("digits, ten seeds", ", ".join(f"`{norm}` {clean[norm]}" for norm in first), "choosing.md"),
        (
            "the same, one training sample in ten broken",
            ", ".join(f"`{norm}` {broken[norm]}" for norm in first),
            "choosing.md",
        ),
        *(
            (
                f"training time of a layer, relative to torch's BatchNorm2d, on {spelled(machine)}",
                layers(of),
                "speed.md",
            )
            for machine, of in performance.ratios_by_machine().items()
        ),
        ("the same for a step of ResNet-20, on the first of these", steps(), "speed.md"),
        ("faults of random strength in random networks, found by `diagnose`", found_faults(), "analysis/diagnose.md"),
        ("claims of the papers, tested", claims(), "findings.md"),
        ("statements of the papers that do not hold as printed", f"{errata()}, each with a demonstration", "errata.md"),
    ]
    lines = ["| measurement | result | more |", "| --- | --- | --- |"]
    lines += [f"| {what} | {said} | [{name(page)}](docs/{page}) |" for what, said, page in rows]
    return "\n".join(lines) + "\n"


def layers(ratios: Mapping[str, float]) -> str:
    """The norms over the batch in one run of the benchmark."""
    rows = {name: f"BatchNorm2d, {name}" for name in ("guard", "φ=1.5", "robust spread")} | {"POP-Norm": "PopNorm2d"}
    return ", ".join(f"{name}: {ratios[row]:.2f}×" for name, row in rows.items())


def steps() -> str:
    """A training step of a network in the run on the pages."""
    return ", ".join(f"{name}: {performance.ratio(f'ResNet-20 step, {name}'):.2f}×" for name in ("guard", "φ=1.5"))


def spelled(machine: str) -> str:
    """A machine of the benchmark, its instruction set in the maker's spelling."""
    return machine.replace("avx512", "AVX-512").replace("avx2", "AVX2")


def name(page: str) -> str:
    """The name of a page for a link; for an index page, that of its folder."""
    *folders, last = page.removesuffix(".md").split("/")
    return folders[-1] if last == "index" else last


def claims() -> str:
    """The counts at both scales."""
    laptop, paper = (count(DOCS.parent / "results", preset) for preset in PRESETS)
    said = f"{laptop.holds} hold, {laptop.fails} do not, {laptop.undecided} undecided at the scale of two cores; "
    said += f"{paper.holds} hold, {paper.fails} do not, {paper.undecided} undecided at the papers' scale"
    untested, pending = laptop.untested + paper.untested, laptop.pending + paper.pending
    said += f"; {untested} cannot be tested here" if untested else ""
    return said + (f"; {pending} wait for more runs" if pending else "")


def found_faults() -> str:
    said = re.search(r"\*\*(\d+ of \d+)\*\* faults .*?\*\*(\d+ of \d+)\*\* healthy", page("analysis/diagnose.md"))
    assert said
    return f"{said[1]}; {said[2]} healthy ones raise an alarm"


def errata() -> int:
    return len(re.findall(r"^\| [EPT]\d+ \|", page("errata.md"), re.MULTILINE))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def main() -> None:
    put(README, "results", table())


if __name__ == "__main__":
    main()
