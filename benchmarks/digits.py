"""The comparison of ``make run`` as a table of the docs: eight norms on digits, clean and with broken samples.

``python -m benchmarks.digits`` runs it in two minutes, or reads ``out/compare.sqlite`` if ``make run`` has written it;
the argument may name another results file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.run import DOCS, keep
from geonorm.lab import Recipe, report, run
from geonorm.lab.recipe import DIGITS


def main() -> None:
    store = Path(sys.argv[1] if len(sys.argv) > 1 else "out/compare.sqlite")
    found = run(Recipe.from_toml(DIGITS), store)
    with tempfile.TemporaryDirectory() as folder:
        report.write(found, folder)
        table = Path(folder, "table.md").read_text(encoding="utf-8").strip()
    runs = {
        column.corruption: {norm: [round(accuracy, 2) for accuracy in of.values()] for norm, of in norms.items()}
        for column, norms in found.accuracies().items()
    }
    keep("digits", DOCS / "choosing.md", f"{table}\n\n> {report.answer(found).strip()}\n", runs)


if __name__ == "__main__":
    main()
