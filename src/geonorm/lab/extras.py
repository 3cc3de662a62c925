"""Packages that only the lab needs, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_EXTRAS = {"matplotlib": "plots", "ray": "ray"}  # where they are declared, if not in lab


def require(module: str, package: str) -> Any:
    """A module, or an error that says how to get it.

    Args:
        module: as one imports it.
        package: as one installs it.

    Examples:
        >>> from geonorm.lab.extras import require
        >>> require("math", "math").pi > 3
        True
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = _EXTRAS.get(package, "lab")
        raise ImportError(f"{package} is needed here and not installed: pip install 'geonorm[{extra}]'") from error
