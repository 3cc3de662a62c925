"""Numbers that are no numbers: NaN and Inf in parameters, buffers, data and activations, and what made them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...introspect.observe import as_float, copy_of, measure_batches
from ..behaviour import answers
from .finding import Finding
from .observations import Observations

_HALF = {torch.float16: ("float16", 65504.0), torch.bfloat16: ("bfloat16", 3.4e38)}


def bad_values(observed: Observations) -> Iterator[Finding]:
    """In parameters and buffers."""
    parameters, buffers = list(observed.model.named_parameters()), list(observed.model.named_buffers())
    for name, tensor in (*parameters, *buffers):
        what = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
        layer, _, own = name.rpartition(".")
        bad = int((~tensor.isfinite()).sum()) if tensor.is_floating_point() else 0
        statistics = own.startswith("running")
        if bad:
            yield Finding(
                "error",
                f"{what} not finite",
                layer or "(model)",
                f"the {what} `{own}` contains NaN or Inf, and so do the outputs"
                + (" in evaluation" if statistics else ""),
                f"{bad} of {tensor.numel()} values",
                "geonorm.recalibrate(model, batches), without the batch that caused it"
                if statistics
                else "load a checkpoint from before it happened, and lower the learning rate",
                cure="recalibrate" if statistics else "",
                harm=1.0,
            )
        elif own == "running_var" and bool((tensor < 0).any()):
            yield Finding(
                "error",
                "negative variance",
                layer or "(model)",
                "the running variance is negative, and evaluation takes its square root",
                f"lowest value {float(tensor.min()):.3g}",
                "geonorm.recalibrate(model, batches)",
                cure="recalibrate",
                harm=1.0,
            )


def bad_data(observed: Observations) -> Iterator[Finding]:
    """In the batches."""
    if observed.readings.bad_data:
        yield Finding(
            "error",
            "bad data",
            "(batches)",
            "the batches contain NaN or Inf",
            "found in an input",
            "remove these samples; geonorm.screen(model, batches) names them",
            harm=1.0,
        )


def failure(observed: Observations) -> Iterator[Finding]:
    """What the model raised."""
    if observed.readings.failure:
        yield Finding(
            "error",
            "does not run",
            "(model)",
            "the model fails on these batches; nothing behind that point was looked at",
            observed.readings.failure,
            "fix the model, or say how to call it with forward=",
            harm=1.0,
        )


def bad_activations(observed: Observations) -> Iterator[Finding]:
    """NaN or Inf on the way through the network, from finite batches."""
    if observed.readings.bad_data:
        return
    broken = [r for r in observed.readings.norms.values() if r.bad]
    answered = [answer for answer in observed.readings.answers if answer is not None]
    wrong = any(not bool(answer.isfinite().all()) for answer in answered)
    if not broken and not wrong:
        return
    layer = broken[0].name if broken else "(output)"
    half = _overflow(observed)
    if half is not None:
        yield half
        return
    where = "leave it" if broken and broken[0].bad == "output" else "reach it"
    yield Finding(
        "error",
        "not finite",
        layer,
        f"NaN or Inf {where}, although the batches are finite" if broken else "the outputs contain NaN or Inf",
        f"in its {broken[0].bad}" if broken else "from finite batches",
        "look at the layers in front of it: a division by 0, a root or logarithm of a negative number, or activations "
        "that grow from layer to layer",
        layers=[r.name for r in broken],
        harm=1.0,
    )


def _overflow(observed: Observations) -> Finding | None:
    """Whether NaN and Inf go away in float32: then the dtype is the cause."""
    dtypes = {p.dtype for p in observed.model.parameters() if p.dtype in _HALF}
    if not dtypes or any(not bool(p.isfinite().all()) for p in observed.model.parameters()):
        return None
    name, limit = _HALF[next(iter(dtypes))]
    wide = copy_of(observed.model).float()
    measure_batches(wide)
    sizes: dict[str, float] = {}

    def watch(layer: str):  # type: ignore[no-untyped-def]
        def hook(module: object, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and output.numel():
                sizes[layer] = max(sizes.get(layer, 0.0), float(output.abs().max()))

        return hook

    for layer, module in wide.named_modules():
        if layer:
            module.register_forward_hook(watch(layer))
    batches = [as_float(batch) for batch in observed.batches]
    try:
        given = answers(wide, batches, observed.forward)
    except (RuntimeError, TypeError, ValueError):
        return None
    if not all(answer is None or bool(answer.isfinite().all()) for answer in given):
        return None
    first = next((layer for layer, size in sizes.items() if size > limit), None)
    if first is None:
        return None
    return Finding(
        "error",
        "overflow",
        first,
        f"activations are too large for {name}; the same model in float32 has no NaN or Inf",
        f"up to {sizes[first]:.3g} in float32, and {name} ends at {limit:.5g}",
        "use bfloat16 or float32 (model.float()), or torch.autocast, which keeps norms in float32",
        cure="float32",
        harm=1.0,
    )
