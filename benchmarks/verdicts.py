"""Writes the pages of docs/reproduce from results/NAME/PRESET.jsonl, copies of what ``geonorm reproduce`` wrote."""

from __future__ import annotations

from pathlib import Path

from studies.index import write_all

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    print(write_all(ROOT / "results", ROOT / "docs" / "reproduce"))
