"""AugNorm over the nodes of each graph: replaces PyTorch Geometric's GraphNorm."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ..functional._aug import aug_norm_impl
from ..ops import LearnedPhi
from ..ops.learned import constants_of
from ._base import AugOptions, NormLayer, check_no_running_statistics, mask_or_weight, pass_through


class AugGraphNorm(NormLayer):
    """Graph normalization around the L^φ center, a replacement for ``torch_geometric.nn.GraphNorm``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over the nodes of each graph, per feature; c is ``geonorm.functional.segment_center``, s is
    ``geonorm.functional.segment_spread``. α is learned by default and stored as ``mean_scale``: GraphNorm's state_dict
    loads, and at φ=2 the layer equals it. PyTorch Geometric is not needed.

    Args:
        in_channels: number of features.
        eps: added to the squared spread.
        device, dtype: of the parameters.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one per feature, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per feature, from ``alpha``; on by default, as in GraphNorm.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: has no effect: a graph of one node is normalized like any other, as in GraphNorm.

    Shape:
        - x and output: ``(nodes, in_channels)``; batch: ``(nodes,)``, the graph of each node.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugGraphNorm(4)
        >>> layer(torch.randn(5, 4), torch.tensor([0, 0, 1, 1, 1])).shape
        torch.Size([5, 4])
    """

    axes = "graph"
    twin = "torch_geometric.nn.norm.graph_norm.GraphNorm"
    sizes = ("in_channels",)
    shared_arguments = ("eps",)

    _alpha_name = "mean_scale"

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        phi: float = 1.5,
        learn_phi: bool = False,
        phi_range: tuple[float, float] = (1.2, 3.0),
        alpha: float = 1.0,
        learn_alpha: bool = True,
        spread: Literal["rms", "mean_abs", "max_abs", "robust"] | float = "rms",
        spread_phi: float = 1.5,
        spread_floor: float = 0.05,
        grad_floor: float = 0.0,
        sweeps: int | None = None,
        single_element: Literal["error", "identity"] = "error",
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_channels, self.eps = in_channels, eps
        options = AugOptions(
            phi=phi,
            learn_phi=learn_phi,
            phi_range=phi_range,
            alpha=alpha,
            learn_alpha=learn_alpha,
            spread=spread,
            spread_phi=spread_phi,
            spread_floor=spread_floor,
            grad_floor=grad_floor,
            sweeps=sweeps,
            single_element=single_element,
        )
        self._set_options(options, (in_channels,), (in_channels,), factory)
        check_no_running_statistics(self)
        self._affine_parameters((in_channels,), True, True, factory)
        self.reset_parameters()

    def forward(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        mask: Tensor | None = None,
        element_weight: Tensor | None = None,
    ) -> Tensor:
        """Normalize ``x``; without ``batch`` all are one graph. ``mask`` and ``element_weight`` as in other layers."""
        if x.dim() != 2 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"expected x of shape (nodes, {self.in_channels}) (got {tuple(x.shape)}); "
                f"construct {type(self).__name__}({x.shape[-1] if x.dim() else 1})"
            )
        if not x.numel():
            return pass_through(x, self.weight, self.bias)
        if batch is None:
            batch, batch_size = torch.zeros(len(x), dtype=torch.int64, device=x.device), 1
        given = self._phi()
        phi, learned = (given.offset, constants_of(given)) if isinstance(given, LearnedPhi) else (given, None)
        return aug_norm_impl(
            x,
            None,
            phi,
            self._alpha(),
            self.weight,
            self.bias,
            self._rule(None, learned),
            mask_or_weight(mask, element_weight),
            batch,
            batch_size,
            measured=False,
            empty_ok=True,
        )[0]

    def extra_repr(self) -> str:
        """PyTorch Geometric's argument, then ours."""
        return f"{self.in_channels}, eps={self.eps}, {self._describe()}"
