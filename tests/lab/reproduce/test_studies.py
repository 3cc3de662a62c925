"""Every study: its plan is sound, its smoke runs, and its page in the docs is what its results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab.data import find_source
from geonorm.lab.reproduce import PRESETS, SMOKE, Study, reproduce, studies, write_page
from geonorm.lab.reproduce.index import write_all

ROOT = Path(__file__).parents[3]
STORED = ROOT / "results"


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


@pytest.mark.skipif(not STORED.exists(), reason="no results are stored")
def test_the_pages_are_what_the_results_give(tmp_path: Path) -> None:
    """`python benchmarks/verdicts.py` writes them anew."""
    write_all(STORED, tmp_path)
    docs = ROOT / "docs" / "reproduce"
    assert {made.name for made in tmp_path.iterdir()} == {kept.name for kept in docs.iterdir()}
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (docs / made.name).read_bytes(), made.name
