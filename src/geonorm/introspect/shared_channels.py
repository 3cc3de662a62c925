"""Whether a norm after an operation normalizes the operation's outputs, channel by channel."""

from __future__ import annotations

from typing import Any

from torch import nn

from .graph import Graph, input_channels, is_linear, is_operation, output_channels
from .layouts import Layout, is_frozen, keeps_statistics, layout_of

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def measures_batch(norm: nn.Module) -> bool:
    """Whether a norm measures its input in its current mode; otherwise it uses running statistics."""
    return not is_frozen(norm) and (norm.training or not keeps_statistics(norm))


def stays_in_evaluation(norm: nn.Module, model: nn.Module) -> bool:
    """Whether a norm uses its running statistics while the model around it trains."""
    return is_frozen(norm) or (model.training and not measures_batch(norm))


def could_share_channels(operation: nn.Module, norm: Any) -> bool:
    """Whether the norm's channels can be the operation's outputs, according to their layouts."""
    if not is_operation(operation):
        return False
    if isinstance(norm, nn.SyncBatchNorm):
        return bool(norm.num_features == output_channels(operation))
    layout = layout_of(norm)
    return layout is not None and layout.axes != "layer" and not why_not_channels("", operation, layout, is_after=True)


def dimensions_of_channels(operation: Any) -> int:
    """The number of dimensions of an operation's input and output if dimension 1 is the channels."""
    return 2 if isinstance(operation, nn.Linear) else 2 + len(operation.kernel_size)


def without_pairs(graph: Graph, norms: set[str]) -> Graph:
    """A copy of the graph in which these norms have no operation before them."""
    return graph._replace(
        norms={name: near._replace(before=None) if name in norms else near for name, near in graph.norms.items()}
    )


def why_not_channels(name: str, operation: nn.Module, layout: Layout, is_after: bool) -> str:
    """Why a norm's channels are not those of the operation next to it; empty if they can be.

    A Linear has its channels in the last dimension and a norm in dimension 1. They are the same only for inputs (N, C),
    which an instance norm or a norm of images never takes. ``is_after``: the norm comes after the operation.
    """
    if is_linear(operation) and (layout.axes == "instance" or layout.dim not in (None, 1)):
        return f"its channels are in dimension 1, those of {name} in the last"
    channels = output_channels(operation) if is_after else input_channels(operation)
    return "" if layout.channels == channels else f"it has {layout.channels} channels, {name} has {channels}"
