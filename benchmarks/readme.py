"""The table of results in the README, from stored results: ``python -m benchmarks.readme`` writes it."""

from __future__ import annotations

import json
import re
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
        (
            f"training time of a layer, relative to torch's BatchNorm2d, CPU with {instruction_set()}",
            f"guard: {ratio('BatchNorm2d, guard')}, φ=1.5: {ratio('BatchNorm2d, φ=1.5')}, "
            f"robust spread: {ratio('BatchNorm2d, robust spread')}, POP-Norm: {ratio('PopNorm2d')}",
            "speed.md",
        ),
        (
            "the same for a step of ResNet-20",
            f"guard: {ratio('ResNet-20 step, guard')}, φ=1.5: {ratio('ResNet-20 step, φ=1.5')}",
            "speed.md",
        ),
        ("faults of random strength in random networks, found by `diagnose`", found_faults(), "analysis/diagnose.md"),
        ("claims of the papers, tested", claims(), "findings.md"),
        ("statements of the papers that do not hold as printed", f"{errata()}, each with a demonstration", "errata.md"),
    ]
    lines = ["| measurement | result | more |", "| --- | --- | --- |"]
    lines += [f"| {what} | {said} | [{name(page)}](docs/{page}) |" for what, said, page in rows]
    return "\n".join(lines) + "\n"


def ratio(row: str) -> str:
    """Of geonorm, in the table of speed."""
    return f"{performance.ratio(row):.2f}×"


def instruction_set() -> str:
    """The instruction set of the run in the table of speed."""
    return {"avx512": "AVX-512", "avx2": "AVX2"}.get(kind := performance.newest()[0].machine.split(", ")[-1], kind)


def name(page: str) -> str:
    """The name of a page for a link; for an index page, that of its folder."""
    *folders, last = page.removesuffix(".md").split("/")
    return folders[-1] if last == "index" else last


def claims() -> str:
    """The counts at both scales."""
    laptop, paper = (count(DOCS.parent / "results", preset) for preset in PRESETS)
    said = f"{laptop.holds} hold, {laptop.fails} do not, {laptop.undecided} undecided at the scale of two cores; "
    said += f"{paper.holds} hold, {paper.fails} do not, {paper.undecided} undecided at the papers' scale"
    untested = laptop.untested + paper.untested
    return said + (f"; {untested} cannot be tested here" if untested else "")


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
