"""What a clone of the repository has beside the package: the studies and the benchmarks, and what the studies add here.

The studies register data, networks and evaluations of their own when they are imported. In a clone that happens when
one of their names is asked for; an installed package has no studies, and says so.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

# The names that the studies register, by kind; their norms are for their own recipes alone.
OF_STUDIES = {
    "data": ("compas", "adult", "celeba", "civilcomments", "marked_cifar10", "regular_graphs"),
    "network": ("mobilenetv2", "densenet121", "efficientnetb0"),
    "norm": ("newton", "newton_fixed", "newton_closed", "newton_closed_fixed", "joint", "ws_gn", "ws_gn(groups=4)"),
    "evaluation": ("adapted",),
}


def find_root(package: str) -> Path | None:
    """The root of the repository: above the source that runs, else the current folder; nothing where it is neither."""
    inside = Path(*package.split("."), "__init__.py")
    for root in (Path(__file__).parents[3], Path.cwd()):
        # Both, lest any folder of that name be taken for ours.
        if (root / inside).is_file() and (root / "src" / "geonorm" / "__init__.py").is_file():
            return root
    return None


def import_beside(package: str) -> ModuleType | None:
    """A package at the root of the repository, such as ``studies``; nothing in an installed package."""
    root = find_root(package)
    if root is None:
        return None
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(package)


def import_if_of_studies(kind: str, name: str) -> str:
    """Import the studies if a name is theirs; what to tell the user where they are not here, else nothing.

    Args:
        kind: ``"data"``, ``"network"`` or ``"evaluation"``.
        name: which the lab does not know by itself.
    """
    if name not in OF_STUDIES[kind] or import_beside("studies") is not None:
        return ""
    return (
        f"{kind} {name!r} is part of the studies, which live in the repository and not in an installed package: "
        "git clone it, and start this there"
    )
