"""NaN and Inf in parameters, buffers, data and activations, and where they come from."""

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
    """NaN and Inf in parameters and buffers, and negative running variances."""
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
                "the running variance is negative, but evaluation takes its square root",
                f"lowest value {float(tensor.min()):.3g}",
                "geonorm.recalibrate(model, batches)",
                cure="recalibrate",
                harm=1.0,
            )


def bad_data(observed: Observations) -> Iterator[Finding]:
    """NaN and Inf in the batches."""
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
    """A model that raises an error."""
    if observed.readings.failure:
        yield Finding(
            "error",
            "does not run",
            "(model)",
            "the model fails on these batches; nothing after that point was checked",
            observed.readings.failure,
            "fix the model, or pass forward= if it must be called differently",
            harm=1.0,
        )


def bad_activations(observed: Observations) -> Iterator[Finding]:
    """NaN or Inf in activations, from finite batches."""
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
    where = "output" if broken and broken[0].bad == "output" else "input"
    yield Finding(
        "error",
        "not finite",
        layer,
        f"its {where} contains NaN or Inf, although the batches are finite"
        if broken
        else "the outputs contain NaN or Inf",
        f"in its {broken[0].bad}" if broken else "from finite batches",
        "check the layers before it: a division by 0, a root or logarithm of a negative number, or activations "
        "that grow from layer to layer",
        layers=[r.name for r in broken],
        harm=1.0,
    )


def _overflow(observed: Observations) -> Finding | None:
    """A finding if NaN and Inf disappear in float32: then the dtype is the cause."""
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
        f"up to {sizes[first]:.3g} in float32; the largest {name} is {limit:.5g}",
        "use bfloat16 or float32 (model.float()), or torch.autocast, which keeps norms in float32",
        cure="float32",
        harm=1.0,
    )
