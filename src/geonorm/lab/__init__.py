"""Experiments: data, models, recipes, and resumable runs."""

from typing import Any

__all__ = ["Comparison", "Recipe", "Store", "compare", "run"]


def __getattr__(name: str) -> Any:
    """Import these on first use, so that the command line starts fast."""
    from importlib import import_module

    homes = {
        "Recipe": "recipe",
        "Store": "store",
        "Comparison": "results",
        "compare": "comparison",
        "run": "comparison",
    }
    if name in homes:
        return getattr(import_module(f".{homes[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
