"""The operation that each norm belongs to: read from the traced graph of a model, or declared."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch.nn.functional as F
from torch import fx, nn

from .layouts import is_norm, qualified_name

OPERATIONS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_PYG_LINEAR = "torch_geometric.nn.dense.linear.Linear"
Pairs: TypeAlias = Sequence[tuple[str, str]]

# Elementwise functions: a norm before them and an operation after them are neighbours. Torch's activations are
# elementwise too, with a few exceptions.
_NOT_ELEMENTWISE = (nn.MultiheadAttention, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Softmin, nn.GLU)
_ELEMENTWISE = {
    "relu", "relu_", "relu6", "leaky_relu", "leaky_relu_", "elu", "elu_", "selu", "celu", "gelu", "silu", "mish",
    "sigmoid", "sigmoid_", "tanh", "tanh_", "hardswish", "hardsigmoid", "hardtanh", "softplus", "softsign", "prelu",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
}  # fmt: skip
_DROPOUT = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)

_METADATA = {
    "dtype", "device", "shape", "ndim", "layout", "is_cuda", "is_meta", "requires_grad",
    "size", "dim", "numel", "nelement", "is_floating_point", "is_complex", "get_device", "element_size",
}  # fmt: skip


class Neighbours(NamedTuple):
    """The operations around one norm.

    Attributes:
        before: the operation whose output only this norm uses.
        after: the operations that use this norm's output, directly or after elementwise functions, if nothing else
            does.
        directly: whether there is nothing between the norm and the operations after it.
        in_part: whether only a part of the model was traced; connections between parts are then not known.
        over_dropout: the operations that are separated from the norm by dropout in evaluation mode.
    """

    before: str | None
    after: tuple[str, ...]
    directly: bool
    in_part: bool
    over_dropout: frozenset[str] = frozenset()


class Graph(NamedTuple):
    """The result of tracing.

    Attributes:
        norms: norms that are called once, by name, with their neighbours.
        calls: number of calls of each module and of uses of its parameters elsewhere, by name.
        failure: why the whole model could not be traced; empty if it could.
    """

    norms: dict[str, Neighbours]
    calls: dict[str, int]
    failure: str


class _Tracer(fx.Tracer):
    """Traces norms, operations and torch's own modules as single nodes.

    Norms are identified before tracing, because reading a parameter while a model is traced is recorded as a use of it.
    """

    def __init__(self, norms: set[int]) -> None:
        super().__init__()
        self._norms = norms

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return id(m) in self._norms or takes_norms(m) or super().is_leaf_module(m, module_qualified_name)


def is_operation(module: nn.Module | None) -> bool:
    """Whether a module is one of torch's Linear or Conv layers."""
    return isinstance(module, OPERATIONS)


def is_linear(module: nn.Module | None) -> bool:
    """Whether a module is a Linear layer, torch's or PyG's, which is not a subclass of it but equivalent."""
    return isinstance(module, nn.Linear) or (module is not None and qualified_name(module) == _PYG_LINEAR)


def takes_norms(module: nn.Module | None) -> bool:
    """Whether a norm can belong to a module: a Linear or Conv layer."""
    return is_operation(module) or is_linear(module)


def has_own_forward(operation: nn.Module) -> bool:
    """Whether an operation has a different forward than torch's or PyG's class."""
    if "forward" in operation.__dict__:
        return True
    kind = next((kind for kind in OPERATIONS if isinstance(operation, kind)), None)
    return kind is not None and type(operation).forward is not kind.forward


def input_channels(operation: Any) -> int:
    """The number of input channels of an operation."""
    return int(operation.in_features if isinstance(operation, nn.Linear) else operation.in_channels)


def output_channels(operation: Any) -> int:
    """The number of output channels of an operation."""
    return int(operation.out_features if isinstance(operation, nn.Linear) else operation.out_channels)


def spatial_dim(operation: Any) -> int:
    """Spatial dimensions of an operation's input; a Linear counts as 1."""
    return 1 if is_linear(operation) else len(operation.kernel_size)


def trace(model: nn.Module, inference: bool = False) -> Graph:
    """The norms of a model and the operations around them, with the defaults of optional inputs.

    If a model cannot be traced as a whole, its parts are traced, and pairs inside one part are still found.
    With ``inference``, dropout in evaluation mode is ignored.
    """
    reading = _GraphReader(model, inference)
    # Tracing runs the model's own code, which may change the model.
    kept = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    try:
        for module, _, buffers in kept:
            module._buffers.update({name: b if b is None else b.clone() for name, b in buffers.items()})
        failure = reading.read(model, in_part=False)
    finally:
        for module, attributes, buffers in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.update(buffers)
    once = {name for name, number in reading.calls.items() if number == 1}
    alone = {
        name: found._replace(
            before=found.before if found.before in once else None,
            after=found.after if once.issuperset(found.after) else (),
        )
        for name, found in reading.found.items()
        if name in once
    }
    return Graph(alone, reading.calls, failure)


class _GraphReader:
    """Traces a model or its parts, and collects the results."""

    def __init__(self, model: nn.Module, inference: bool) -> None:
        self.inference = inference
        self.names = {id(module): name for name, module in model.named_modules()}
        self.norms = {id(module) for module in model.modules() if is_norm(module)}
        self.found: dict[str, Neighbours] = {}
        self.calls: dict[str, int] = {}

    def read(self, part: nn.Module, in_part: bool) -> str:
        """Trace a part of the model, or its own parts if that fails; returns the error, empty if there was none."""
        if id(part) in self.norms or not any(id(module) in self.norms for module in part.modules()):
            return ""
        try:
            parameters = inspect.signature(part.forward).parameters.values()
            optional = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
            nodes = list(_Tracer(self.norms).trace(part, concrete_args=optional or None).nodes)
        except Exception as error:  # the model's own code may raise anything
            for child in part.children():
                self.read(child, in_part=True)
            return f"{type(error).__name__}: {error}".split("\n", 1)[0]
        modules = {node: part.get_submodule(str(node.target)) for node in nodes if node.op == "call_module"}
        off = {node for node in nodes if self.inference and _is_dropout_off(node, modules.get(node))}
        for node in nodes:
            if node.op == "get_attr" and not all(map(_reads_only_metadata, node.users)):  # a parameter
                self._count(part.get_submodule(str(node.target).rpartition(".")[0]))
        for node, module in modules.items():
            self._count(module)
            if id(module) in self.norms:
                before, over = _before(node, modules, off)
                after, directly, over_too = _after(node, modules, off)
                self.found[self.names[id(module)]] = Neighbours(
                    None if before is None else self.names[id(before)],
                    tuple(dict.fromkeys(self.names[id(operation)] for operation in after)),
                    directly,
                    in_part,
                    frozenset(self.names[id(operation)] for operation in [*over, *over_too]),
                )
        return ""

    def _count(self, module: nn.Module) -> None:
        name = self.names[id(module)]
        self.calls[name] = self.calls.get(name, 0) + 1


def _reads_only_metadata(node: fx.Node) -> bool:
    """Whether a node reads only metadata of a tensor, such as its shape, and not its values."""
    if node.op == "call_method":
        return node.target in _METADATA
    return node.op == "call_function" and node.target is getattr and node.args[1] in _METADATA


def _first_input(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return source if isinstance(source, fx.Node) else None


def _does_nothing(module: nn.Module | None) -> bool:
    return isinstance(module, nn.Identity) and _is_plain(module)


def _is_plain(module: nn.Module) -> bool:
    """Whether a call runs the forward of the class and no hooks."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _is_dropout_off(node: fx.Node, module: nn.Module | None) -> bool:
    if module is not None:
        return type(module).__module__ == "torch.nn.modules.dropout" and not module.training and _is_plain(module)
    return node.op == "call_function" and node.target in _DROPOUT and node.kwargs.get("training") is False


def _before(
    node: fx.Node, modules: dict[fx.Node, nn.Module], off: set[fx.Node]
) -> tuple[nn.Module | None, list[nn.Module]]:
    """The operation before a norm, and a list that contains it if there is dropout in between."""
    source, over = _first_input(node), False
    while source is not None and (_does_nothing(modules.get(source)) or source in off) and len(source.users) == 1:
        over = over or source in off
        source = _first_input(source)
    if source is None or not takes_norms(modules.get(source)) or len(source.users) != 1:
        return None, []
    return modules[source], [modules[source]] if over else []


def _after(
    node: fx.Node, modules: dict[fx.Node, nn.Module], off: set[fx.Node]
) -> tuple[list[nn.Module], bool, list[nn.Module]]:
    """The operations after a norm, whether they follow directly, and those with dropout in between."""
    operations, directly, over_dropout = [], True, []
    waiting = [(user, False) for user in node.users]
    while waiting:
        user, over = waiting.pop(0)
        module = modules.get(user)
        if module is not None and takes_norms(module):
            operations.append(module)
            over_dropout += [module] if over else []
        elif _does_nothing(module) or user in off or _is_elementwise(user, module):
            directly = directly and (_does_nothing(module) or user in off)
            waiting += [(next_user, over or user in off) for next_user in user.users]
        else:
            return [], False, []
    return operations, directly, over_dropout


def _is_elementwise(node: fx.Node, module: nn.Module | None) -> bool:
    if module is not None:
        where = type(module).__module__
        is_torchs = where in ("torch.nn.modules.activation", "torch.nn.modules.dropout")
        return is_torchs and not isinstance(module, _NOT_ELEMENTWISE)
    if node.op in ("call_function", "call_method"):
        return getattr(node.target, "__name__", node.target) in _ELEMENTWISE
    return False


def declared(model: nn.Module, pairs: Iterable[tuple[str, str]]) -> Graph:
    """Neighbours from pairs (operation, norm) that the user names; the norm comes after the operation."""
    norms: dict[str, Neighbours] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    first = {id(module): name for name, module in model.named_modules()}
    for operation, norm in pairs:
        for name, check, what in ((operation, takes_norms, "a Linear or Conv layer"), (norm, is_norm, "a norm")):
            if name not in modules:
                raise ValueError(f"expected names of modules in pairs (got {name!r}, which the model does not have)")
            if not check(modules[name]):
                raise ValueError(f"expected {name!r} in pairs to be {what} (got {type(modules[name]).__name__})")
        norms[first[id(modules[norm])]] = Neighbours(first[id(modules[operation])], (), False, False)
    return Graph(norms, {}, "")


def choose(graph: Graph, norms: Sequence[str], *, after_too: bool) -> dict[str, tuple[str, ...]]:
    """One pairing for the whole model: each norm with the operation before it, or with those after it.

    In a network of conv → norm → activation every norm belongs to the conv before it; with norms before activation and
    conv (DenseNet, pre-activation ResNets) to the conv after it. The direction with more pairs is used first, and the
    other for the remaining norms. No operation gets two norms.
    """
    found = {name: graph.norms[name] for name in norms if name in graph.norms}
    directions: list[dict[str, tuple[str, ...]]] = [{name: (n.before,) for name, n in found.items() if n.before}]
    if after_too:
        directions.append({name: near.after for name, near in found.items() if near.after})
        directions.sort(key=lambda direction: len(_free_pairs(direction, {})), reverse=True)
    pairs: dict[str, tuple[str, ...]] = {}
    for direction in directions:
        pairs |= _free_pairs(direction, pairs)
    return pairs


def _free_pairs(pairs: dict[str, tuple[str, ...]], given: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The pairs whose norm and operations are in no given pair, in order."""
    taken = {operation for operations in given.values() for operation in operations}
    free: dict[str, tuple[str, ...]] = {}
    for name, operations in pairs.items():
        if name not in given and not taken & set(operations):
            free[name] = operations
            taken |= set(operations)
    return free
