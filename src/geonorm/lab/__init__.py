"""The experiments: data, models, recipes, and runs that never lose a result."""

from typing import Any

__all__ = ["Comparison", "Recipe", "Store", "compare", "run"]


def __getattr__(name: str) -> Any:
    """Imported when they are first asked for: the command line starts without them."""
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
