"""Checks of a recipe before its first run starts, for mistakes that would make every run fail."""

from __future__ import annotations

import importlib

from .data import check_name, find_source
from .data.errors import DataError
from .factories import is_own
from .loading import named_object
from .models import why_not
from .recipe import OWN, Recipe


def check_names(recipe: Recipe) -> None:
    """Raise if the data, one of their options or the network is unknown, or if a norm does not fit the network."""
    if not is_own(recipe.data):
        check_name(recipe.data, recipe.data_options)
    if is_own(recipe.model):
        return
    for norm in recipe.norms:
        if norm == OWN:
            raise ValueError(f"{OWN!r} leaves the norms of a model of your own; {recipe.model!r} is built in: name one")
        reason = why_not(recipe.model, norm)
        if reason:
            raise ValueError(reason)


def check_installed() -> None:
    """Raise if a package that the report needs is not installed: after hours of training it would be too late."""
    for module, package in (("scipy.special", "scipy"), ("matplotlib", "matplotlib")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{package} is needed here but not installed: pip install 'geonorm[lab,plots]' installs all of the lab"
            ) from error


def check_at_hand(*recipes: Recipe) -> None:
    """Raise if data or functions are missing; the message lists all that are."""
    missing: dict[str, None] = {}
    for recipe in recipes:
        for what, name in (("data", recipe.data), ("model", recipe.model)):
            if is_own(name) and not callable(named_object(name, what)):
                raise ValueError(f"expected a function for {what} (got {name!r}, which is not one)")
        if is_own(recipe.data) or {"folder", "download"} & set(recipe.data_options):
            continue
        source = find_source(recipe.data)
        if not source.at_hand:
            missing[f"{source.name} is not at hand: looked for {source.where}. {source.how}"] = None
    if missing:
        between = " " if len(missing) == 1 else "\n"
        raise DataError(between.join([*missing, "Set GEONORM_DATA to a folder that holds them."]))
