"""How long the presets take that were never run: written by ``python -m benchmarks.preset_hours``, which says how."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

ABOUT_HOURS = (
    "Times are of two cores. Those with ~ are arithmetic: nobody has run these presets. A GPU is named where it would "
    "be of use: one A100, with BatchNorm; other norms take longer."
)
FILE = Path(__file__).with_name("hours.json")
PATIENCE = 24.0  # hours on two cores; a preset that takes longer is one for a GPU


@cache
def estimated_hours() -> dict[str, dict[str, float]]:
    """Hours of the paper preset by study: on two ``cores``, and on one A100 as the ``gpu``."""
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def paper_time(study: str) -> str:
    """The time of the paper preset in words, with the device that it needs.

    Examples:
        >>> from studies.hours import paper_time
        >>> paper_time("augnorm-cifar").endswith("h on a GPU")
        True
    """
    hours = estimated_hours()[study]
    if hours["cores"] <= PATIENCE:
        return f"~{_round(hours['cores'])} h"
    return f"~{_round(hours['gpu'])} h on a GPU"


def _round(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 10 else f"{hours:.2g}"
