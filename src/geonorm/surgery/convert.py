"""``convert``: other normalizations in the place of a model's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from .. import nn as ours
from ..nn.specs import Spec, create_norm, parse_spec
from .holders import Holders
from .layouts import Layout, dress, factory_of, is_norm, is_ours, layout_of, why_unknown
from .memory import memory_of, move_hooks, remember
from .pairs import Graph, Pairs, choose, declared, trace
from .placement import PRE_NORM, put_before, put_onto_weight, why_not_onto
from .report import Change, Left, Report
from .revert import restored, revert
from .select import Places, Where, check_model, chosen

KEEP = ("parameters", "statistics", "hooks")
_AUG = {
    "batch": {dim: getattr(ours, f"AugBatchNorm{dim}d") for dim in (1, 2, 3)},
    "instance": {dim: getattr(ours, f"AugInstanceNorm{dim}d") for dim in (1, 2, 3)},
}


def convert(
    model: nn.Module,
    spec: str | Spec,
    where: Where = None,
    keep: Collection[str] = ("parameters", "statistics", "hooks"),
    *,
    pairs: Pairs | None = None,
) -> Report:
    """Put another normalization in the place of a model's own, in place.

        y = γ·(x − mean)/√(var + eps) + β        becomes what the spec says

    ``aug(...)`` keeps the axes of each layer and is the form to start with. A spec with axes of its own, such as
    ``augbn`` or ``auggroup``, goes to layers with those axes and to BatchNorm; others are left unless ``where`` names
    them and their layout is known. ``pop(...)`` also moves the norm before the operation it belongs to, as a submodule
    ``pre_norm`` of it; ``wn``, ``ws``, ``cwn`` and ``sn`` go onto the weight of the operation behind which the norm
    stood. Names, parameters (the same objects), running statistics, device, dtype, training flag and hooks are kept.
    ``geonorm.revert`` undoes it.

    Args:
        model: any model. A norm that is the model itself cannot be replaced in place.
        spec: a normalization; ``geonorm.norms()`` lists them.
        where: which norms: a name pattern such as ``"layer3.*"``, several, or a function of (name, module).
        keep: what a layer takes over from its predecessor: ``"parameters"`` (γ and β), ``"statistics"``, ``"hooks"``.
        pairs: (operation, norm) by name for ``pop`` and the weight specs, where the model cannot be traced.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        >>> print(geonorm.convert(model, "aug(phi=1.5)"))
        convert to aug(phi=1.5): 1 module changed, 0 left
        <BLANKLINE>
        module  before       after           note
        ------  -----------  --------------  ---------------------------------------
        1       BatchNorm2d  AugBatchNorm2d  running_center starts from the old mean
        >>> type(model[1]).__name__
        'AugBatchNorm2d'
    """
    check_model(model, "convert", replaces=True)
    parsed = parse_spec(spec)
    wrong = [part for part in keep if part not in KEEP]
    if isinstance(keep, str) or wrong:
        raise ValueError(f"expected keep to be some of {KEEP} (got {keep!r})")
    if parsed.norm.build is not None:
        create_norm(parsed)  # a mistake in the arguments shows before anything changes
    holders = Holders(model)
    _clear_places(model, parsed, where)
    report = _Surgeon(model, parsed, where, tuple(keep), pairs).convert()
    report.notes += holders.notes(model)
    return report


def _clear_places(model: nn.Module, spec: Spec, where: Where) -> None:
    """Put the norms back that another spec had moved to an operation or taken out."""
    is_chosen = chosen(model, where)
    stale = {
        id(module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Identity) and (memory := memory_of(module)) and memory.spec != str(spec)
        if is_chosen(name, module)
    }
    if stale:
        revert(model, where=lambda name, module: id(module) in stale)


class _Surgeon:
    """One conversion of one model."""

    def __init__(self, model: nn.Module, spec: Spec, where: Where, keep: tuple[str, ...], pairs: Pairs | None) -> None:
        self.model, self.spec, self.keep, self.pairs = model, spec, keep, pairs
        self.is_chosen, self.named = chosen(model, where), where is not None
        self.places = Places(model)
        self.modules = dict(self.places)
        self.report = Report(f"convert to {spec}")

    def convert(self) -> Report:
        targets = self._targets()
        axes = self.spec.norm.axes
        if axes == "weight" or self.spec.norm.before:
            self._with_operations(targets)
        else:
            for name, module in targets.items():
                self._replace(name, module, self._without_norm if axes == "none" else self._successor)
        return self.report

    def _targets(self) -> dict[str, nn.Module]:
        """Norms to look at, by name; those that cannot be handled go to the report."""
        targets = {}
        for name, module in self.modules.items():
            inside_pre_norm = name.rpartition(".")[2] == PRE_NORM
            if not is_norm(module) or inside_pre_norm or not self.is_chosen(name, module):
                continue
            if name == "":
                self._leave(name, module, "the model itself cannot be replaced in place; put it into nn.Sequential")
            elif layout_of(module) is None and not (is_ours(module) and memory_of(module)):
                self._leave(name, module, why_unknown(module))
            elif parametrize.is_parametrized(module):
                self._leave(name, module, "its parameters are parametrized; remove the parametrization first")
            else:
                targets[name] = module
        return targets

    def _leave(self, name: str, module: nn.Module, reason: str) -> None:
        self.report.left.append(Left(name or "(model)", type(module).__name__, reason))

    # One norm by another, in the same place.

    def _replace(
        self, name: str, old: nn.Module, make: Callable[[str, nn.Module, Layout], tuple[nn.Module, str] | None]
    ) -> None:
        layout = layout_of(old)
        assert layout is not None
        made = make(name, old, layout)
        if made is None:
            return
        new, note = made
        self.put(old, new)
        self.report.changed.append(Change(name, type(old).__name__, type(new).__name__, note))

    def put(self, old: nn.Module, new: nn.Module, **memory: Any) -> None:
        """A new module wherever the old one stands, with its surroundings; it remembers the first original."""
        original = old
        if is_ours(old) and (back := restored(old)) is not None:
            original = back.module
        dress(new, original)
        new.training = old.training
        remembered = remember(new, original, spec=str(self.spec), **memory)
        if "hooks" in self.keep:
            move_hooks(original, new)
        self.places.replace(old, new)
        for other, attribute, value in self._fast_paths_around(new):
            remembered.attributes.append((other, attribute, getattr(other, attribute)))
            setattr(other, attribute, value)

    def _fast_paths_around(self, module: nn.Module) -> list[tuple[nn.Module, str, Any]]:
        """What keeps torch's transformers from going past their norms in evaluation, to a fused kernel of their own."""
        layers = [parent for parent in self.places.parents(module) if isinstance(parent, nn.TransformerEncoderLayer)]
        encoders = [
            encoder
            for encoder in self.model.modules()
            if isinstance(encoder, nn.TransformerEncoder) and any(layer in encoder.layers for layer in layers)
        ]
        return [
            *[(layer, "activation_relu_or_gelu", 0) for layer in layers if layer.activation_relu_or_gelu],
            *[(encoder, "use_nested_tensor", False) for encoder in encoders if encoder.use_nested_tensor],
        ]

    def _successor(self, name: str, old: nn.Module, layout: Layout) -> tuple[nn.Module, str] | None:
        axes = layout.axes if self.spec.norm.axes == "same" else self.spec.norm.axes
        reason = self._why_not(axes, layout)
        if reason:
            self._leave(name, old, reason)
            return None
        new = self._build(axes, layout, factory_of(old))
        if isinstance(old, type(new)) and new.extra_repr() == old.extra_repr():
            return None  # it is there already
        return new, self._take_over(old, new, axes)

    def _why_not(self, axes: str, layout: Layout) -> str:
        if axes == layout.axes:
            return ""
        if axes in ("layer", "graph"):
            cure = "; gn(groups=1) normalizes the channels and positions of each sample" if axes == "layer" else ""
            return f"{self.spec.norm.name} needs another input layout than {layout.axes} normalization has{cure}"
        if layout.axes in ("layer", "graph"):
            return f"{layout.axes} normalization does not have channels in dimension 1; aug(...) keeps its axes"
        if axes in ("batch", "instance") and layout.dim is None:
            return "it does not say how many dimensions its input has; aug(...) keeps its axes"
        if layout.axes == "batch" and not (axes == "instance" and layout.dim == 1):
            return ""
        if self.named:
            return ""
        if layout.axes == "batch":
            return "a BatchNorm1d may be fed (N, C), which has no positions; name it with where= if it is fed (N, C, L)"
        return f"{self.spec.norm.name} has other axes; name it with where=, or use aug(...), which keeps them"

    def _build(self, axes: str, layout: Layout, factory: dict[str, Any]) -> nn.Module:
        kept = dict(layout.arguments)
        if axes != layout.axes:
            kept = {key: value for key, value in kept.items() if key in ("eps", "affine", "bias")}
        arguments = {**kept, **self.spec.arguments, **factory}
        if self.spec.norm.axes != "same":
            build = self.spec.norm.build
            assert build is not None
            return build(layout.channels, layout.dim or 2, **arguments)
        if axes == "layer":
            return ours.AugLayerNorm(layout.channels, **arguments)
        if axes == "group":
            return ours.AugGroupNorm(arguments.pop("groups"), layout.channels, **arguments)
        if axes == "graph":
            return ours.AugGraphNorm(layout.channels, **arguments)
        layer: nn.Module = _AUG[axes][layout.dim or 2](layout.channels, **arguments)
        return layer

    def _take_over(self, old: Any, new: Any, axes: str) -> str:
        """Statistics and parameters of the old layer for the new one; a note on what that means."""
        state = old.state_dict()
        if "statistics" not in self.keep:
            state = {key: value for key, value in state.items() if key not in dict(old.named_buffers())}
        if "parameters" not in self.keep:
            state = {key: value for key, value in state.items() if key not in dict(old.named_parameters())}
        notes = []
        if old._state_dict_hooks or old._load_state_dict_pre_hooks or old._load_state_dict_post_hooks:
            notes.append("hooks of its state_dict stay with the old layer")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            new.load_state_dict({key: value for key, value in state.items() if _fits(value, key, new)}, strict=False)
        if "parameters" in self.keep:
            for key, parameter in old.named_parameters(recurse=False):
                mine = new._parameters.get(key)
                if mine is not None and mine.shape == parameter.shape:
                    new._parameters[key] = parameter
                else:
                    notes.append(f"{key} is not taken over")
        if caught:
            notes.append("running_scale is an estimate until it is recalibrated or trained")
        plain = not is_ours(new) or (new.phi_start == 2 and not new.learn_phi and new.alpha_start == 1)
        rms = not is_ours(new) or new.spread in ("rms", 2, 2.0)
        if axes != getattr(layout_of(old), "axes", axes):
            notes.append("other axes: another function")
        elif not is_ours(old) and not (plain and rms):
            running = getattr(new, "running_center", None) is not None
            notes.append("running_center starts from the old mean" if running else "another function than before")
        return "; ".join(notes)

    def _without_norm(self, name: str, old: nn.Module, layout: Layout) -> tuple[nn.Module, str]:
        return nn.Identity(), "another function than before"

    # A norm that goes to an operation: before it, or onto its weight.

    def _with_operations(self, targets: dict[str, nn.Module]) -> None:
        before = self.spec.norm.before
        graph = self._graph(targets)
        norms = [name for name in targets if self._has_channels(name, targets[name])]
        for name, operations in choose(graph, norms, ahead_too=before).items():
            reasons = [why_not_onto(operation, self.modules[operation], self.spec) for operation in operations]
            if any(reasons):
                self._leave(name, targets[name], next(filter(None, reasons)))
            else:
                self._move(name, targets[name], operations)
        moved = {change.name for change in self.report.changed} | {left.name for left in self.report.left}
        for name in targets:
            if name not in moved:
                self._leave(name, targets[name], self._why_unpaired(name, graph))

    def _graph(self, targets: dict[str, nn.Module]) -> Graph:
        if self.pairs is not None:
            return declared(self.model, self.pairs)
        graph = trace(self.model) if targets else Graph({}, {}, "")
        if graph.failure:
            self.report.notes.append(
                f"the model could not be traced as a whole ({graph.failure}): pairs were looked for inside its parts; "
                "declare others with pairs=[(operation, norm), ...]"
            )
        return graph

    def _has_channels(self, name: str, norm: nn.Module) -> bool:
        layout = layout_of(norm)
        if layout is not None and layout.axes in ("layer", "graph"):
            self._leave(name, norm, f"{layout.axes} normalization has no channels in dimension 1")
            return False
        return True

    def _why_unpaired(self, name: str, graph: Graph) -> str:
        if graph.calls.get(name, 0) > 1:
            return "it is called more than once"
        if self.pairs is not None:
            return "not among the declared pairs"
        found = graph.norms.get(name)
        if found is None:
            return "not seen in the traced graph; declare it with pairs=[(operation, norm)]"
        if found.behind or found.ahead:
            return f"{found.behind or ', '.join(found.ahead)} belongs to another norm already"
        return "no operation whose output goes to it alone" + (
            ", and its output does not only go to operations" if self.spec.norm.before else ""
        )

    def _move(self, name: str, norm: nn.Module, operations: tuple[str, ...]) -> None:
        self.put(norm, nn.Identity(), operations=operations)
        for operation in operations:
            if self.spec.norm.before:
                layer = put_before(self.modules[operation], self.spec)
                after, note = f"{type(layer).__name__} before {operation}", "another function; recalibrate or train"
            else:
                put_onto_weight(self.modules[operation], self.spec)
                after, note = f"{self.spec.norm.name} on {operation}.weight", self._without_affine(norm)
            self.report.changed.append(Change(name, type(norm).__name__, after, note))

    def _without_affine(self, norm: Any) -> str:
        return "γ and β of the norm are gone with it" if norm.weight is not None else ""


def _fits(value: Tensor, key: str, new: nn.Module) -> bool:
    mine = {**dict(new.named_parameters()), **dict(new.named_buffers())}.get(key)
    return mine is None or mine.shape == value.shape
