"""The base of all layers: the exponent, how much of the center is removed, the spread, and the affine part."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable
from operator import is_
from typing import Any, ClassVar, Literal, NoReturn, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn import Parameter

from ..functional._arguments import check_floor, exponent, renamed_weight, spread_power
from ..functional._aug import normalize_in_layer
from ..functional._center import check_sweeps
from ..functional._normalize import make_rule
from ..functional._repeated import may_repeat, repeated_call
from ..functional._spread import robust_exponent
from ..ops import Axes, Inputs, LearnedPhi, Rule, Running
from ..ops.learned import constants_of

SINGLE_ELEMENT = ("error", "running", "identity")
MOST_SHAPES = 8  # of inputs, whose calls a layer remembers


class AugOptions(TypedDict, total=False):
    """The keyword-only arguments of every AugNorm layer, after torch's own; for annotating a dict of them.

    Attributes:
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange). Default: 1.5.
        learn_phi: learn φ inside ``phi_range``, from ``phi``. Default: ``False``.
        phi_range: the open range of a learned φ. Default: (1.2, 3.0).
        alpha: how much of the center is removed. Default: 1.0.
        learn_alpha: learn one α per channel, from ``alpha``. Default: ``False``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞]. Default: ``"rms"``.
        spread_phi: exponent of the robust spread. Default: 1.5.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none. Default: 0.05.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. Default: 0.0.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do in training with one value per group: ``"error"`` (as torch), ``"running"`` (use the
            running statistics) or ``"identity"`` (the affine part only). Default: ``"error"``.
    """

    phi: float
    learn_phi: bool
    phi_range: tuple[float, float]
    alpha: float
    learn_alpha: bool
    spread: Literal["rms", "mean_abs", "max_abs", "robust"] | float
    spread_phi: float
    spread_floor: float
    grad_floor: float
    sweeps: int | None
    single_element: Literal["error", "running", "identity"]


class NormLayer(nn.Module):
    """Parameters and options of a normalization layer; subclasses define which values form a group.

    φ is a number, or learned as lo + (hi − lo)·sigmoid(θ + θ₀). A learned φ stays inside its range whatever the
    optimizer does. θ, the parameter ``phi_offset``, starts at 0, so that weight decay pulls φ back to its start. At an
    end of its range, where the sigmoid is flat, φ keeps a gradient that leads back.
    """

    # The description of a layer and of its twin, for everything that reads models.
    axes: ClassVar[Literal["batch", "layer", "group", "instance", "graph"]]  # which values form a group
    placement: ClassVar[Literal["after", "before"]] = "after"  # relative to its operation
    spatial_dims: ClassVar[int | None] = None  # of the input; None if it takes any number
    twin: ClassVar[type[nn.Module] | str | None] = None  # the layer it replaces: torch's, or another's full name
    sizes: ClassVar[tuple[str, ...]] = ("num_features",)  # the constructor's positional arguments
    shared_arguments: ClassVar[tuple[str, ...]] = ("eps", "affine")  # keyword arguments that its twin has too

    eps: float
    weight: Parameter | None
    bias: Parameter | None
    phi_offset: Parameter | None

    _alpha_name = "alpha"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _with_hints(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def _no_such_argument(cls, name: str, known: list[str]) -> str:
        """The message for a keyword argument that the layer does not take."""
        if name == "guard":
            return (
                f"{cls.__name__}() takes no guard: it normalizes each sample by itself, and a guard compares the "
                "samples of a batch; use a norm over the batch, such as guardbn or augbn(guard=3)"
            )
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return f"{cls.__name__}() got an unexpected keyword argument {name!r}; {hint}"

    def _set_options(
        self, options: AugOptions, phi_shape: tuple[int, ...], alpha_shape: tuple[int, ...], factory: dict[str, Any]
    ) -> None:
        if not 0 <= self.eps < math.inf:
            raise ValueError(f"expected eps >= 0 (got {self.eps})")
        self._set_exponent(options["phi"], options["learn_phi"], options["phi_range"], phi_shape, factory)
        self.learn_alpha, self.alpha_start = options["learn_alpha"], float(options["alpha"])
        alpha = Parameter(torch.full(alpha_shape, self.alpha_start, **factory)) if self.learn_alpha else None
        self.register_parameter(self._alpha_name, alpha)
        self.spread, self.spread_phi = options["spread"], robust_exponent(options["spread_phi"], "spread_phi")
        spread_power(self.spread, "spread")  # raises for an unknown kind
        self.spread_floor, self.grad_floor = options["spread_floor"], options["grad_floor"]
        check_floor(self.spread_floor, "spread_floor")
        check_floor(self.grad_floor, "grad_floor", of="spread")
        self.sweeps = options["sweeps"]
        check_sweeps(self.sweeps)
        self.single_element = options["single_element"]
        if self.single_element not in SINGLE_ELEMENT:
            raise ValueError(f"expected single_element to be one of {SINGLE_ELEMENT} (got {self.single_element!r})")

    def _set_exponent(
        self, phi: float, learn: bool, between: tuple[float, float], shape: tuple[int, ...], factory: dict[str, Any]
    ) -> None:
        start = exponent(phi)
        if isinstance(start, Tensor):
            raise TypeError(
                f"expected phi to be a number (got a tensor of shape {tuple(start.shape)}); with learn_phi=True this "
                f"layer learns φ of shape {shape}, each from the same start"
            )
        self.learn_phi, self.phi_start = learn, start
        try:
            low, high = (float(end) for end in between)
        except (TypeError, ValueError):
            raise TypeError(f"expected phi_range to be two numbers, such as (1.2, 3.0) (got {between!r})") from None
        self.phi_range = low, high
        if not learn:
            self.register_parameter("phi_offset", None)
            return
        if not 1 < low < high < math.inf:
            raise ValueError(f"expected 1 < phi_range[0] < phi_range[1] < inf (got {between})")
        if not low < start < high:
            raise ValueError(
                f"expected phi strictly inside phi_range {self.phi_range} to learn it (got {phi}); "
                "move phi or widen phi_range"
            )
        self.phi_offset = Parameter(torch.zeros(shape, **factory))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer. ``torch.fx`` records one node for it, as for torch's own layers."""
        if "weight" in kwargs:
            kwargs["element_weight"] = renamed_weight(kwargs.get("element_weight"), kwargs.pop("weight"))
        if args and isinstance(args[0], Proxy):
            tracer: Any = args[0].tracer
            return tracer.create_proxy("call_module", tracer.path_of_module(self), args, kwargs)
        return super().__call__(*args, **kwargs)

    def __prepare_scriptable__(self) -> NoReturn:
        """The hook that ``torch.jit.script`` calls."""
        raise RuntimeError(
            f"{type(self).__name__} cannot be scripted: its forward is not TorchScript; use "
            "torch.jit.trace(model.eval(), example) or torch.export, or remove the norms first with "
            "geonorm.fuse(model.eval())"
        )

    @property
    def phi(self) -> float | Tensor:
        """The exponent: a number, or the learned values."""
        phi = self._phi()
        return phi.value() if isinstance(phi, LearnedPhi) else phi

    def _phi(self) -> float | LearnedPhi:
        offset = self.phi_offset
        if offset is None:
            return self.phi_start
        low, high = self.phi_range
        return LearnedPhi(offset, low, high, math.log((self.phi_start - low) / (high - self.phi_start)))

    def _alpha(self) -> float | Tensor:
        learned: Tensor | None = getattr(self, self._alpha_name)
        return self.alpha_start if learned is None else learned

    def _normalize(
        self,
        input: Tensor,
        groups: Axes,
        alpha: float | Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        element_weight: Tensor | None,
        running: Running | None = None,
        guard: float | None = None,
        guard_counts: Tensor | None = None,
        whole: Tensor | None = None,
    ) -> Tensor:
        """The functional call of AugNorm's layers, with parameters that broadcast to the input.

        ``whole``: the layer's own input, if this one is a view of it; the output has its shape.
        """
        given = self._phi()
        phi, learned = (given.offset, constants_of(given)) if isinstance(given, LearnedPhi) else (given, None)
        rule = self._rule(guard, learned)
        if element_weight is None and not torch.compiler.is_compiling():
            own, start = self._parameters, given if isinstance(given, float) else 0.0
            values = (
                own.get("phi_offset") if learned else start,
                own.get(self._alpha_name) if self.learn_alpha else self.alpha_start,
                None,
                own.get("weight"),
                own.get("bias"),
            )
            of = Inputs(input, phi, alpha, None, weight, bias, None)
            repeated = self._first(input if whole is None else whole, values, of, groups, rule, running, guard_counts)
            if repeated is not None:
                return repeated
        output, _ = normalize_in_layer(
            input, groups, rule, phi, alpha, None, weight, bias, element_weight, running, guard_counts=guard_counts
        )
        return output if whole is None else output.reshape(whole.shape)

    def _repeat(self, input: Tensor) -> Tensor | None:
        """The output, if this call is like an earlier one; most calls of a training are."""
        if torch.compiler.is_compiling() or type(input) is not Tensor or input.is_nested:
            return None
        known = self.__dict__.get("_known_calls")
        found = None if known is None else known.get(input.shape)
        if found is None:
            return None
        call, own, parameters, buffers = found
        if all(map(is_, self._parameters.values(), parameters)) and all(map(is_, self._buffers.values(), buffers)):
            output: Tensor | None = call.run(input, own) if call.fits(input, own) else None
            return output
        self.__dict__.pop("_known_calls", None)  # parameters or buffers were replaced
        return None

    def _first(
        self,
        input: Tensor,
        values: tuple[float | Tensor | None, ...],
        of: Inputs,
        groups: Axes,
        rule: Rule,
        running: Running | None,
        guard_counts: Tensor | None,
        divisor: float = 1.0,
    ) -> Tensor | None:
        """The output of the first call with an input of this shape, after what further ones share was kept.

        None if such calls cannot be repeated. ``values``: φ, α, shift, γ and β of this layer, see ``repeated_call``.
        """
        known = self.__dict__.setdefault("_known_calls", {})
        if input.shape not in known and self._may_repeat() and may_repeat(of, groups):
            if len(known) == MOST_SHAPES:
                known.clear()
            found = repeated_call(input, values, of, groups, rule, running, guard_counts, divisor)
            tensors = tuple(self._parameters.values()), tuple(self._buffers.values())
            known[input.shape] = None if found is None else (*found, *tensors)
        return self._repeat(input)

    def _may_repeat(self) -> bool:
        """Whether calls do nothing but normalize and update running statistics."""
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.pop("_known_calls", None)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop("_known_calls", None)
        super().__delattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known_calls"}

    def _rule(self, guard: float | None, learned: tuple[float, float, float] | None, *more: bool) -> Rule:
        """The options of this layer, and ``more`` of those of ``make_rule``."""
        return make_rule(
            self.spread,
            self.spread_phi,
            self.spread_floor,
            self.grad_floor,
            self.eps,
            self.sweeps,
            self.learn_phi,
            guard,
            learned,
            *more,
        )

    def _affine_parameters(self, shape: tuple[int, ...], weight: bool, bias: bool, factory: dict[str, Any]) -> None:
        self.register_parameter("weight", Parameter(torch.empty(shape, **factory)) if weight else None)
        self.register_parameter("bias", Parameter(torch.empty(shape, **factory)) if bias else None)

    def reset_parameters(self) -> None:
        """Reset γ to 1, β to 0, and φ and α to their initial values."""
        for name, value in (("weight", 1.0), ("bias", 0.0), ("phi_offset", 0.0), (self._alpha_name, self.alpha_start)):
            parameter = getattr(self, name)
            if parameter is not None:
                nn.init.constant_(parameter, value)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """The state_dict of the corresponding torch layer has no φ and no α: those keep their current values."""
        for name in ("phi_offset", self._alpha_name):
            parameter = getattr(self, name)
            if parameter is not None and prefix + name not in state_dict:
                state_dict[prefix + name] = parameter.detach().clone()
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _describe(self) -> str:
        """The options that differ from plain normalization, for ``extra_repr``."""
        parts = [f"phi={self.phi_start:g}"]
        if self.learn_phi:
            parts.append(f"learn_phi=True, phi_range={self.phi_range}")
        if self.alpha_start != 1 or self.learn_alpha:
            parts.append(f"alpha={self.alpha_start:g}, learn_alpha={self.learn_alpha}")
        parts.append(f"spread={self.spread!r}" if isinstance(self.spread, str) else f"spread={self.spread:g}")
        if self.spread == "robust":
            parts.append(f"spread_phi={self.spread_phi:g}, spread_floor={self.spread_floor:g}")
        if self.grad_floor:
            parts.append(f"grad_floor={self.grad_floor:g}")
        if self.sweeps is not None:
            parts.append(f"sweeps={self.sweeps}")
        if self.single_element != "error":
            parts.append(f"single_element={self.single_element!r}")
        return ", ".join(parts)


def _with_hints(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that suggests the closest argument when it is given an unknown one."""
    parameters = list(inspect.signature(init).parameters.values())[1:]
    known = [parameter.name for parameter in parameters]
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    @functools.wraps(init)
    def checked_init(self: NormLayer, *args: Any, **kwargs: Any) -> None:
        unknown = [] if takes_all else [name for name in kwargs if name not in known]
        if unknown:
            raise TypeError(self._no_such_argument(unknown[0], known))
        init(self, *args, **kwargs)

    return checked_init


def check_batch_input(layer: Any, input: Tensor) -> None:
    """Torch's errors for an input of the wrong rank or channel count, with how to fix it."""
    takes_features = layer.axes == "batch" and layer.spatial_dims == 1  # (N, C) as well as (N, C, L)
    if input.dim() != layer.spatial_dims + 2 and not (takes_features and input.dim() == 2):
        wanted = "2D or 3D" if takes_features else f"{layer.spatial_dims + 2}D"
        raise ValueError(
            f"expected {wanted} input (got {input.dim()}D input); "
            "the 1d layers take (N, C, L), 2d (N, C, H, W), 3d (N, C, D, H, W)"
        )
    if input.shape[1] != layer.num_features:
        raise RuntimeError(
            f"expected {layer.num_features} channels in dimension 1 (got input of shape {tuple(input.shape)}); "
            f"construct {type(layer).__name__}({input.shape[1]}) or move the channels to dimension 1"
        )


def check_no_running_statistics(layer: NormLayer) -> None:
    """Raise if a layer without running statistics is told to use them."""
    if layer.single_element == "running":
        raise ValueError(
            f"expected single_element='error' or 'identity' for {type(layer).__name__} (got 'running'): it has no "
            "running statistics"
        )


def mask_or_weight(mask: Tensor | None, element_weight: Tensor | None) -> Tensor | None:
    """The one of the two that was given."""
    if mask is not None and element_weight is not None:
        raise ValueError("expected mask or element_weight, not both; multiply them: element_weight=mask * weight")
    return element_weight if mask is None else mask


Parameterlike = TypeVar("Parameterlike", Tensor, float | Tensor, Tensor | None)


def along_channels(parameter: Parameterlike, x: Tensor) -> Parameterlike:
    """A parameter per channel in the shape that broadcasts to (N, C, *); anything else unchanged."""
    if not isinstance(parameter, Tensor) or (x.dim() == 2 and parameter.dim() == 1):
        return parameter
    return parameter.reshape(1, -1, *[1] * (x.dim() - 2))


def pass_through(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """The affine part alone, for a batch without values and for ``single_element="identity"``."""
    y = x if weight is None else x * weight.to(x.dtype)
    y = y if bias is None else y + bias.to(x.dtype)
    return y.clone() if y is x else y
