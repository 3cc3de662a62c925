"""Verbs on existing models: convert their norms, and freeze, recalibrate, synchronize or fuse them."""

from .convert import convert
from .freeze import freeze, unfreeze
from .fuse import fuse
from .no_stat_update import no_stat_update
from .param_groups import param_groups
from .recalibrate import recalibrate
from .report import Report
from .revert import revert
from .sync import sync, unsync

__all__ = [
    "Report",
    "convert",
    "freeze",
    "fuse",
    "no_stat_update",
    "param_groups",
    "recalibrate",
    "revert",
    "sync",
    "unfreeze",
    "unsync",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
