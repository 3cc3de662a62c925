"""Names of the studies: the lab knows which they are, and finds them in a clone, in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import studies  # noqa: F401 - it registers its names
from geonorm.lab import Recipe, repository, run
from geonorm.lab.choices import EVALUATIONS, REGISTERED
from geonorm.lab.data import DataError, check, load
from geonorm.lab.data.sources import _KNOWN
from geonorm.lab.models import create_model
from geonorm.lab.models.create import _MODELS
from studies.recipe import StudyRecipe


def is_theirs(function: Callable[..., object]) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("studies.")


def test_what_the_studies_register_is_what_the_lab_takes_for_theirs() -> None:
    assert {name for name, known in _KNOWN.items() if is_theirs(known.load)} == {*repository.OF_STUDIES["data"]}
    networks = {name for name in _MODELS if is_theirs(type(create_model(name, width=0.1)))}
    assert networks == {*repository.OF_STUDIES["network"]}
    assert {*REGISTERED} == {*repository.OF_STUDIES["evaluation"]} <= {*EVALUATIONS}
    assert repository.OF_STUDIES["norm"] == StudyRecipe.OTHER_NORMS


@pytest.mark.parametrize(
    "line",
    [
        "from geonorm.lab.data import find_source; find_source('compas')",
        "from geonorm.lab.data import sources; assert 'compas' in [source.name for source in sources()]",
        "from geonorm.lab.models import why_not; assert not why_not('densenet121', 'bn')",
        "from geonorm.lab.models import models; assert 'densenet121' in dict(models())",
        "from geonorm.lab.choices import parse_evaluation; parse_evaluation('adapted(by=guard, share=0)')",
    ],
)
def test_a_clone_finds_them_without_an_import(line: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", line], cwd=tmp_path, check=True)


def test_processes_that_work_find_them(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    recipe = Recipe(
        data="regular_graphs",
        data_options={"train_size": 8, "test_size": 8},
        model="gcn",
        model_options={"hidden": 4, "layers": 1},
        norms=("bn",),
        seeds=(0, 1),
        epochs=1,
    )
    assert len(run(recipe, tmp_path / "r.sqlite", workers=2).finished()) == 2


def test_a_package_without_them_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "find_root", lambda package: None)
    monkeypatch.delitem(_KNOWN, "celeba")
    monkeypatch.delitem(_MODELS, "densenet121")
    told = r"'{}' is part of the studies, which live in the repository .*: git clone it, and start this there"
    assert check("celeba").said.startswith("data 'celeba' is part of the studies")
    with pytest.raises(DataError, match=told.format("celeba")):
        load("celeba")
    with pytest.raises(ValueError, match=told.format("densenet121")):
        create_model("densenet121")
