"""``convert``: replace the norms of a model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from torch import nn

from ..introspect.graph import Graph, Pairs, choose, declared, trace
from ..introspect.layouts import factory_of, is_frozen, is_norm, is_ours, layout_of, why_parametrized, why_unknown
from ..introspect.select import Places, Where, check_model, chosen
from ..introspect.shared_channels import why_not_channels
from ..nn.specs import Spec, create_norm, parse_spec
from .conversion_record import STATE_HOOKS, NormPlaceholder, move_hooks, record_conversion, record_of, synced
from .fast_paths import update_fast_paths
from .freeze import carry_freeze
from .placement import attach, build_before, check_on_weight, is_pre_norm, put_onto_weight, why_not_onto
from .replacement import build, transfer_state, why_not
from .report import Change, Left, Report
from .revert import restored, revert
from .stale_optimizers import StaleOptimizers
from .user_attributes import carry_user_attributes
from .wrap_like import wrap_like

KEEP = ("parameters", "statistics", "hooks")


def convert(
    model: nn.Module,
    spec: str | Spec,
    where: Where = None,
    keep: Collection[str] = ("parameters", "statistics", "hooks"),
    *,
    pairs: Pairs | None = None,
) -> Report:
    """Replace the norms of a model by another normalization, in place.

        y = γ·(x − mean)/√(var + eps) + β        becomes the normalization of the spec

    ``aug(...)`` keeps the axes of each layer and is the form to start with. A spec with axes of its own, such as
    ``augbn`` or ``auggroup``, replaces layers with those axes and BatchNorm; others are left unless ``where`` names
    them and their layout is known. ``pop(...)`` also moves the norm before the operation it belongs to, as a submodule
    ``pre_norm`` of it; ``wn``, ``ws``, ``cwn`` and ``sn`` normalize the weight of the operation before the removed
    norm. Names, parameters (the same objects), running statistics, device, dtype, training flag, hooks, and other
    attributes that you have set on a norm are kept. ``geonorm.revert`` undoes it.

    Args:
        model: any model. A norm that is the model itself cannot be replaced in place.
        spec: a normalization; ``geonorm.norms()`` lists them.
        where: which norms: a name or pattern such as ``"layer3"`` (all inside) or ``"*.norm1"``, several, or a function
            of (name, module).
        keep: what a layer takes over from the one it replaces: ``"parameters"`` (γ and β), ``"statistics"``,
            ``"hooks"``.
        pairs: (operation, norm) by name for ``pop`` and the weight specs, if the model cannot be traced.

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
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    if not set(kept) <= set(KEEP):
        raise ValueError(f"expected keep to be some of {KEEP} (got {keep!r})")
    if parsed.norm.build is None:  # raise for wrong arguments before anything changes
        check_on_weight(parsed)
    else:
        create_norm(parsed)
    is_chosen = chosen(model, where)
    found = None if pairs is None else declared(model, pairs)
    stale_optimizers, joined = StaleOptimizers(model), len(synced(model))
    stale = _stale_places(model, parsed, is_chosen)
    if stale:
        revert(model, where=lambda name, module: id(module) in stale)
    surgeon = _Surgeon(model, parsed, kept, named=where is not None, pairs=found)
    targets = surgeon.targets(is_chosen)
    if parsed.norm.axes == "weight" or parsed.norm.before:
        surgeon.move_to_operations(targets)
    else:
        surgeon.replace_in_place(targets)
    update_fast_paths(model)
    surgeon.report.notes += stale_optimizers.notes(model)
    if len(synced(model)) < joined:
        surgeon.report.notes.append("some layers have lost their process group: call geonorm.sync(model) again")
    return surgeon.report


def _stale_places(model: nn.Module, spec: Spec, is_chosen: Any) -> set[int]:
    """Places whose norm an earlier conversion has moved to an operation or removed: it must be restored first."""
    return {
        id(module)
        for name, module in model.named_modules()
        if isinstance(module, NormPlaceholder) and (record := record_of(module)) and record.spec != str(spec)
        if is_chosen(name, module)
    }


class _Step(NamedTuple):
    """One replacement, ready to be made."""

    name: str
    old: nn.Module
    new: nn.Module
    original: nn.Module
    changes: list[Change]
    operations: dict[str, nn.Module]
    layers: list[nn.Module]  # to be put before the operations


class _Surgeon:
    """One conversion of one model: everything is built first, and put in place once nothing can fail."""

    def __init__(self, model: nn.Module, spec: Spec, keep: tuple[str, ...], named: bool, pairs: Graph | None) -> None:
        self.model, self.spec, self.keep, self.named, self.pairs = model, spec, keep, named, pairs
        self.places = Places(model)
        self.modules = dict(self.places)
        self.report = Report(f"convert to {spec}")

    def targets(self, is_chosen: Any) -> dict[str, nn.Module]:
        """The chosen norms that can be converted, by name; the others go into the report."""
        targets = {}
        moved = {id(module._modules["pre_norm"]) for module in self.modules.values() if is_pre_norm(module)}
        for name, module in self.modules.items():
            if not is_norm(module) or id(module) in moved or not is_chosen(name, module):
                continue
            if name == "":
                self._leave(name, module, "the model itself cannot be replaced in place; put it into nn.Sequential")
            elif layout_of(module) is None:
                self._leave(name, module, why_unknown(module))
            elif reason := why_parametrized(module):
                self._leave(name, module, reason)
            else:
                targets[name] = module
        return targets

    def _leave(self, name: str, module: nn.Module, reason: str) -> None:
        self.report.left.append(Left(name or "(model)", type(module).__name__, reason))

    def _original(self, old: nn.Module) -> nn.Module:
        """The torch layer that a place had, or would have, with the current parameters and statistics."""
        back = restored(old) if is_ours(old) or record_of(old) is not None else None
        return old if back is None else back.module

    # One norm by another, in the same place.

    def replace_in_place(self, targets: dict[str, nn.Module]) -> None:
        """Replace each norm by that of the spec, or by a placeholder."""
        graph = trace(self.model) if self.spec.norm.axes == "none" and targets else None
        steps = [
            self._without_norm(name, module, graph) if graph is not None else self._successor(name, module)
            for name, module in targets.items()
        ]
        for step in steps:
            if step is not None:
                self._make(step)

    def _without_norm(self, name: str, old: nn.Module, graph: Graph) -> _Step | None:
        if is_frozen(old):
            self._leave(name, old, "frozen; unfreeze it first")
            return None
        change = Change(name, type(old).__name__, "nothing", "a different function than before")
        return _Step(name, old, NormPlaceholder(_needs_copy(name, graph)), self._original(old), [change], {}, [])

    def _successor(self, name: str, old: nn.Module) -> _Step | None:
        own = layout_of(old)
        assert own is not None
        reason = why_not(self.spec, own, self.named)
        if reason:
            self._leave(name, old, reason)
            return None
        try:
            new = build(self.spec, own, factory_of(old))
        except (TypeError, ValueError) as error:  # this kind of layer does not take the argument
            self._leave(name, old, str(error))
            return None
        _carry_group(old, new)
        if _is_like(old, new):
            return None  # already converted
        original = self._original(old)
        if original is not old and _is_like(original, new):
            change = Change(name, type(old).__name__, type(original).__name__)
            return _Step(name, old, original, original, [change], {}, [])
        note = transfer_state(original, new, self.keep)
        return _Step(name, old, new, original, [Change(name, type(old).__name__, type(new).__name__, note)], {}, [])

    def _make(self, step: _Step) -> None:
        record = record_of(step.old)
        if step.new is step.original:  # back to the original layer
            revert(self.model, where=lambda name, module: module is step.old)
        else:
            wrap_like(step.new, step.original)
            self._carry_user_attributes(step)
            step.new.training = step.old.training
            has_hooks = "hooks" in self.keep
            if has_hooks:
                move_hooks(step.old if record is None or record.has_hooks else step.original, step.new)
            record_conversion(step.new, step.original, str(self.spec), has_hooks, list(step.operations.values()))
            carry_freeze(step.old, step.new)
            self.places.replace(step.old, step.new)
        self.report.changed += step.changes

    def _carry_user_attributes(self, step: _Step) -> None:
        lost = carry_user_attributes(step.old, step.new)
        if lost:
            kind = type(step.new).__name__
            self.report.notes.append(f"{step.name}: {', '.join(lost)} of the old norm means something else in {kind}")
        if isinstance(step.new, NormPlaceholder) and any(step.old.__dict__[hooks] for hooks in STATE_HOOKS):
            self.report.notes.append(f"{step.name}: the hooks of its state_dict stay with the old norm")

    # A norm that moves to an operation: before it, or onto its weight.

    def move_to_operations(self, targets: dict[str, nn.Module]) -> None:
        """Put each norm before its operation or on its weight, and a placeholder in its old place."""
        graph = self._graph(targets)
        norms = [name for name, module in targets.items() if self._can_move(name, module)]
        pairs = choose(graph, norms, after_too=self.spec.norm.before)
        steps = [self._moved(name, targets[name], pairs[name], graph) for name in norms if name in pairs]
        for name in norms:
            if name not in pairs:
                self._leave(name, targets[name], self._why_unpaired(name, graph))
        for step in steps:
            if step is None:
                continue
            self._make(step)
            for layer, operation in zip(step.layers, step.operations.values(), strict=False):
                attach(layer, operation)
            if not step.layers:
                for operation in step.operations.values():
                    put_onto_weight(operation, self.spec)

    def _graph(self, targets: dict[str, nn.Module]) -> Graph:
        if self.pairs is not None:
            return self.pairs
        graph = trace(self.model) if targets else Graph({}, {}, "")
        if graph.failure:
            self.report.notes.append(
                f"the model could not be traced as a whole ({graph.failure}): pairs were sought inside its parts; "
                "declare others with pairs=[(operation, norm), ...]"
            )
        return graph

    def _can_move(self, name: str, norm: nn.Module) -> bool:
        layout = layout_of(norm)
        if layout is not None and layout.axes in ("layer", "graph"):
            self._leave(name, norm, f"{layout.axes} normalization has no channels in dimension 1")
        elif is_frozen(norm):
            self._leave(name, norm, "frozen; unfreeze it first")
        else:
            return True
        return False

    def _moved(self, name: str, norm: nn.Module, operations: tuple[str, ...], graph: Graph) -> _Step | None:
        onto = {operation: self.modules[operation] for operation in operations}
        layers: list[nn.Module] = []
        try:
            reason = next(filter(None, (self._why_not_onto(name, norm, key, graph) for key in onto)), "")
            if not reason and self.spec.norm.before:
                layers = [build_before(operation, self.spec) for operation in onto.values()]
                for layer in layers:
                    _carry_group(norm, layer)
        except (TypeError, ValueError) as error:
            reason = str(error)
        if reason:
            self._leave(name, norm, reason)
            return None
        note = "a different function; recalibrate or train" if layers else _without_affine(norm)
        afters = [f"{type(layer).__name__} before {key}" for layer, key in zip(layers, onto, strict=False)]
        afters = afters or [f"{self.spec.norm.name} on {key}.weight" for key in onto]
        changes = [Change(name, type(norm).__name__, after, note) for after in afters]
        standin = NormPlaceholder(_needs_copy(name, graph))
        return _Step(name, norm, standin, self._original(norm), changes, onto, layers)

    def _why_not_onto(self, name: str, norm: nn.Module, key: str, graph: Graph) -> str:
        operation, layout = self.modules[key], layout_of(norm)
        reason = why_not_onto(key, operation, self.spec, self.model)
        if reason or not self.spec.norm.before or layout is None:
            return reason
        return why_not_channels(key, operation, layout, is_after=graph.norms[name].before == key)

    def _why_unpaired(self, name: str, graph: Graph) -> str:
        if graph.calls.get(name, 0) > 1:
            return "it is called more than once"
        if self.pairs is not None:
            return "not among the declared pairs"
        found = graph.norms.get(name)
        if found is None:
            return "not seen in the traced graph; declare it with pairs=[(operation, norm)]"
        if found.before or found.after:
            return f"{found.before or ', '.join(found.after)} already belongs to another norm"
        return "no operation whose output goes only to it" + (
            ", and its own output does not go only to operations" if self.spec.norm.before else ""
        )


def _is_like(layer: nn.Module, new: nn.Module) -> bool:
    """Whether a layer already equals what the spec would build. ``extra_repr`` does not show whether there is a β."""
    if not isinstance(layer, type(new)) or layer.extra_repr() != new.extra_repr():
        return False
    mine, theirs = ({key for key, _ in each.named_parameters(recurse=False)} for each in (layer, new))
    return mine == theirs


def _carry_group(old: Any, new: Any) -> None:
    """Give a replacement the process group of the old layer, if it can have one."""
    if is_ours(old) and "process_group" in new.__dict__:
        new.process_group = getattr(old, "process_group", None)


def _needs_copy(name: str, graph: Graph) -> bool:
    """Whether a norm's input may be used elsewhere, so not if an operation made it for this norm alone."""
    found = graph.norms.get(name)
    return found is None or found.before is None


def _without_affine(norm: Any) -> str:
    return "γ and β of the norm are removed with it" if norm.weight is not None else ""
