"""Signatures name every option; those of layers agree with their docstrings and with the dicts of options."""

import inspect
from importlib import import_module

import pytest
import torch

import geonorm
from geonorm.nn import AugOptions, PopOptions

LAYERS = sorted(name for name in geonorm.nn.__all__ if name.startswith(("Aug", "Pop")) and not name.endswith("Options"))


@pytest.mark.parametrize("name", LAYERS)
def test_every_argument_is_named_and_documented(name: str) -> None:
    layer = getattr(geonorm.nn, name)
    parameters = inspect.signature(layer).parameters
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    options = (PopOptions if name.startswith("Pop") else AugOptions).__annotations__
    assert all(parameters[option].kind is inspect.Parameter.KEYWORD_ONLY for option in options)
    described = layer.__doc__.split("Args:")[1].split("Shape:")[0].replace("device, dtype:", "device:\n dtype:")
    assert [line.split(":")[0].strip() for line in described.splitlines() if _opens(line, parameters)] == [*parameters]


def _opens(line: str, parameters: object) -> bool:
    return line.split(":")[0].strip() in parameters and ":" in line


def test_defaults_are_the_same_in_all_layers() -> None:
    for stem in ("Aug", "Pop"):
        seen: dict[str, set[object]] = {}
        for name in LAYERS:
            if name.startswith(stem) and name != "AugGraphNorm":
                for parameter in inspect.signature(getattr(geonorm.nn, name)).parameters.values():
                    seen.setdefault(parameter.name, set()).add(parameter.default)
        options = (PopOptions if stem == "Pop" else AugOptions).__annotations__
        assert {option: len(seen[option]) for option in options} == dict.fromkeys(options, 1)
    assert geonorm.AugGraphNorm(3).learn_alpha


def test_what_is_not_taken_is_named() -> None:
    with pytest.raises(TypeError, match=r"AugLayerNorm\(\) takes no guard"):
        geonorm.AugLayerNorm(3, guard=3.0)
    with pytest.raises(TypeError, match=r"'momentun'; did you mean 'momentum'\?"):
        geonorm.AugBatchNorm1d(3, momentun=0.1)
    with pytest.raises(TypeError, match="'learn_alpha'; POP-Norm has shift"):
        geonorm.PopNorm1d(3, learn_alpha=True)


def test_subclasses_take_what_they_say() -> None:
    class Mine(geonorm.AugBatchNorm1d):
        def __init__(self, *args: object, name: str = "", **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self.name = name

    assert Mine(3, name="first", phi=2.0)(torch.randn(4, 3)).shape == (4, 3)
    with pytest.raises(TypeError, match=r"Mine\(\) got an unexpected keyword argument 'fi'"):
        Mine(3, fi=2.0)


@pytest.mark.parametrize("room", ["functional", "analysis", "robust", "optim", "surgery", "lab"])
def test_no_function_takes_unnamed_options(room: str) -> None:
    module = import_module(f"geonorm.{room}")
    for name in module.__all__:
        if inspect.isfunction(getattr(module, name)):
            parameters = inspect.signature(getattr(module, name)).parameters.values()
            assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters), name
