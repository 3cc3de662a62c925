"""Whether a norm behind an operation normalizes the operation's own outputs, channel by channel."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..surgery.freeze import is_frozen
from ..surgery.layouts import keeps_statistics, layout_of
from ..surgery.pairs import Graph, is_operation, output_channels
from ..surgery.placement import why_not_channels

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def measures_batch(norm: nn.Module) -> bool:
    """Whether a norm, in the mode it is in, measures its input; otherwise it uses running statistics."""
    return not is_frozen(norm) and (norm.training or not keeps_statistics(norm))


def is_held(norm: nn.Module, model: nn.Module) -> bool:
    """Whether a norm keeps to its running statistics while the model around it trains."""
    return is_frozen(norm) or (model.training and not measures_batch(norm))


def could_share_channels(operation: nn.Module, norm: Any) -> bool:
    """Whether the norm's channels can be the operation's outputs, by what both say about themselves."""
    if not is_operation(operation):
        return False
    if isinstance(norm, nn.SyncBatchNorm):
        return bool(norm.num_features == output_channels(operation))
    layout = layout_of(norm)
    return layout is not None and layout.axes != "layer" and not why_not_channels("", operation, layout, behind=True)


def dimensions_of_channels(operation: Any) -> int:
    """How many dimensions an operation's input and output have when dimension 1 counts its channels."""
    return 2 if isinstance(operation, nn.Linear) else 2 + len(operation.kernel_size)


def without_pairs(graph: Graph, norms: set[str]) -> Graph:
    """A graph in which these norms stand behind no operation."""
    return graph._replace(
        norms={name: near._replace(before=None) if name in norms else near for name, near in graph.norms.items()}
    )
