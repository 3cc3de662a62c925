"""AugNorm over the nodes of each graph: in the place of PyTorch Geometric's GraphNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..functional._aug import aug_parts
from ._base import AugOptions, NormLayer, element_weight, no_running_statistics, pass_through


class AugGraphNorm(NormLayer):
    """Graph normalization around the L^φ center, in the place of ``torch_geometric.nn.GraphNorm``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over the nodes of each graph, per feature; c is ``geonorm.functional.segment_center``, s is
    ``geonorm.functional.segment_spread``. α is learned by default and stored as ``mean_scale``: GraphNorm's state_dict
    loads, and at φ=2 the layer equals it. PyTorch Geometric is not needed.

    Args:
        in_channels: number of features.
        eps: added to the squared spread.
        device, dtype: of the parameters.
        options: φ, α, spread and the rest, see ``geonorm.nn.AugOptions``; ``learn_alpha`` is ``True`` by default
            here. φ and α are learned per feature.

    Shape:
        - x and output: ``(nodes, in_channels)``; batch: ``(nodes,)``, the graph of each node.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugGraphNorm(4)
        >>> layer(torch.randn(5, 4), torch.tensor([0, 0, 1, 1, 1])).shape
        torch.Size([5, 4])
    """

    _alpha_name = "mean_scale"

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[AugOptions],
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_channels, self.eps = in_channels, eps
        with_alpha: AugOptions = {"learn_alpha": True, **options}
        self._set_options(with_alpha, (in_channels,), (in_channels,), factory)
        no_running_statistics(self)
        self._affine_parameters((in_channels,), True, True, factory)
        self.reset_parameters()

    def forward(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        mask: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Normalize ``x``; without ``batch`` all nodes are one graph. ``mask`` or ``weight`` as in the other layers."""
        if x.dim() != 2 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"expected x of shape (nodes, {self.in_channels}) (got {tuple(x.shape)}); "
                f"construct {type(self).__name__}({x.shape[-1] if x.dim() else 1})"
            )
        if not x.numel():
            return pass_through(x, self.weight, self.bias)
        if batch is None:
            batch, batch_size = torch.zeros(len(x), dtype=torch.int64, device=x.device), 1
        return aug_parts(
            x,
            None,
            self._phi(),
            alpha=self._alpha(),
            weight=self.weight,
            bias=self.bias,
            element_weight=element_weight(mask, weight),
            batch=batch,
            batch_size=batch_size,
            measured=False,
            empty_ok=True,
            **self._function_options(),
        )[0]

    def extra_repr(self) -> str:
        """PyTorch Geometric's argument, then ours."""
        return f"{self.in_channels}, eps={self.eps}, {self._describe()}"
