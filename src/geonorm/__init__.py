"""geonorm: geometric normalization for PyTorch.

``import geonorm`` imports the layers and the verbs, which registers their operators; the rest waits for its first use.
In the process of the command ``geonorm`` everything waits, because its help must not take as long as importing torch.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

from ._version import __version__

_IS_COMMAND = os.path.basename((getattr(sys, "argv", None) or [""])[0]) in ("geonorm", "geonorm.exe")
_ROOMS = ("analysis", "functional", "nn", "optim", "robust")
_HOMES = ("nn", "surgery", "analysis", "robust")  # of the other names; those that take long to import are last

__all__ = [
    "Report",
    "__version__",
    "analysis",
    "convert",
    "diagnose",
    "freeze",
    "functional",
    "fuse",
    "nn",
    "no_stat_update",
    "optim",
    "param_groups",
    "recalibrate",
    "revert",
    "robust",
    "screen",
    "summary",
    "sync",
    "unfreeze",
    "unsync",
]

_BESIDE_THE_LAYERS = tuple(__all__)

if _IS_COMMAND:
    del __all__  # `from geonorm import *` in a user's file asks for it, and so imports the layers
else:
    from . import functional, nn
    from .nn import *  # noqa: F403
    from .surgery import (
        Report,
        convert,
        freeze,
        fuse,
        no_stat_update,
        param_groups,
        recalibrate,
        revert,
        sync,
        unfreeze,
        unsync,
    )

    __all__ += nn.__all__

if TYPE_CHECKING:
    from . import analysis, optim, robust
    from .analysis import diagnose, summary
    from .robust import screen


def __getattr__(name: str) -> Any:
    """Import what is used for the first time."""
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name == "__all__":
        return __dir__()
    for home in _HOMES:
        if home == "nn" or name in _BESIDE_THE_LAYERS:
            room = import_module(f".{home}", __name__)
            if name in room.__all__:
                return getattr(room, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, including those that are not imported yet."""
    from . import nn

    return sorted([*_BESIDE_THE_LAYERS, *nn.__all__])
