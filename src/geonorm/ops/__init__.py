"""How the few hot functions run: operator schemas, the plain-torch implementation, and the choice between
implementations."""

from ._center import Center, center
from .checks import can_look, check_values
from .grouping import Axes, Grouping, Segments, power_of_two, unit_weight
from .guard import GuardedMoments, Verdict, count_guarded, guarded_moments, judge
from .native import describe as describe_backend
from .native import using_backend
from .running import Running, follow, follow_batch, pause_statistics, refresh_seen, statistics_paused

__all__ = [
    "Axes",
    "Center",
    "Grouping",
    "GuardedMoments",
    "Running",
    "Segments",
    "Verdict",
    "can_look",
    "center",
    "check_values",
    "count_guarded",
    "describe_backend",
    "follow",
    "follow_batch",
    "guarded_moments",
    "judge",
    "pause_statistics",
    "power_of_two",
    "refresh_seen",
    "statistics_paused",
    "unit_weight",
    "using_backend",
]
