"""geonorm: geometric normalization for PyTorch."""

from typing import TYPE_CHECKING, Any

from . import functional, nn
from ._version import __version__
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

if TYPE_CHECKING:
    from . import analysis, optim, robust
    from .analysis import diagnose, summary
    from .robust import screen

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
__all__ += nn.__all__


def __getattr__(name: str) -> Any:
    """Import these on first use, so that ``import geonorm`` is fast."""
    from importlib import import_module

    if name in ("analysis", "optim", "robust"):
        return import_module(f".{name}", __name__)
    if name in ("diagnose", "summary"):
        return getattr(import_module(".analysis", __name__), name)
    if name == "screen":
        return import_module(".robust", __name__).screen
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, including those that are not imported yet."""
    return sorted(__all__)
