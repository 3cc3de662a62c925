"""What a clone of the repository has and an installed geonorm has not: the studies and the speed benchmark."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from .parser import Mistake


def from_repository(package: str, command: str, target: str) -> ModuleType:
    """A package at the root of the repository.

    Args:
        package: its name, such as ``studies``.
        command: of geonorm, which needs it.
        target: of ``make``, that does the same in a clone.
    """
    root = find_root(package)
    if root is None:
        raise Mistake(
            f"geonorm {command} needs the repository, which an installed package does not have: "
            f"git clone it, then run make {target} there"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(package)


def find_root(package: str) -> Path | None:
    """The root of the repository: above the source that runs, else the current folder; nothing where it is neither."""
    inside = Path(*package.split("."), "__init__.py")
    for root in (Path(__file__).parents[3], Path.cwd()):
        # Both, lest any folder of that name be taken for ours.
        if (root / inside).is_file() and (root / "src" / "geonorm" / "__init__.py").is_file():
            return root
    return None
