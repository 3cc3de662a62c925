"""Findings about where norms stand: after another norm, over the wrong axis, never run, run twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import batch_width, diagnose, sphere
from helpers.findings import severity_by_kind


def test_a_layer_that_never_runs_and_one_that_runs_twice() -> None:
    class Twice(nn.Module):
        def __init__(self, activation: nn.Module) -> None:
            super().__init__()
            self.norm, self.spare = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
            self.activation = activation

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.activation(self.norm(x)))

    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    # After tanh: mean 0 and σ 0.63, 0.37 apart. After ReLU: mean 0.40 and σ 0.58, 0.58 apart.
    assert severity_by_kind(Twice(nn.Tanh()), x) == {"never ran": "note", "shared norm": "note"}
    assert severity_by_kind(Twice(nn.ReLU()), x) == {"never ran": "note", "shared norm": "warning"}
    assert severity_by_kind(Twice(nn.Tanh()), 3 * x + 2) == {"never ran": "note", "shared norm": "warning"}


def test_what_stands_between_two_norms_counts() -> None:
    """Something in place between them is something; a container or an Identity is nothing."""

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Sequential(nn.BatchNorm1d(8)), nn.BatchNorm1d(8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y += x.tanh()
            return self.second(y)

    x = torch.randn(64, 8)
    assert severity_by_kind(InPlace(), x) == {}
    assert severity_by_kind(nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.BatchNorm1d(8)), x) == {}
    inside = nn.Sequential(nn.Sequential(nn.BatchNorm1d(8)), nn.Identity(), nn.Dropout(0.5), nn.BatchNorm1d(8))
    assert severity_by_kind(inside, x) == {"norm after norm": "warning", "variance shift": "note"}


class TestLines:
    """Linear → BatchNorm1d on (N, L, C): the norm's channels are the L places."""

    @pytest.mark.parametrize("places", [10, 7], ids=["other", "equal"])
    def test_linear_and_norm_are_no_pair(self, places: int) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(places), nn.Flatten(), nn.Linear(7 * places, 3))
        x = torch.randn(16, places, 5)
        found = diagnose(model, x)
        assert {finding.kind for finding in found.findings} == {"wrong axis"}
        (layer,) = sphere(model, x).layers
        assert layer.effective is None
        assert batch_width(model, x).layers[0].norm is None

    def test_two_dimensions_are_a_pair(self) -> None:
        model, x = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), torch.randn(32, 5)
        assert "redundant bias" in severity_by_kind(model, x)
        assert sphere(model, x).layers[0].effective is not None


class TestNormAfterNorm:
    def test_a_transformer_with_a_last_norm_is_healthy(self) -> None:
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        assert "norm after norm" not in severity_by_kind(model, torch.randn(32, 5, 16))

    @pytest.mark.parametrize("norm", [nn.LayerNorm([8, 6, 6]), nn.GroupNorm(2, 8)], ids=["layer", "group"])
    def test_groups_keep_what_sets_channels_apart(self, norm: nn.Module) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), type(norm)(*norm_arguments(norm)), norm)
        assert "norm after norm" not in severity_by_kind(model, torch.randn(16, 3, 6, 6))

    def test_batch_norms_do_not(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8))
        assert "norm after norm" in severity_by_kind(model, torch.randn(16, 3, 6, 6))


def norm_arguments(norm: nn.Module) -> tuple[object, ...]:
    return (norm.normalized_shape,) if isinstance(norm, nn.LayerNorm) else (norm.num_groups, norm.num_channels)
