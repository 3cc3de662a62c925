"""sync and unsync: who gets a process group, who is left, and who is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import geonorm


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3), geonorm.AugBatchNorm2d(4, phi=1.5), nn.ReLU(),
        geonorm.PopNorm2d(4), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), geonorm.AugInstanceNorm2d(4),
    )  # fmt: skip


def test_what_changes_and_what_is_left() -> None:
    net = model()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    report = geonorm.sync(net)
    assert [change.name for change in report.changed] == ["1", "4", "6"]
    assert [left.name for left in report.left] == ["8", "9"]
    assert isinstance(net[1], geonorm.AugBatchNorm2d)
    assert net[1].phi == 2
    assert [getattr(net[i], "process_group", None) for i in (1, 4, 6, 8, 9)] == ["world"] * 3 + [None] * 2
    for name, value in state.items():
        assert torch.equal(net.state_dict()[name], value)


def test_evaluation_stays_the_same() -> None:
    net, x = model().eval(), torch.randn(2, 3, 9, 9)
    expected = net(x)
    geonorm.sync(net)
    torch.testing.assert_close(net(x), expected)


def test_again_changes_the_group_only() -> None:
    net = model()
    geonorm.sync(net)
    layers = list(net)
    report = geonorm.sync(net, "other")
    assert list(net) == layers
    assert len(report.changed) == 3
    assert net[1].process_group == "other"


def test_where() -> None:
    net = model()
    geonorm.sync(net, where="4")
    assert isinstance(net[1], nn.BatchNorm2d)
    assert (net[4].process_group, net[6].process_group) == ("world", None)


def test_unsync() -> None:
    net = model()
    geonorm.sync(net)
    report = geonorm.unsync(net, where="4")
    assert [change.name for change in report.changed] == ["4"]
    assert (net[4].process_group, net[6].process_group) == (None, "world")
    geonorm.unsync(net)
    assert net.train()(torch.randn(2, 3, 9, 9)).isfinite().all()
    assert not geonorm.unsync(net).changed


class Mine(nn.BatchNorm2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


class Other(_BatchNorm):
    def _check_input_dim(self, input: torch.Tensor) -> None:
        pass


class StrangeNorm(nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input - input.mean(0)


@pytest.mark.parametrize(
    "stranger",
    [Mine(4), Other(4), StrangeNorm(), nn.SyncBatchNorm(4), nn.LazyBatchNorm2d()],
    ids=lambda m: type(m).__name__,
)
def test_unknown_norms_raise_and_nothing_changes(stranger: nn.Module) -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), stranger)
    before = list(net)
    with pytest.raises(ValueError, match=f"{type(stranger).__name__} at 2.*nothing was changed"):
        geonorm.sync(net)
    assert list(net) == before
    geonorm.sync(net, where="0")
    assert net[2] is stranger


class Ours(geonorm.AugBatchNorm2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return input - input.mean(0)


def test_our_own_layer_with_another_forward_raises() -> None:
    with pytest.raises(ValueError, match="forward of its own"):
        geonorm.sync(nn.Sequential(Ours(4)))


def test_parameters_that_are_computed_raise() -> None:
    from torch.nn.utils import parametrize, prune

    pruned, parametrized = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)) for _ in range(2))
    prune.l1_unstructured(pruned[1], "weight", amount=0.5)
    parametrize.register_parametrization(parametrized[1], "weight", nn.Identity())
    for net in (pruned, parametrized):
        before = list(net)
        with pytest.raises(ValueError, match="make that permanent"):
            geonorm.sync(net)
        assert list(net) == before


def test_subclasses_that_only_add_a_name_are_converted() -> None:
    class Named(nn.BatchNorm2d):
        pass

    net = nn.Sequential(Named(4))
    geonorm.sync(net)
    assert net[0].process_group == "world"


@pytest.mark.parametrize("spec", ["wn", "sn", "cwn", "ws"])
def test_norms_of_weights_are_no_matter_of_the_batch(spec: str) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    geonorm.convert(net, spec, where="1")
    for verb in (geonorm.sync, geonorm.freeze):
        report = verb(net)
        assert [change.name for change in report.changed] == ["3"]
        assert not report.left


def test_norms_within_a_sample_are_left() -> None:
    net = nn.Sequential(nn.RMSNorm(4), nn.LayerNorm(4), geonorm.PopGroupNorm(2, 4), geonorm.PopInstanceNorm2d(4))
    report = geonorm.sync(net)
    assert not report.changed
    assert len(report.left) == 4


def test_a_model_that_is_a_norm() -> None:
    layer = geonorm.AugBatchNorm1d(4)
    geonorm.sync(layer)
    assert layer.process_group == "world"
    with pytest.raises(ValueError, match=r"nn\.Sequential"):
        geonorm.sync(nn.BatchNorm1d(4))


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        geonorm.sync("model")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ProcessGroup"):
        geonorm.sync(model(), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="matches no module"):
        geonorm.sync(model(), where="nowhere")


def test_shared_layers_stay_shared() -> None:
    norm = nn.BatchNorm1d(4)
    net = nn.Sequential(norm, nn.Linear(4, 4), norm)
    geonorm.sync(net)
    assert net[0] is net[2]
    assert net[0].process_group == "world"


def test_convert_keeps_the_group() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    geonorm.sync(net)
    report = geonorm.convert(net, "augbn(phi=1.5)")
    assert net[1].process_group == net[4].process_group == "world"
    assert not report.notes
    geonorm.convert(net, "pop")
    assert net[3].pre_norm.process_group == "world"
    report = geonorm.convert(net, "auggroup(groups=2)")
    assert any("process group" in note for note in report.notes)


def test_revert_says_what_is_lost() -> None:
    net = nn.Sequential(nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    geonorm.sync(net)
    report = geonorm.revert(net)
    assert "process_group='world'" in report.changed[0].note
    assert type(net[0]) is nn.BatchNorm1d
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())


def test_verbs_that_measure_ask_nobody() -> None:
    """There is no group in this process: a layer that asked for one would raise."""
    net = nn.Sequential(nn.Linear(3, 4), geonorm.AugBatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    geonorm.sync(net)
    alone = copy.deepcopy(net)
    geonorm.unsync(alone)
    batches = [torch.randn(8, 3) for _ in range(3)]
    geonorm.recalibrate(net, batches)
    geonorm.recalibrate(alone, batches)
    assert net[1].process_group == net[3].process_group == "world"
    torch.testing.assert_close(net[1].running_center, alone[1].running_center)
    geonorm.freeze(net)
    net.train()(batches[0])
    geonorm.unfreeze(net)
    assert net[1].process_group == "world"
    geonorm.fuse(net.eval())
    net(batches[0])
