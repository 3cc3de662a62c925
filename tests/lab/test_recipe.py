"""Recipes: their runs, their mistakes, and TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab import Recipe
from geonorm.lab.choices import parse_evaluation
from geonorm.lab.store import key_of


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
        ({"folds": False}, "folds"),
        ({"milestones": (30, 60)}, "milestones as fractions of the epochs"),
        ({"lr": 0}, "lr > 0"),
        ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"optimizer": 3}, "unknown optimizer 3"),
        ({"decay": "exp"}, "unknown decay"),
        ({"lr": "0.1"}, "lr to be a number"),
        ({"lr": float("inf")}, "lr to be a number"),
        ({"momentum": 2}, "momentum from 0"),
        ({"weight_decay": "0"}, "weight_decay to be a number"),
        ({"seeds": "3"}, "seeds to be whole numbers"),
        ({"seeds": (1.5,)}, "seeds to be whole numbers"),
        ({"seeds": (-1,)}, "seeds to be whole numbers"),
        ({"seeds": (2**62,)}, "seeds to be whole numbers"),
        ({"seeds": True}, "seeds to be whole numbers"),
        ({"norms": {"bn": 1}}, "norms to be a list"),
        ({"norms": None}, "norms to be a list"),
        ({"norms": ("augbn(ph=1.5)",)}, "did you mean 'phi'"),
        ({"norms": ("augbn(phi=1.5)", "augbn( phi=1.50 )")}, "each of norms once"),
        ({"losses": ("erm", "erm()")}, "each of losses once"),
        ({"losses": ("cvar(alpha=abc)",)}, "alpha in .* to be a number"),
        ({"corruptions": ("labels(strength=3)",)}, "no strength"),
        ({"corruptions": ("offset(share=2)",)}, "share in .* from 0 to 1"),
        ({"evaluations": ("blur",)}, r"as in blur\(severity=3\)"),
        ({"evaluations": ("blur(severity=9)",)}, "severity in .* to be 1, 2, 3, 4 or 5"),
        ({"evaluations": ("clean(samples=0)",)}, "samples in .* whole number from 1"),
        ({"evaluations": ("clean(recalibrated=yes)",)}, "recalibrated in .* true or false"),
        ({"evaluations": ("fgsm(eps=8/255)",)}, "eps in .* to be a number"),
        ({"evaluations": ("bim(steps=0)",)}, "steps in .* whole number from 1"),
        ({"evaluations": ("noise(std=-1)",)}, "std in .* number from 0"),
        ({"data": 3}, "data to be a name"),
        ({"data_options": {"folder": Path("x")}}, "data_options to be a table of texts, numbers"),
        ({"data_options": {1: 2}}, "data_options to be a table"),
        ({"model_options": None}, "model_options to be a table"),
    ],
)
def test_mistakes(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)  # type: ignore[arg-type]


def test_one_recipe_has_one_key() -> None:
    """However it is written: what is done is not repeated."""
    spellings = [
        Recipe(norms=["augbn(phi=1.5)"], losses="cvar(alpha=0.2)", lr=1, seeds=[0], evaluations=["fgsm(eps=1)"]),
        Recipe(norms="augbn( phi=1.50)", losses=["cvar(alpha=.2)"], lr=1.0, seeds=0, evaluations="fgsm(eps=1.0 )"),
    ]
    assert spellings[0] == spellings[1]
    assert len({recipe.runs()[0].key for recipe in spellings}) == 1


def test_keys_stay_what_they_are() -> None:
    """In every process and version: stores live longer than either."""
    choices = {"seed": 0, "norm": "augbn(phi=1.5)", "lr": 0.1, "fold": None, "ünits": [1, True]}
    assert key_of(choices) == "75fb5d285f3859aa"


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
    with pytest.raises(ValueError, match="not valid TOML"):
        Recipe.from_toml(path)
