"""Which operation a norm belongs to: read from the traced graph of a model, or declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from torch import fx, nn

from .layouts import is_norm

OPERATIONS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
Pairs: TypeAlias = Sequence[tuple[str, str]]

# Modules and functions that act on each element alone: a norm before them and an operation behind them are neighbours.
_NOT_ELEMENTWISE = (nn.MultiheadAttention, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Softmin, nn.GLU)
_ELEMENTWISE = {
    "relu", "relu_", "relu6", "leaky_relu", "leaky_relu_", "elu", "elu_", "selu", "celu", "gelu", "silu", "mish",
    "sigmoid", "sigmoid_", "tanh", "tanh_", "hardswish", "hardsigmoid", "hardtanh", "softplus", "softsign", "prelu",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
}  # fmt: skip


class Neighbours(NamedTuple):
    """The operations around one norm.

    Attributes:
        behind: the operation whose output this norm alone takes.
        ahead: the operations that take this norm's output, through elementwise functions or not, if nothing else does.
        directly: whether there is nothing between the norm and the operations ahead.
    """

    behind: str | None
    ahead: tuple[str, ...]
    directly: bool


class Graph(NamedTuple):
    """What tracing found.

    Attributes:
        norms: norms that are called once, by name, with their neighbours.
        calls: how often each module is called, by name.
        failure: why the whole model could not be traced; empty if it could.
    """

    norms: dict[str, Neighbours]
    calls: dict[str, int]
    failure: str


class _Tracer(fx.Tracer):
    """Norms, operations and torch's own modules stay whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_norm(m) or isinstance(m, OPERATIONS) or super().is_leaf_module(m, module_qualified_name)


def is_operation(module: nn.Module) -> bool:
    """A Linear or Conv layer whose weight can be taken as it stands."""
    return isinstance(module, OPERATIONS)


def input_channels(operation: Any) -> int:
    """Channels that an operation takes."""
    return int(operation.in_features if isinstance(operation, nn.Linear) else operation.in_channels)


def output_channels(operation: Any) -> int:
    """Channels that an operation gives."""
    return int(operation.out_features if isinstance(operation, nn.Linear) else operation.out_channels)


def spatial_dim(operation: nn.Module) -> int:
    """Spatial dimensions of an operation's input; a Linear counts as 1."""
    return 1 if isinstance(operation, nn.Linear) else len(operation.kernel_size)  # type: ignore[arg-type]


def trace(model: nn.Module) -> Graph:
    """The norms of a model and the operations around them.

    A model that cannot be traced as a whole is traced in its parts: what lies inside one part is found all the same.
    """
    norms: dict[str, Neighbours] = {}
    calls: dict[str, int] = {}
    failure = _trace_into(model, "", norms, calls)
    once = {name for name, number in calls.items() if number == 1}
    kept = {
        name: Neighbours(
            found.behind if found.behind in once else None,
            found.ahead if once >= set(found.ahead) else (),
            found.directly,
        )
        for name, found in norms.items()
        if name in once
    }
    return Graph(kept, calls, failure)


def _trace_into(model: nn.Module, prefix: str, norms: dict[str, Neighbours], calls: dict[str, int]) -> str:
    if not any(is_norm(module) for module in model.modules()):
        return ""
    canonical = {id(module): name for name, module in model.named_modules()}
    try:
        nodes = list(_Tracer().trace(model).nodes)
    except Exception as error:  # tracing runs the model's own code, which may raise anything
        for name, child in model.named_children():
            _trace_into(child, f"{prefix}{name}.", norms, calls)
        return f"{type(error).__name__}: {error}".split("\n", 1)[0]

    modules = {node: model.get_submodule(node.target) for node in nodes if node.op == "call_module"}
    names = {node: prefix + canonical[id(module)] for node, module in modules.items()}
    for node, module in modules.items():
        calls[names[node]] = calls.get(names[node], 0) + 1
        if is_norm(module):
            ahead, directly = _ahead(node, modules)
            norms[names[node]] = Neighbours(
                _behind(node, modules, names), tuple(dict.fromkeys(names[other] for other in ahead)), directly
            )
    return ""


def _first_input(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return source if isinstance(source, fx.Node) else None


def _behind(node: fx.Node, modules: dict[fx.Node, nn.Module], names: dict[fx.Node, str]) -> str | None:
    source = _first_input(node)
    while source is not None and isinstance(modules.get(source), nn.Identity) and len(source.users) == 1:
        source = _first_input(source)
    if source is None or not is_operation(modules.get(source, nn.Identity())) or len(source.users) != 1:
        return None
    return names[source]


def _ahead(node: fx.Node, modules: dict[fx.Node, nn.Module]) -> tuple[list[fx.Node], bool]:
    operations, directly, waiting = [], True, list(node.users)
    while waiting:
        user = waiting.pop(0)
        module = modules.get(user)
        if module is not None and is_operation(module):
            operations.append(user)
        elif isinstance(module, nn.Identity) or _is_elementwise(user, module):
            directly = directly and isinstance(module, nn.Identity)
            waiting += list(user.users)
        else:
            return [], False
    return operations, directly


def _is_elementwise(node: fx.Node, module: nn.Module | None) -> bool:
    if module is not None:
        where = type(module).__module__
        at_home = where in ("torch.nn.modules.activation", "torch.nn.modules.dropout")
        return at_home and not isinstance(module, _NOT_ELEMENTWISE)
    if node.op in ("call_function", "call_method"):
        return getattr(node.target, "__name__", node.target) in _ELEMENTWISE
    return False


def declared(model: nn.Module, pairs: Iterable[tuple[str, str]]) -> Graph:
    """Neighbours from pairs (operation, norm) that the user names, the norm standing behind the operation."""
    norms: dict[str, Neighbours] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    for operation, norm in pairs:
        for name, check, what in ((operation, is_operation, "a Linear or Conv layer"), (norm, is_norm, "a norm")):
            if name not in modules:
                raise ValueError(f"pairs name {name!r}, which is no module of the model")
            if not check(modules[name]):
                raise ValueError(f"expected {name!r} in pairs to be {what} (got {type(modules[name]).__name__})")
        norms[norm] = Neighbours(operation, (), False)
    return Graph(norms, {}, "")


def choose(graph: Graph, norms: Sequence[str], *, ahead_too: bool) -> dict[str, tuple[str, ...]]:
    """One pairing for the whole model: each norm with the operation behind it, or with those ahead of it.

    In a network of conv → norm → activation every norm has its own conv behind; with norms before activation and conv
    (DenseNet, pre-activation ResNets) its own ahead. Which way gives more pairs is the model's way; the other fills
    gaps. No operation is given to two norms.
    """
    found = {name: graph.norms[name] for name in norms if name in graph.norms}
    ways: list[dict[str, tuple[str, ...]]] = [{name: (near.behind,) for name, near in found.items() if near.behind}]
    if ahead_too:
        ways.append({name: near.ahead for name, near in found.items() if near.ahead})
        ways.sort(key=lambda way: len(_claims(way, {})), reverse=True)
    pairs: dict[str, tuple[str, ...]] = {}
    for way in ways:
        pairs |= _claims(way, pairs)
    return pairs


def _claims(way: dict[str, tuple[str, ...]], given: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The norms of a way whose operations are still free, in order."""
    taken = {operation for operations in given.values() for operation in operations}
    claims: dict[str, tuple[str, ...]] = {}
    for name, operations in way.items():
        if name not in given and not taken & set(operations):
            claims[name] = operations
            taken |= set(operations)
    return claims
