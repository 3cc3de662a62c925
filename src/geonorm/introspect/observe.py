"""Running a model to observe it, without changing it."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._pytree import tree_leaves, tree_map

from .axes import axes_of
from .layouts import is_frozen, is_norm
from .select import check_model

Forward: TypeAlias = Callable[[nn.Module, Any], Any]


def check_readable(model: nn.Module, what: str) -> None:
    """Raise unless the model can be run and read: not scripted, with real parameters."""
    check_model(model, what)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
            raise ValueError(f"expected {name} to have a shape (got a lazy one); run a batch through the model first")
        if tensor.is_meta:
            raise ValueError(
                f"expected a model with values (got {name} on the meta device); model.to_empty(device='cpu') and load "
                "a state_dict first"
            )


def each_batch(batches: Any) -> Iterable[Any]:
    """The batches of an iterable. One batch is a tensor, a tuple that begins with one, [input, labels] or a dict."""
    pair = isinstance(batches, tuple) and batches and isinstance(batches[0], Tensor)
    if isinstance(batches, (Tensor, Mapping)) or pair or _is_labelled(batches):
        return [batches]
    if not isinstance(batches, Iterable):
        raise TypeError(
            f"expected a batch or an iterable of batches (got {type(batches).__name__}); a batch is a tensor, a tuple "
            "whose first entry is the input, or a dict of the model's arguments"
        )
    return batches


def _is_labelled(batches: Any) -> bool:
    """Whether a list is an input with its class numbers, as a DataLoader returns them, and not two inputs."""
    if not isinstance(batches, list) or len(batches) != 2 or not all(isinstance(part, Tensor) for part in batches):
        return False
    x, labels = batches
    whole = not labels.is_floating_point() and not labels.is_complex()
    return x.is_floating_point() and whole and labels.dim() == 1 and x.dim() > 0 and len(x) == len(labels)


def first_batch(batches: Any) -> Any:
    """The first batch that is not empty."""
    for batch in each_batch(batches):
        if not _is_empty(batch):
            return batch
    raise ValueError("expected at least one batch with a sample in it (got none)")


def samples_of(batch: Any, most: int) -> Any:
    """The input of a batch, cut to at most this many samples."""
    x = input_of(batch)
    return x[:most] if isinstance(x, Tensor) and x.dim() else x


def labelled(batch: Any) -> tuple[Tensor, Tensor]:
    """Input and labels of a batch."""
    if isinstance(batch, (tuple, list)) and len(batch) >= 2 and all(isinstance(part, Tensor) for part in batch[:2]):
        return batch[0], batch[1]
    raise TypeError(f"expected batches (input, labels) of tensors (got {type(batch).__name__})")


def filled_batches(batches: Any) -> Iterator[Any]:
    """The batches that are not empty; at least one."""
    number = 0
    for batch in each_batch(batches):
        if not _is_empty(batch):
            number += 1
            yield batch
    if not number:
        raise ValueError("expected at least one batch with a sample in it (got none)")


def _is_empty(batch: Any) -> bool:
    first = next((leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)), None)
    return first is not None and first.numel() == 0


def random_state_restored(of: nn.Module | Tensor) -> AbstractContextManager[None]:
    """Restore the random state of the CPU, and of the GPUs that a model or a tensor is on.

    Those of all other GPUs are left alone: to ask for their states would start each of them.
    """
    tensors = [of] if isinstance(of, Tensor) else [*of.parameters(), *of.buffers()]
    used = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    forked: AbstractContextManager[None] = torch.random.fork_rng(used, device_type="cuda")
    return forked


@contextmanager
def state_restored(model: nn.Module) -> Iterator[None]:
    """Restore modes, buffers, gradients, hooks, attributes and the random state at the end of the context."""
    modules = [(module, dict(module.__dict__)) for module in model.modules()]
    tables = [
        (table, dict(table))
        for module, attributes in modules
        for name, table in attributes.items()
        if isinstance(table, dict) and (name in ("_buffers", "_parameters") or name.endswith(("_hooks", "_kwargs")))
    ]
    gradients = [(parameter, parameter.grad, parameter.requires_grad) for parameter in model.parameters()]
    with random_state_restored(model):
        try:
            for module, _ in modules:
                for name, buffer in module._buffers.items():
                    module._buffers[name] = None if buffer is None else buffer.clone()
            for parameter, _, _ in gradients:
                parameter.grad = None
            yield
        finally:
            for module, attributes in modules:
                module.__dict__.clear()
                module.__dict__.update(attributes)
            for table, entries in tables:
                table.clear()
                table.update(entries)
            for parameter, gradient, needed in gradients:
                parameter.grad = gradient
                parameter.requires_grad_(needed)


def norms_of(model: nn.Module) -> dict[str, nn.Module]:
    """The norms of activations by name, each once; parametrizations that normalize weights are not among them."""
    of_weights = {
        id(part) for module in model.modules() if isinstance(module, ParametrizationList) for part in module.modules()
    }
    return {name: m for name, m in model.named_modules() if is_norm(m) and id(m) not in of_weights}


def measure_batches(model: nn.Module) -> None:
    """Make norms use batch statistics, and put everything else into evaluation. Frozen norms stay as they are."""
    model.eval()
    for norm in norms_of(model).values():
        norm.training = True


def measure_each_batch(model: nn.Module) -> None:
    """Like ``measure_batches``, but batch norms accept a single value; to be used inside ``state_restored``.

    The last batch of an epoch may be one sample, which must not make the other measurements fail.
    """
    measure_batches(model)
    for norm in norms_of(model).values():
        if axes_of(norm) == "batch" and not is_frozen(norm):
            norm.register_forward_pre_hook(_use_running_statistics_for_one)


def _use_running_statistics_for_one(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
    x = inputs[0] if inputs else None
    if isinstance(x, Tensor) and x.dim() > 1 and x.numel():
        norm.training = x.numel() > x.shape[1]


def copy_of(model: nn.Module) -> nn.Module:
    """A copy of a model, without gradients."""
    # A tensor that the last forward stored on a module may be part of a graph, which cannot be copied.
    left = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    twin = copy.deepcopy(model, left)
    for parameter in twin.parameters():
        parameter.grad = None
    return twin


def double_copy(model: nn.Module, eps_factor: float = 1.0) -> nn.Module:
    """A copy in float64 whose norms use batch statistics, with every ``eps`` times a factor."""
    twin = copy_of(model).double()
    measure_batches(twin)
    for module in twin.modules():
        eps = getattr(module, "eps", None)
        if isinstance(eps, float):
            module.__dict__["eps"] = eps * eps_factor
    return twin


def as_double(batch: Any) -> Any:
    """A batch with its floating-point tensors in float64."""
    return tree_map(
        lambda leaf: leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, batch
    )


def as_float(batch: Any) -> Any:
    """A batch with its tensors of half precision in float32."""
    half = (torch.float16, torch.bfloat16)
    return tree_map(lambda leaf: leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in half else leaf, batch)


def uncompiled() -> Any:
    """A context in which compiled models run uncompiled, so that hooks are called. Free if none was compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def outputs(model: nn.Module, batch: Any, forward: Forward | None = None) -> Tensor:
    """All outputs of a model for a batch, flattened into one row."""
    with uncompiled():
        given = (forward or call_model)(model, batch)
    parts = [leaf.flatten() for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not parts or not sum(part.numel() for part in parts):
        raise ValueError(f"expected the model to return floating-point tensors (got {type(given).__name__})")
    return torch.cat(parts)


def input_of(batch: Any) -> Any:
    """A batch, or the first entry of one."""
    return batch[0] if isinstance(batch, (tuple, list)) and len(batch) else batch


def call_model(model: nn.Module, batch: Any) -> Any:
    """The model on a batch, or on the first entry of one; a dict holds the model's arguments by name."""
    x, home = input_of(batch), next(model.parameters(), None)

    def at_home(value: Any) -> Any:
        return value.to(home.device) if isinstance(value, Tensor) and home is not None else value

    if isinstance(x, Tensor):
        return model(at_home(x))
    if isinstance(x, Mapping) and _takes(model, x):
        return model(**{name: at_home(value) for name, value in x.items()})
    got = f"a dict of {', '.join(map(str, x))}" if isinstance(x, Mapping) else type(batch).__name__
    raise TypeError(
        "expected batches of tensors, of tuples that begin with one, or of dicts of the model's arguments "
        f"(got {got}); say how to call the model with forward=lambda model, batch: ..."
    )


def _takes(model: nn.Module, arguments: Mapping[Any, Any]) -> bool:
    """Whether the forward of a model can be called with these arguments by name."""
    try:
        inspect.signature(model.forward).bind(**arguments)
    except TypeError:
        return False
    return True
