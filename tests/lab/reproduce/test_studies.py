"""Every study: its plan is sound, its smoke runs, and its page in the docs is what its results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab.data import find_source
from geonorm.lab.reproduce import PRESETS, SMOKE, Study, reproduce, results, studies, write_page

ROOT = Path(__file__).parents[3]
STORED = sorted((ROOT / "results").glob("*/*.jsonl"))


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.name)
def test_plans(study: Study) -> None:
    for preset in (*PRESETS, SMOKE):
        parts = study.plan(preset)
        assert parts
        keys = [run.key for recipe in parts.values() for run in recipe.runs()]
        assert len(keys) == len(set(keys)), "a training stands in two parts"


@pytest.mark.slow
@pytest.mark.parametrize("study", studies(), ids=lambda study: study.name)
def test_smoke(study: Study, tmp_path: Path) -> None:
    if not all(find_source(name).at_hand for name in study.data(SMOKE)):
        pytest.skip("GEONORM_DATA names no data folder")
    found = reproduce(study.name, SMOKE, folder=tmp_path)
    assert write_page(study.name, found, tmp_path).read_text().startswith(f"# {study.name}")


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_page_is_what_the_results_give(path: Path, tmp_path: Path) -> None:
    """`reproduce.write_page` with docs/reproduce as its folder writes it anew."""
    name = path.parent.name
    page = write_page(name, results.read(path), tmp_path)
    for made in page.parent.iterdir():
        stored = ROOT / "docs" / "reproduce" / made.name
        assert made.read_bytes() == stored.read_bytes(), made.name
