"""Data: tasks by name, embedded or from files, and corruptions of them."""

from .corrupt import MINORITY_GROUPS, SPURIOUS_GROUPS, corrupt, corrupt_task
from .degrade import DEGRADATIONS, degrade
from .errors import DataError
from .images import ImageFiles
from .sources import Checked, Source, check, check_name, fetch, find_source, load, register, sources
from .task import Split, Task, clipped

__all__ = [
    "DEGRADATIONS",
    "MINORITY_GROUPS",
    "SPURIOUS_GROUPS",
    "Checked",
    "DataError",
    "ImageFiles",
    "Source",
    "Split",
    "Task",
    "check",
    "check_name",
    "clipped",
    "corrupt",
    "corrupt_task",
    "degrade",
    "fetch",
    "find_source",
    "load",
    "register",
    "sources",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
