"""Normalizations of weights as parametrizations: standardization and centered weight normalization."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

Module = TypeVar("Module", bound=nn.Module)


class _RowNorm(nn.Module):
    """Projects the rows of a weight (all but dimension 0) onto a sphere around 0, orthogonal to constants."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Assigning a weight stores it unchanged: any weight is valid input of the parametrization."""
        return weight

    def extra_repr(self) -> str:
        """The argument."""
        return f"eps={self.eps}"


class WeightStandardization(_RowNorm):
    """Rows of mean 0 and variance 1.

        W′ = (W − mean W) / √(var W + eps)        per row, over the n values behind one output

    A parametrization; see ``weight_standardization``.

    Args:
        eps: added to the variance.

    Shape:
        - Input and output: ``(out, *)``.

    Examples:
        >>> import torch
        >>> from geonorm.nn import WeightStandardization
        >>> WeightStandardization(eps=0.0)(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.,  1.]])
    """

    def forward(self, weight: Tensor) -> Tensor:
        """The standardized weight."""
        rows = weight.flatten(1)
        centered = rows - rows.mean(1, keepdim=True)
        return (centered * (centered.square().mean(1, keepdim=True) + self.eps).rsqrt()).view_as(weight)


class CenteredWeightNorm(_RowNorm):
    """Rows of mean 0 and length 1.

        W′ = (W − mean W) / √(‖W − mean W‖² + eps)        per row

    The standardized weight divided by √n. A parametrization; see ``centered_weight_norm``.

    Args:
        eps: added to the squared length.

    Shape:
        - Input and output: ``(out, *)``.

    Examples:
        >>> import torch
        >>> from geonorm.nn import CenteredWeightNorm
        >>> CenteredWeightNorm(eps=0.0)(torch.tensor([[1.0, 3.0]]))
        tensor([[-0.7071,  0.7071]])
    """

    def forward(self, weight: Tensor) -> Tensor:
        """The normalized weight."""
        rows = weight.flatten(1)
        centered = rows - rows.mean(1, keepdim=True)
        return (centered * (centered.square().sum(1, keepdim=True) + self.eps).rsqrt()).view_as(weight)


def weight_standardization(module: Module, name: str = "weight", eps: float = 1e-5) -> Module:
    """Standardize the rows of a module's weight wherever it is used. Undo with ``parametrize.remove_parametrizations``.

        W′ = (W − mean W) / √(var W + eps)

    Args:
        module: a module with a weight of at least two dimensions, such as Linear or Conv2d.
        name: name of the weight.
        eps: added to the variance.

    Shape:
        - the weight: ``(out, *)``.

    Examples:
        >>> import torch
        >>> from geonorm.nn import weight_standardization
        >>> layer = weight_standardization(torch.nn.Linear(16, 4))
        >>> bool(layer.weight.mean(1).abs().max() < 1e-5)
        True
    """
    return _parametrize(module, name, WeightStandardization(eps))


def centered_weight_norm(module: Module, name: str = "weight", eps: float = 1e-5) -> Module:
    """Center the rows of a module's weight and give them length 1. Undo with ``parametrize.remove_parametrizations``.

        W′ = (W − mean W) / √(‖W − mean W‖² + eps)

    Args:
        module: a module with a weight of at least two dimensions, such as Linear or Conv2d.
        name: name of the weight.
        eps: added to the squared length.

    Shape:
        - the weight: ``(out, *)``.

    Examples:
        >>> import torch
        >>> from geonorm.nn import centered_weight_norm
        >>> layer = centered_weight_norm(torch.nn.Linear(16, 4), eps=0.0)
        >>> torch.allclose(layer.weight.norm(dim=1), torch.ones(4))
        True
    """
    return _parametrize(module, name, CenteredWeightNorm(eps))


def _parametrize(module: Module, name: str, parametrization: nn.Module) -> Module:
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor) or weight.dim() < 2:
        found = tuple(weight.shape) if isinstance(weight, torch.Tensor) else type(weight).__name__
        raise ValueError(
            f"expected {type(module).__name__}.{name} to be a weight of at least two dimensions (got {found}); "
            "weight normalizations are for Linear and Conv layers"
        )
    parametrize.register_parametrization(module, name, parametrization)
    return module
