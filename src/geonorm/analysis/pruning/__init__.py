"""Channels that can go: found from (γ, β), tried, and taken out."""

from .channels import Drop
from .prune import Pair, PruneTrial, Pruning, prune
from .remove_channels import remove_channels

__all__ = ["Drop", "Pair", "PruneTrial", "Pruning", "prune", "remove_channels"]
