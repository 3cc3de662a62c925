"""Findings must be about the axes that a norm works on, the mode it is in, and the batches that are typical."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import batch_width, diagnose, sphere


def kinds(model: nn.Module, batches: object) -> set[str]:
    return {finding.kind for finding in diagnose(model, batches).findings}


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
        assert "redundant bias" in kinds(model, x)
        assert sphere(model, x).layers[0].effective is not None


def test_an_error_of_a_reading_is_not_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("not the model")

    monkeypatch.setattr("geonorm.analysis.watch.effective_weights", broken)
    model, x = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), torch.randn(32, 5)
    found = diagnose(model, x)
    assert "does not run" not in {finding.kind for finding in found.findings}
    assert "not the model" in found.sphere.skipped["1"]


class TestNormAfterNorm:
    def test_a_transformer_with_a_last_norm_is_healthy(self) -> None:
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        assert "norm after norm" not in kinds(model, torch.randn(32, 5, 16))

    @pytest.mark.parametrize("norm", [nn.LayerNorm([8, 6, 6]), nn.GroupNorm(2, 8)], ids=["layer", "group"])
    def test_groups_keep_what_sets_channels_apart(self, norm: nn.Module) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), type(norm)(*norm_arguments(norm)), norm)
        assert "norm after norm" not in kinds(model, torch.randn(16, 3, 6, 6))

    def test_batch_norms_do_not(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8))
        assert "norm after norm" in kinds(model, torch.randn(16, 3, 6, 6))


def norm_arguments(norm: nn.Module) -> tuple[object, ...]:
    return (norm.normalized_shape,) if isinstance(norm, nn.LayerNorm) else (norm.num_groups, norm.num_channels)


@pytest.mark.parametrize("how", ["frozen", "evaluation"])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_norms_that_do_not_measure_the_batch_need_none(how: str, size: int) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7))
    assert kinds(model, torch.randn(size, 5)) & {"single value", "two values", "small batch"}
    if how == "frozen":
        geonorm.freeze(model)
        model.train()
    else:
        model.eval()
    assert not kinds(model, torch.randn(size, 5)) & {"single value", "two values", "small batch"}


@pytest.mark.parametrize(
    ("norm", "found"),
    [(nn.BatchNorm1d(8), True), (nn.LayerNorm(8), False), (nn.RMSNorm(8), False), (nn.GroupNorm(2, 8), False)],
    ids=["batch", "layer", "rms", "group"],
)
def test_parallel_rows_are_duplicates_only_where_their_size_is_removed(norm: nn.Module, found: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), norm)
    with torch.no_grad():
        model[0].weight[3] = 2 * model[0].weight[1]
    assert ("duplicate channels" in kinds(model, torch.randn(32, 6))) == found


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv(x))


def test_dead_channels_of_1d_convolutions_behind_a_sum() -> None:
    torch.manual_seed(0)
    model = Residual()
    with torch.no_grad():
        model.conv.bias[2] = -100
    (finding,) = [f for f in diagnose(model, torch.randn(32, 6, 10)).findings if f.kind == "dead channels"]
    assert finding.channels == [2]


@pytest.mark.parametrize("last", [1, 3])
def test_a_short_last_batch_is_not_typical(last: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7))
    batches = [torch.randn(64, 5), torch.randn(64, 5), torch.randn(last, 5)]
    found = diagnose(model, batches)
    assert found.alarms() == []
    assert found.missing == {}
    (layer,) = found.sphere.layers
    assert layer.dimension == 64
    assert found.batch_width.layers[0].values == 64


def test_a_list_of_input_and_class_numbers_is_one_batch() -> None:
    model, x = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), torch.randn(32, 5)
    assert diagnose(model, [x, torch.arange(32)]).samples == 32
    assert diagnose(model, [x, x]).samples == 64


def test_it_runs_in_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2))
    with torch.inference_mode():
        found = diagnose(model, torch.randn(32, 5))
    assert found.missing == {}
    assert found.activation_effect.operations[1].division is not None
