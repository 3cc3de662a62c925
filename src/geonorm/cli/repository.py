"""Commands that only a clone of the repository can run: those of the studies and of the speed benchmark."""

from __future__ import annotations

from types import ModuleType

from .parser import Mistake


def from_repository(package: str, command: str, target: str) -> ModuleType:
    """A package at the root of the repository.

    Args:
        package: its name, such as ``studies``.
        command: the command of geonorm that needs it.
        target: the target of ``make`` that does the same in a clone.
    """
    from ..lab.repository import import_beside

    found = import_beside(package)
    if found is None:
        raise Mistake(
            f"geonorm {command} needs the repository, which an installed package does not have: "
            f"clone it with git, then run make {target} there"
        )
    return found
