"""Packages that only the lab needs, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_EXTRAS = {"matplotlib": "plots", "ray": "ray"}  # the extra that declares each, if not lab


def require(module: str, package: str) -> Any:
    """Import a module; the error says how to install it.

    Args:
        module: its name for import.
        package: its name for pip.

    Examples:
        >>> from geonorm.lab.extras import require
        >>> require("math", "math").pi > 3
        True
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = _EXTRAS.get(package, "lab")
        raise ImportError(f"{package} is needed here but not installed: pip install 'geonorm[{extra}]'") from error
