"""Channels that a network can do without: ranked by (γ, β) and other rules, tested, and removed."""

from .channels import Drop
from .prune import Pair, PruneTrial, Pruning, prune
from .remove_channels import remove_channels

__all__ = ["Drop", "Pair", "PruneTrial", "Pruning", "prune", "remove_channels"]
