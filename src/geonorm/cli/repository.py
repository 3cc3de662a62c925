"""The parts of the repository that are not installed with geonorm: the studies and the speed benchmark."""

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
        command: the command of geonorm that needs it.
        target: the target of ``make`` that does the same in a clone.
    """
    root = find_root(package)
    if root is None:
        raise Mistake(
            f"geonorm {command} needs the repository, which an installed package does not have: "
            f"clone it with git, then run make {target} there"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(package)


def find_root(package: str) -> Path | None:
    """The root of the repository: a parent of this file, or the current folder; None if it is neither."""
    inside = Path(*package.split("."), "__init__.py")
    for root in (Path(__file__).parents[3], Path.cwd()):
        # Check both, so that no other folder of that name is mistaken for ours.
        if (root / inside).is_file() and (root / "src" / "geonorm" / "__init__.py").is_file():
            return root
    return None
