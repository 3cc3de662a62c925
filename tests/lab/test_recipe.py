"""Recipes: their runs, their mistakes, and TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab import Recipe
from geonorm.lab.choices import parse_evaluation


def test_runs_are_all_combinations() -> None:
    recipe = Recipe(
        norms=("bn", "ln"), losses=("erm", "cvar(alpha=0.2)"), corruptions=("clean", "offset"), seeds=(3, 4), folds=2
    )
    runs = recipe.runs()
    assert len(runs) == 2 * 2 * 2 * 2 * 2
    assert len({run.key for run in runs}) == len(runs)
    assert {run["fold"] for run in runs} == {0, 1}
    assert Recipe().runs()[0]["fold"] is None


def test_keys_know_every_choice() -> None:
    keys = {
        recipe.runs()[0].key
        for recipe in (
            Recipe(),
            Recipe(lr=0.2),
            Recipe(epochs=3),
            Recipe(threads=2),
            Recipe(model_options={"width": 2}),
        )
    }
    assert len(keys) == 5
    assert Recipe(seeds=(0,)).runs()[0].key == Recipe(seeds=(0, 1)).runs()[0].key


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norms": ("augbm",)}, "did you mean 'augbn'"),
        ({"norms": ()}, "at least one of norms"),
        ({"seeds": (1, 1)}, "each of seeds once"),
        ({"losses": ("cvarr(alpha=0.1)",)}, "did you mean 'cvar'"),
        ({"losses": ("cvar",)}, r"expected alpha in 'cvar'"),
        ({"losses": ("cvar(alpha=2)",)}, r"alpha in \(0, 1\]"),
        ({"losses": ("cvar(beta=2)",)}, "unknown argument 'beta'"),
        ({"corruptions": ("ofset",)}, "did you mean 'offset'"),
        ({"corruptions": ("clean(share=1)",)}, "unknown argument 'share'"),
        ({"evaluations": ("nois",)}, "did you mean 'noise'"),
        ({"evaluations": ("noise(sd=1)",)}, "unknown argument 'sd'"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"folds": 1}, "folds"),
        ({"lr": 0}, "lr > 0"),
        ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"decay": "exp"}, "unknown decay 'exp'; known are constant"),
    ],
)
def test_mistakes(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)  # type: ignore[arg-type]


def test_evaluations() -> None:
    found = parse_evaluation("bim(eps=0.03, steps=5, samples=100, recalibrated=true)")
    assert found.arguments == {"eps": 0.03, "steps": 5}
    assert (found.samples, found.recalibrated) == (100, True)


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('norms = ["bn", "pop(kappa=4)"]\nseeds = [7]\nlr = 0.05\n[model_options]\nwidth = 0.5\n')
    recipe = Recipe.from_toml(path)
    assert recipe == Recipe(norms=("bn", "pop(kappa=4)"), seeds=(7,), lr=0.05, model_options={"width": 0.5})
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    path.write_text("epochz = 3")
    with pytest.raises(ValueError, match="did you mean 'epochs'"):
        Recipe.from_toml(path)
    path.write_text("epochs = = 3")
    with pytest.raises(ValueError, match="no TOML"):
        Recipe.from_toml(path)
