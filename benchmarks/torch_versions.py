"""The quick tests with another torch: ``make test-torch VERSION=2.9.1`` runs them and fills the table of limits.md.

Tests that need a newer torch say so with ``helpers.torch_versions.needs_torch``; what they name is what an older torch
lacks. The rows are kept in ``torch_versions.csv``, one for each version of torch.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import torch

from benchmarks.pages import put

STORE = Path(__file__).with_suffix(".csv")
PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
NEEDS = "needs torch "  # how the reason of such a skipped test begins


class Row(NamedTuple):
    """The tests with one version of torch.

    Attributes:
        torch: its version.
        python: the version of Python they ran on.
        passed: tests that passed.
        failed: tests that failed.
        newer: tests that need a newer torch.
        lacking: what those say that this torch lacks.
    """

    torch: str
    python: str
    passed: int
    failed: int
    newer: int
    lacking: tuple[str, ...]


def outcomes(report: Path) -> tuple[Counter[str], list[str], list[str]]:
    """Counts of outcomes, the names of the tests that failed, and the reasons of those that need a newer torch."""
    counts: Counter[str] = Counter()
    failed, reasons = [], []
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is None:
            counts["passed"] += 1
        elif (message := skipped.get("message", "")).startswith(NEEDS):
            counts["newer"] += 1
            reasons.append(message)
        else:
            counts["skipped"] += 1
    return counts, failed, reasons


def run(arguments: list[str]) -> tuple[Row, int]:
    """Run the tests with this torch; returns the row, and pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "worksteal",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
        ]
        code = subprocess.run([*command, f"--junitxml={report}", *arguments], env=os.environ).returncode
        if not report.exists():
            raise SystemExit(f"test-torch: pytest ended with {code} and wrote no report")
        counts, failed, reasons = outcomes(report)
    version = torch.__version__.partition("+")[0]
    lacking = tuple(dict.fromkeys(reason.partition(": ")[2] for reason in sorted(reasons)))
    found = Row(version, platform.python_version(), counts["passed"], counts["failed"], counts["newer"], lacking)
    print(
        f"torch {found.torch}, Python {found.python}: {found.passed} passed, {found.failed} failed, "
        f"{found.newer} need a newer torch, {counts['skipped']} skipped for other reasons"
    )
    for name in failed:
        print(f"failed: {name}")
    for what in lacking:
        print(f"lacking: {what}")
    return found, code


def stored() -> list[Row]:
    """All rows, the oldest torch first."""
    with STORE.open(newline="", encoding="utf-8") as file:
        rows = [
            Row(
                row["torch"],
                row["python"],
                int(row["passed"]),
                int(row["failed"]),
                int(row["newer"]),
                tuple(filter(None, row["lacking"].split("; "))),
            )
            for row in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda row: [int(part) for part in row.torch.split(".")])


def keep(news: Row) -> None:
    """Replace the row of this version of torch."""
    rows = [row for row in stored() if row.torch != news.torch] if STORE.exists() else []
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows((*row[:-1], "; ".join(row.lacking)) for row in [*rows, news])


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| torch | Python | tests passed | failed | need a newer torch | what they need it for |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    lines += [
        f"| {row.torch} | {row.python} | {row.passed:,} | {row.failed} | {row.newer} | {'; '.join(row.lacking)} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, keep the row if no test was left out, and write the table."""
    arguments = sys.argv[1:]
    found, code = run(arguments)
    if not arguments:
        keep(found)
        put(PAGE, "torch versions", table(stored()))
    return code


if __name__ == "__main__":
    sys.exit(main())
