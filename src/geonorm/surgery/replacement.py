"""The layer that replaces a norm: which one, with which arguments, and which state it takes over."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from ..introspect.layouts import Layout, build_layer, is_ours, layer_for, layout_of
from ..nn.specs import Spec


def target_axes(spec: Spec, layout: Layout) -> str:
    """The axes that a layer of this layout gets by the spec."""
    return layout.axes if spec.norm.axes == "same" else spec.norm.axes


def why_not(spec: Spec, layout: Layout, named: bool) -> str:
    """Why a layer of this layout cannot become what the spec says; empty if it can. ``named``: the user named it."""
    axes, name = target_axes(spec, layout), spec.norm.name
    if axes == layout.axes:
        return ""
    if axes in ("layer", "graph"):
        cure = "; gn(groups=1) normalizes the channels and positions of each sample" if axes == "layer" else ""
        return f"{name} needs a different input layout than {layout.axes} normalization has{cure}"
    if layout.axes in ("layer", "graph"):
        return f"{layout.axes} normalization does not have channels in dimension 1; aug(...) keeps its axes"
    if axes in ("batch", "instance") and layout.dim is None:
        return "it does not say how many dimensions its input has; aug(...) keeps its axes"
    if named or (layout.axes == "batch" and not (axes == "instance" and layout.dim == 1)):
        return ""
    if layout.axes == "batch":
        return "a BatchNorm1d may be fed (N, C), which has no positions; name it with where= if it is fed (N, C, L)"
    return f"{name} has other axes; name it with where=, or use aug(...), which keeps them"


def build(spec: Spec, layout: Layout, factory: dict[str, Any]) -> nn.Module:
    """A new layer with the old one's arguments, changed by those of the spec."""
    axes, kept = target_axes(spec, layout), dict(layout.arguments)
    if axes != layout.axes:
        kept = {key: value for key, value in kept.items() if key in ("eps", "affine", "bias")}
    arguments = {**kept, **spec.arguments, **factory}
    if spec.norm.axes != "same":
        assert spec.norm.build is not None
        return spec.norm.build(layout.channels, layout.dim or 2, **arguments)
    return build_layer(layer_for(layout), layout.channels, arguments)


def transfer_state(source: Any, new: Any, keep: tuple[str, ...]) -> str:
    """Give a replacement a layer's statistics (copies) and parameters (the same objects); returns a note on it."""
    notes = []
    has_statistics = getattr(new, "running_mean", None) is not None
    dropped = set() if "statistics" in keep and has_statistics else set(dict(source.named_buffers()))
    if "parameters" not in keep:
        dropped |= set(dict(source.named_parameters()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = {key: value for key, value in source.state_dict().items() if key not in dropped}
        new.load_state_dict({key: value for key, value in state.items() if _fits(value, key, new)}, strict=False)
    if "parameters" in keep:
        for key, parameter in source.named_parameters(recurse=False):
            mine = new._parameters.get(key)
            if mine is not None and mine.shape == parameter.shape:
                new._parameters[key] = parameter
            elif key in new._parameters:
                notes.append(f"{key} is not taken over")
    if caught:
        notes.append("running_scale is an estimate until it is recalibrated or trained")
    before, after = layout_of(source), layout_of(new)
    if before is None or after is None or before.axes != after.axes:
        notes.append("other axes: a different function")
    elif not _is_plain(new):
        running = getattr(new, "running_center", None) is not None
        notes.append("running_center starts from the old mean" if running else "a different function than before")
    return "; ".join(notes)


def _is_plain(layer: Any) -> bool:
    """Whether a layer computes the same function as torch's."""
    if not is_ours(layer):
        return True
    return bool(layer.phi_start == 2 and not layer.learn_phi and layer.alpha_start == 1 and layer.spread in ("rms", 2))


def _fits(value: Tensor, key: str, new: nn.Module) -> bool:
    mine = {**dict(new.named_parameters()), **dict(new.named_buffers())}.get(key)
    return mine is None or mine.shape == value.shape
