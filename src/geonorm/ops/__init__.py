"""How the hot functions run: the definition of a normalization, the registered operators, one folder per backend."""

from . import schema as schema  # registers the operators
from .checks import can_read_values, check_values
from .choose import describe as describe_backend
from .choose import has_kernels, using_backend
from .cpu.known_call import KnownCall, LayerTensors, known_call
from .eager import center, may_call_directly, needs_plain_operations, normalize, normalize_backward, spread, update
from .grouping import Axes, Grouping, Segments, TooFewValues, power_of_two, unit_weight
from .learned import LearnedPhi
from .problem import Incoming, Inputs, NormStatistics, Result, Rule, Saved
from .running import Running, Seen, move_towards_, pause_statistics, statistics_paused, update_running_stats_
from .torch.center import Center
from .torch.guard import Verdict, count_guarded, judge_moments

__all__ = [
    "Axes",
    "Center",
    "Grouping",
    "Incoming",
    "Inputs",
    "KnownCall",
    "LayerTensors",
    "LearnedPhi",
    "NormStatistics",
    "Result",
    "Rule",
    "Running",
    "Saved",
    "Seen",
    "Segments",
    "TooFewValues",
    "Verdict",
    "can_read_values",
    "center",
    "check_values",
    "count_guarded",
    "describe_backend",
    "has_kernels",
    "judge_moments",
    "known_call",
    "may_call_directly",
    "move_towards_",
    "needs_plain_operations",
    "normalize",
    "normalize_backward",
    "pause_statistics",
    "power_of_two",
    "spread",
    "statistics_paused",
    "unit_weight",
    "update",
    "update_running_stats_",
    "using_backend",
]
