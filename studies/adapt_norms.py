"""Two norms by other authors for test-time adaptation, from their published formulas; they replace BatchNorm2d."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class MedBN(nn.Module):
    """The median instead of the mean (Park et al., MedBN, 2024).

        μ_c = median over batch and positions of x_c          σ²_c = mean of (x_c − μ_c)²

    In training mode it normalizes with those of the batch and keeps their averages over batches; in evaluation it
    normalizes with the averages.

    Args:
        norm: the layer whose γ and β it uses.

    Examples:
        >>> import torch
        >>> from studies.adapt_norms import MedBN
        >>> layer = MedBN(torch.nn.BatchNorm2d(1))
        >>> _ = layer(torch.tensor([0.0, 1.0, 5.0]).view(3, 1, 1, 1))
        >>> layer.center, layer.variance.round(decimals=2)
        (tensor([1.]), tensor([5.6700]))
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.batches = 0
        self.center, self.variance = (torch.zeros(norm.num_features) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """The normalized batch."""
        center, variance = self.center, self.variance
        if self.training:
            channels = x.transpose(0, 1).flatten(1)
            center = channels.median(1).values
            variance = (channels - center[:, None]).square().mean(1)
            self.batches += 1
            self.center = self.center + (center - self.center) / self.batches
            self.variance = self.variance + (variance - self.variance) / self.batches
        return _affine(x, center[None, :], variance[None, :], self)


class IABN(nn.Module):
    """Instance-aware batch normalization (Gong et al., NOTE, 2022).

        μ = μ̂ + ψ(μ̃ − μ̂; k·s_μ)        s_μ = √(σ̂²/L)             ψ(a; λ) = sign(a)·max(|a| − λ, 0)
        σ² = σ̂² + ψ(σ̃² − σ̂²; k·s_σ)    s_σ = σ̂²·√(2/(L − 1))

    with the running statistics μ̂ and σ̂², those of one instance and channel μ̃ and σ̃², and L positions: only differences
    beyond chance are corrected.

    Args:
        norm: the layer whose γ, β and running statistics it uses.
        k: how many standard errors count as chance.

    Examples:
        >>> import torch
        >>> from studies.adapt_norms import IABN
        >>> norm = torch.nn.BatchNorm2d(1).eval()
        >>> x = torch.randn(4, 1, 8, 8)
        >>> torch.allclose(IABN(norm, k=100)(x), norm(x))
        True
    """

    def __init__(self, norm: nn.BatchNorm2d, k: float = 4.0) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.k = norm.weight, norm.bias, norm.eps, k
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.center, self.variance = norm.running_mean.clone(), norm.running_var.clone()

    def forward(self, x: Tensor) -> Tensor:
        """The normalized batch, each instance separately."""
        positions = x[0, 0].numel()
        own = x.flatten(2)
        chance = math.sqrt(2 / (positions - 1)) if positions > 1 else math.inf
        center = self.center + _shrunk(own.mean(2) - self.center, self.k * (self.variance / positions).sqrt())
        variance = own.var(2, correction=0)
        variance = self.variance + _shrunk(variance - self.variance, self.k * chance * self.variance)
        return _affine(x, center, variance, self)


def replace_norms(model: nn.Module, make: Callable[[nn.BatchNorm2d], nn.Module]) -> int:
    """Replace every BatchNorm2d of a model, in place; returns their number."""
    found = [(parent, name) for parent in model.modules() for name, child in parent.named_children() if _is_norm(child)]
    for parent, name in found:
        old = getattr(parent, name)
        setattr(parent, name, make(old).train(old.training))
    return len(found)


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.BatchNorm2d)


def _shrunk(value: Tensor, by: Tensor) -> Tensor:
    return value.sign() * (value.abs() - by).clamp_min(0)


def _affine(x: Tensor, center: Tensor, variance: Tensor, layer: MedBN | IABN) -> Tensor:
    """γ (x − μ)/√(σ² + ε) + β, with statistics per instance and channel, or one row for all instances."""
    factor = layer.weight * (variance + layer.eps).rsqrt()
    return x * factor[..., None, None] + (layer.bias - center * factor)[..., None, None]
