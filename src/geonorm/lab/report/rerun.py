"""How to run a comparison again: its recipe as TOML, and the command or, for the user's own functions, the call."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

from ..recipe import Recipe, study_settings
from ..results import Comparison


def fields(comparison: Comparison) -> dict[str, Any]:
    """The fields of a recipe that contains all runs, in the order of a recipe."""
    axes = {"norm": "norms", "loss": "losses", "corruption": "corruptions", "seed": "seeds"}
    values = comparison.settings()
    for name, plural in axes.items():
        values[plural] = list(dict.fromkeys(run[name] for run in comparison.runs))
    order = [field.name for field in dataclasses.fields(Recipe)]
    return {name: values[name] for name in order if name in values}


def has_own_functions(comparison: Comparison) -> bool:
    """Whether data and model were functions passed in Python, not names that the command line resolves."""
    names = [comparison.settings()[name] for name in ("data", "model")]
    return all(":" in name and ".py:" not in name for name in names)


def recipe(comparison: Comparison) -> str:
    """The recipe as TOML."""
    return "\n".join(f"{name} = {_toml(value)}" for name, value in fields(comparison).items() if value != {}) + "\n"


def command(comparison: Comparison) -> str:
    """The command, with the recipe in a file; for the user's own functions, the call."""
    if study_settings(comparison.settings()):
        return "geonorm reproduce NAME"
    store = str(comparison.store.path)
    if not has_own_functions(comparison):
        return f"geonorm compare recipe.toml --store {shlex.quote(store)}"
    values = fields(comparison)
    model, data = (values.pop(name).rpartition(":")[2] for name in ("model", "data"))
    named = [f"{name}={value!r}" for name, value in values.items() if value != {}]
    return f"compare({model}, {data}, {', '.join(named)}, store={store!r})"


def _toml(value: Any) -> str:
    """A value as TOML: strings, numbers and lists are as in JSON; tables and infinities are not."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
