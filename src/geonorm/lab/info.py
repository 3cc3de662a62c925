"""Facts about this installation, for users and for problem reports."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from ..ops import describe_backend


def facts() -> dict[str, str]:
    """Versions, the backend in use and why, the instruction set, threads.

    Examples:
        >>> from geonorm.lab import info
        >>> sorted(info.facts())[:2]
        ['backend', 'because']
    """
    return {
        "geonorm": version("geonorm"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
        **describe_backend(),
    }
