"""Normalizations by name: one list for code, command line and documentation.

A spec is a name with optional arguments: ``bn``, ``augbn(phi=1.5)``, ``pop(spread=l1, center=false)``. Arguments are
those of the layer, with its own names.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from . import batchnorm, graphnorm, groupnorm, instancenorm, layernorm, popgroupnorm, popinstancenorm, popnorm

Builder: TypeAlias = Callable[..., nn.Module]


class Norm(NamedTuple):
    """One named normalization.

    Attributes:
        name: its name in a spec.
        line: a description in one line.
        build: makes a layer from (channels, dim, arguments); ``None`` for those that act on weights.
        implied: default arguments of this name; a spec may change them.
        axes: which values form a group: ``"batch"``, ``"layer"``, ``"group"``, ``"instance"``, ``"graph"``; ``"same"``
            for those of the layer it replaces, ``"weight"`` for rows of weights, ``"none"`` for no normalization.
        before: whether it is placed before the operation instead of after it.
    """

    name: str
    line: str
    build: Builder | None
    implied: dict[str, Any]
    axes: str = "batch"
    before: bool = False


class Spec(NamedTuple):
    """A parsed spec: which normalization, and with which arguments."""

    norm: Norm
    arguments: dict[str, Any]

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.norm.name}({inside})" if inside else self.norm.name


def _by_dim(module: Any, stem: str) -> Builder:
    def build(channels: int, dim: int, **arguments: Any) -> nn.Module:
        layer: nn.Module = getattr(module, f"{stem}{dim}d")(channels, **arguments)
        return layer

    return build


def _torch_twin(stem: str) -> Builder:
    return _by_dim(nn, stem)


def _group(layer: Callable[..., nn.Module]) -> Builder:
    def build(channels: int, dim: int, groups: int | None = None, **arguments: Any) -> nn.Module:
        if groups is None:  # 32, or the largest number of them that divides the channels
            groups = math.gcd(channels, 32)
        if groups < 1 or channels % groups:
            raise ValueError(f"expected groups to divide the {channels} channels (got groups={groups})")
        return layer(groups, channels, **arguments)

    return build


def _of_channels(layer: Callable[..., nn.Module]) -> Builder:
    return lambda channels, dim, **arguments: layer(channels, **arguments)


def _identity(channels: int, dim: int, device: Any = None, dtype: Any = None) -> nn.Module:
    return nn.Identity()


def _graph_twin(channels: int, dim: int, phi: float = 2.0, **arguments: Any) -> nn.Module:
    return graphnorm.AugGraphNorm(channels, phi=phi, **arguments)


_AUG_BATCH = _by_dim(batchnorm, "AugBatchNorm")
_POP = _by_dim(popnorm, "PopNorm")

NORMS: dict[str, Norm] = {
    norm.name: norm
    for norm in [
        Norm("none", "no normalization", _identity, {}, "none"),
        Norm("bn", "BatchNorm: mean and rms over the batch, per channel (torch)", _torch_twin("BatchNorm"), {}),
        Norm(
            "ln",
            "LayerNorm: mean and rms over the features of each sample (torch)",
            _of_channels(nn.LayerNorm),
            {},
            "layer",
        ),
        Norm("gn", "GroupNorm: mean and rms over groups of channels (torch)", _group(nn.GroupNorm), {}, "group"),
        Norm(
            "in",
            "InstanceNorm: mean and rms over each channel of each sample (torch)",
            _torch_twin("InstanceNorm"),
            {},
            "instance",
        ),
        Norm(
            "graphnorm", "GraphNorm: mean, a learned fraction of it, and rms over each graph", _graph_twin, {}, "graph"
        ),
        Norm("aug", "AugNorm over the groups of the layer it replaces; BatchNorm's by default", _AUG_BATCH, {}, "same"),
        Norm("augbn", "AugNorm over the batch: the L^φ center instead of the mean", _AUG_BATCH, {}),
        Norm("augln", "AugNorm over the features of each sample", _of_channels(layernorm.AugLayerNorm), {}, "layer"),
        Norm("auggroup", "AugNorm over groups of channels", _group(groupnorm.AugGroupNorm), {}, "group"),
        Norm(
            "augin",
            "AugNorm over each channel of each sample",
            _by_dim(instancenorm, "AugInstanceNorm"),
            {},
            "instance",
        ),
        Norm(
            "auggraph",
            "AugNorm over each graph, with a learned fraction of the center",
            _of_channels(graphnorm.AugGraphNorm),
            {},
            "graph",
        ),
        Norm("diffphi", "AugNorm over the batch with φ learned per channel", _AUG_BATCH, {"learn_phi": True}),
        Norm("median", "median instead of the mean: AugNorm at φ=1", _AUG_BATCH, {"phi": 1.0}),
        Norm("midrange", "midrange instead of the mean: AugNorm at φ=∞", _AUG_BATCH, {"phi": math.inf}),
        Norm("l1bn", "mean, and mean deviation instead of rms", _AUG_BATCH, {"phi": 2.0, "spread": "mean_abs"}),
        Norm(
            "rangebn",
            "midrange, and largest deviation instead of rms",
            _AUG_BATCH,
            {"phi": math.inf, "spread": "max_abs"},
        ),
        Norm("robustbn", "robust center and robust spread over the batch", _AUG_BATCH, {"spread": "robust"}),
        Norm(
            "guardbn",
            "BatchNorm that tolerates broken samples: far samples are pulled in before anything is measured",
            _AUG_BATCH,
            {"phi": 2.0, "guard": 3.0},
        ),
        Norm("pop", "POP-Norm over the batch: before the operation, shift inside, divisor κ", _POP, {}, "batch", True),
        Norm(
            "popin",
            "POP-Norm over each channel of each sample",
            _by_dim(popinstancenorm, "PopInstanceNorm"),
            {},
            "instance",
            True,
        ),
        Norm("popgroup", "POP-Norm over groups of channels", _group(popgroupnorm.PopGroupNorm), {}, "group", True),
        Norm("wn", "weight normalization: separate length and direction of each row (torch)", None, {}, "weight"),
        Norm("ws", "weight standardization: rows of mean 0 and variance 1", None, {}, "weight"),
        Norm("cwn", "centered weight normalization: rows of mean 0 and length 1", None, {}, "weight"),
        Norm("sn", "spectral normalization: largest singular value 1 (torch)", None, {}, "weight"),
    ]
}

_VALUES = {
    "l1": "mean_abs",
    "l2": "rms",
    "linf": "max_abs",
    "true": True,
    "false": False,
    "none": None,
    "inf": math.inf,
}


def norms() -> dict[str, str]:
    """All known normalizations: a dict from name to a one-line description.

    Examples:
        >>> import geonorm
        >>> geonorm.norms()["augbn"]
        'AugNorm over the batch: the L^φ center instead of the mean'
    """
    return {norm.name: norm.line for norm in NORMS.values()}


def parse_spec(spec: str | Spec) -> Spec:
    """A spec such as ``augbn(phi=1.5, spread=robust)``, parsed and checked.

        name            or            name(argument=value, ...)

    Values are numbers, ``true``, ``false``, ``none``, ``inf``, names, or (a, b); ``l1``, ``l2`` and ``linf`` stand for
    the spreads ``mean_abs``, ``rms`` and ``max_abs``.

    Args:
        spec: the text, or a spec already parsed.

    Shape:
        - none

    Examples:
        >>> from geonorm.nn import parse_spec
        >>> str(parse_spec("pop(spread=l1, center=false)"))
        'pop(spread=mean_abs, center=False)'
    """
    if isinstance(spec, Spec):
        return spec
    name, given = parse_call(spec, "'bn' or 'augbn(phi=1.5)'")
    if name not in NORMS:
        raise ValueError(unknown("normalization", name, NORMS))
    arguments = {**NORMS[name].implied, **given}
    return Spec(NORMS[name], arguments)


def unknown(what: str, name: object, names: Iterable[str]) -> str:
    """The message for an unknown name: the closest known one, and a list of all.

    Examples:
        >>> from geonorm.nn.specs import unknown
        >>> unknown("fruit", "aple", ["apple", "pear"])
        "unknown fruit 'aple'; did you mean 'apple'? known: apple, pear"
    """
    names = list(names)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {what} {name!r}; {hint}known: {', '.join(names)}"


def parse_call(text: str, such_as: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of ``name(argument=value, ...)``."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text, re.DOTALL) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a spec such as {such_as} (got {text!r})")
    arguments = {}
    for part in _split(match[2] or ""):
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier() or not value.strip():
            raise ValueError(f"expected argument=value in {text!r} (got {part.strip()!r})")
        if key.strip() in arguments:
            raise ValueError(f"expected each argument once in {text!r} (got {key.strip()!r} twice)")
        arguments[key.strip()] = _value(value.strip())
    return match[1], arguments


def create_norm(spec: str | Spec, channels: int | None = None, dim: int = 2) -> Any:
    """A layer from its spec, or a constructor of layers to pass to a model.

        create_norm("augbn(phi=1.5)", 64)              the layer AugBatchNorm2d(64, phi=1.5)
        create_norm("augbn(phi=1.5)")                  a callable of the channel count, for ``norm_layer=``

    The callable also takes keyword arguments of the layer, such as ``device`` and ``dtype``, which timm passes.

    Args:
        spec: name and arguments of the normalization; ``geonorm.norms()`` lists them.
        channels: number of channels; without it a callable that takes it.
        dim: spatial dimensions of the input, 1 (also for plain features), 2 or 3.

    Shape:
        - none

    Examples:
        >>> import geonorm
        >>> type(geonorm.create_norm("diffphi", 8)).__name__
        'AugBatchNorm2d'
        >>> norm_layer = geonorm.create_norm("auggroup(groups=4)")
        >>> norm_layer(16).num_groups
        4
    """
    parsed = parse_spec(spec)
    build = parsed.norm.build
    if build is None:
        raise ValueError(
            f"{parsed.norm.name!r} ({parsed.norm.line}) acts on the weights of an operation and is not a layer; "
            f"put it into a model with geonorm.convert(model, {str(parsed)!r})"
        )
    if dim not in (1, 2, 3):
        raise ValueError(f"expected dim to be 1, 2 or 3 (got {dim})")

    make = NormConstructor(parsed, dim)
    if channels is None:
        groups = parsed.arguments.get("groups")
        # Try it now, so that wrong arguments raise here and not deep in a model. The real channels are not known yet.
        make(groups if isinstance(groups, int) and groups > 0 else 32)
        return partial(make)  # timm takes classes, functions and partials only
    return make(channels)


class NormConstructor:
    """Makes layers of a spec from a channel count, and keyword arguments of the layer that a model adds.

    An object and not a function: timm takes a function for one that makes a norm with its activation, and would build
    some networks without activations.
    """

    def __init__(self, spec: Spec, dim: int) -> None:
        self.spec, self.dim = spec, dim
        self.__name__ = str(spec)  # timm asks for it

    def __call__(self, channels: int, **more: Any) -> nn.Module:
        assert self.spec.norm.build is not None
        try:
            return self.spec.norm.build(channels, self.dim, **{**self.spec.arguments, **more})
        except TypeError as error:
            raise ValueError(f"in {str(self.spec)!r}: {error}{_cure(self.spec)}") from error

    def __repr__(self) -> str:
        return f"<constructor of {self.spec}>"


def _cure(spec: Spec) -> str:
    """The hint for a spec with a guard for one of torch's layers."""
    of_torch = spec.norm.name in ("bn", "ln", "gn", "in")
    return "; a guard is for norms over the batch: guardbn is BatchNorm with one" * (
        of_torch and "guard" in spec.arguments
    )


def _split(inside: str) -> list[str]:
    """Arguments at the top level: commas inside brackets do not separate them."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(inside):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(inside[start:i])
            start = i + 1
    parts.append(inside[start:])
    return [part for part in parts if part.strip()]


def _value(text: str) -> Any:
    if text.lower() in _VALUES:
        return _VALUES[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.strip("'\"")
