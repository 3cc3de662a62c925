"""Which backend serves which device, and why; and the functions that the operators call.

``GEONORM_BACKEND`` selects the backend: ``auto`` (compiled kernels on the CPU where possible, torch on a GPU),
``torch``, ``native`` (the compiled library is required; cases without a kernel still run on torch), or ``triton`` (as
``auto``, but with the experimental Triton kernels on a GPU, which are then required). A case that a backend refuses
goes to torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module

from torch import Tensor

from . import cpu, guarded, joint
from .backend import Backend
from .checks import can_read_values
from .grouping import Axes, Grouping
from .problem import Incoming, Inputs, Result, Rule, Saved
from .requested import requested
from .running import Running
from .torch import center as torch_center
from .torch import normalize as on_torch
from .torch.guard import GuardedMoments
from .torch.guard import guarded_moments as torch_guarded_moments

# The folder that has the kernels for a type of device. It is imported when the first tensor of that type arrives.
_FOLDERS = {"cpu": "cpu", "cuda": "triton"}
_EXPERIMENTAL = {"triton"}  # these serve only who requests them by name


@cache
def backend_for(device: str, name: str = "") -> Backend | None:
    """The backend with kernels for a type of device; None if torch serves it.

    ``name``: what was requested, if not what is requested now. Raises if the kernels were requested and are missing.
    """
    name, folder = name or requested(), _folder(device)
    if name == "triton":  # an error on any device: it would be missed if only the first tensor on a GPU raised it
        _require(name, _import("triton").why_not())
    if name == "torch" or folder is None or (folder in _EXPERIMENTAL and name != folder):
        return None
    found = _kernels(device)
    if name in ("native", folder):
        _require(name, found if isinstance(found, str) else None)
    return None if isinstance(found, str) else found


def _require(name: str, missing: str | None) -> None:
    if missing is not None:
        raise RuntimeError(f"GEONORM_BACKEND={name}, but {missing}; or unset GEONORM_BACKEND to run on torch")


def _folder(device: str) -> str | None:
    """The folder for a type of device. In its interpreter Triton runs on the CPU, so that its kernels can be tested."""
    if device == "cpu" and requested() == "triton" and os.environ.get("TRITON_INTERPRET") == "1":
        return "triton"
    return _FOLDERS.get(device)


def _import(folder: str) -> Backend:
    backend: Backend = import_module(f".{folder}", __package__)
    return backend


@cache
def _kernels(device: str) -> Backend | str:
    """The backend with kernels for a type of device, whatever is requested; or why there is none."""
    folder = _folder(device)
    if folder is None:
        return f"there are no kernels for {device}"
    backend = _import(folder)
    return backend.why_not() or backend


def has_kernels() -> bool:
    """Whether the compiled kernels serve the CPU, and so the groups that several processes share."""
    return backend_for("cpu") is cpu


def describe() -> dict[str, str]:
    """Which backend serves which device and why, as readable text; "none" if the requested one is missing."""
    return {**_describe_cpu(), **_describe_gpu()}


def _describe_cpu() -> dict[str, str]:
    from .cpu import library

    name, found = requested(), library.load()
    if name == "torch":
        return {"backend": "torch", "because": "GEONORM_BACKEND=torch"}
    if _folder("cpu") == "triton":
        return {"backend": "triton", "because": "GEONORM_BACKEND=triton and TRITON_INTERPRET=1: for tests, and slow"}
    if isinstance(found, str):
        missing = {"backend": "none", "because": f"GEONORM_BACKEND=native, but {found}"}
        return missing if name == "native" else {"backend": "torch", "because": found}
    why = f"the compiled kernels are installed, and GEONORM_BACKEND={name}"
    return {"backend": "native", "because": why, "instruction set": found.instruction_set}


def _describe_gpu() -> dict[str, str]:
    if requested() != "triton":
        return {"on a GPU": "torch; the Triton kernels are experimental: GEONORM_BACKEND=triton selects them"}
    missing = _import("triton").why_not()
    if missing is not None:
        return {"on a GPU": f"none: GEONORM_BACKEND=triton, but {missing}"}
    return {"on a GPU": "triton, because GEONORM_BACKEND=triton; experimental, and never run on a GPU by us"}


@contextmanager
def using_backend(name: str) -> Iterator[None]:
    """Use another backend than ``GEONORM_BACKEND`` inside this context, in the whole process; for comparisons."""
    former = os.environ.get("GEONORM_BACKEND")
    os.environ["GEONORM_BACKEND"] = name
    _forget()
    try:
        yield
    finally:
        if former is None:
            del os.environ["GEONORM_BACKEND"]
        else:
            os.environ["GEONORM_BACKEND"] = former
        _forget()


def _forget() -> None:
    backend_for.cache_clear()
    _kernels.cache_clear()


def normalize(
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    running: Running | None = None,
    counts: Tensor | None = None,
    name: str = "",
) -> Result:
    """Output, and the state for backward. Updates running statistics and counts if the backend can do it itself.

    ``name``: the backend that was requested when the call was traced. On the CPU it does not matter: the rows say who
    wrote them.
    """
    if groups.joint and rule.guard is None:
        assert isinstance(groups, Axes)
        return joint.normalize(of, groups, rule, of.x.is_cpu and has_kernels())
    name = "" if of.x.is_cpu else name
    backend = backend_for(of.x.device.type, name)
    if backend is not None:
        result = backend.normalize(of, groups, rule, running, counts)
        if result is not None:
            return result
    if rule.guard is None:
        return on_torch.normalize(of, groups, rule)
    return guarded.normalize(of, groups, rule, running, counts, partial(normalize, name=name), guarded_moments)


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order; None where they are not needed. ``of.beta``: any tensor like β."""
    if saved.samples is not None and saved.plan is None:  # the kernels refused samples that are not finite
        rows = guarded.finite_rows(of.x, saved.samples, groups)
        if rows is not None:
            return guarded.backward_of_finite(rows, grads, of, groups, rule, saved, needs, normalize_backward)
    if groups.joint and rule.guard is None:
        assert isinstance(groups, Axes)
        return joint.normalize_backward(grads, of, groups, rule, saved, needs)
    backend = _kernels(of.x.device.type)  # the one that wrote the state, also if another is requested by now
    if grads.center is None and grads.spread is None and not isinstance(backend, str) and backend.wrote(saved):
        found = backend.normalize_backward(grads.output, of, groups, rule, saved, needs)
        if found is not None:
            return found
    if rule.guard is None:
        return on_torch.normalize_backward(grads, of, groups, rule, saved, needs)
    return guarded.normalize_backward(grads, of, groups, rule, saved, needs, normalize_backward)


def center(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None,
    phi_strictly_inside: bool = False,
) -> torch_center.Center:
    """The center of every group. All values are in this process."""
    assert not groups.joint
    backend = backend_for(x.device.type)
    if backend is not None:
        found = backend.center(x, phi, weight, groups, sweeps)
        if found is not None:
            return found
    return torch_center.center(x, phi, weight, groups, sweeps, phi_strictly_inside)


def spread(z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor | None:
    """The spread of the deviations z of every group, if there is a kernel for it."""
    backend = backend_for(z.device.type)
    return None if backend is None else backend.spread(z, weight, groups, rule)


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments:
    """The moments of a batch after far samples were pulled in, from the moments of each sample."""
    backend = backend_for(mean.device.type) if can_read_values(mean, deviation) else None
    if backend is not None:
        found = backend.guarded_moments(mean, deviation, k)
        if found is not None:
            return found
    return torch_guarded_moments(mean, deviation, k)
