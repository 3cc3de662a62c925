"""Removal of channels for good, by torch-pruning."""

from __future__ import annotations

import builtins

import pytest
import torch
from torch import nn

from geonorm.analysis import Drop, remove_channels
from geonorm.analysis.pruning.channels import masked
from helpers.float64_classifier import seeded_randn64
from helpers.prunable_net import prunable_net


class TestRemoval:
    @pytest.fixture(autouse=True)
    def _torch_pruning(self) -> None:
        pytest.importorskip("torch_pruning", reason="pip install geonorm[prune]")

    def conv_net(self) -> nn.Sequential:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3, bias=False), nn.BatchNorm2d(6),
            nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 3),
        ).double()  # fmt: skip
        for norm in (model[1], model[4]):
            norm.bias.data = torch.randn(norm.num_features).double()
        model(seeded_randn64(16, 2, 8, 8))
        return model.eval()

    def test_the_smaller_model_gives_what_the_masked_one_gave(self) -> None:
        """Channels that become 0, and ones that go into others; the second norm is read through a Flatten."""
        model, x = self.conv_net(), seeded_randn64(4, 2, 8, 8, seed=3)
        drops = [Drop("1", 2), Drop("1", 7), Drop("1", 0, 4), Drop("4", 1, 3), Drop("4", 5)]
        with masked(model, drops), torch.no_grad():
            expected = model(x)
        model.train()
        model[1].eval()
        report = remove_channels(model, drops, x[:1])
        assert not report.left, report
        assert [module.training for module in model] == [True, False, True, True, True, True, True, True]
        assert (model[0].out_channels, model[3].out_channels, model[7].in_features) == (5, 4, 64)
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(x), expected)
        assert "5 channels" in str(report)

    def test_dense_layers(self) -> None:
        model, x = prunable_net().eval(), seeded_randn64(4, 6)
        drops = [Drop("1", 2), Drop("4", 0, 4)]
        with masked(model, drops), torch.no_grad():
            expected = model(x)
        assert not remove_channels(model, drops, x[:2]).left
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected)

    def test_residual_channels_and_our_norms_are_left_with_the_reason(self) -> None:
        from geonorm.lab.models import CifarResNet

        model, x = CifarResNet(1, width=4).eval(), torch.randn(2, 3, 16, 16)
        drops = [Drop("blocks.0.norm1", 1), Drop("blocks.0.norm2", 2)]
        with masked(model, drops[:1]), torch.no_grad():
            expected = model(x)
        report = remove_channels(model, drops, x)
        assert [change.name for change in report.changed] == ["blocks.0.norm1"]
        assert [left.name for left in report.left] == ["blocks.0.norm2"]
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        ours = prunable_net(norm="augbn(phi=1.5)")
        assert "revert" in remove_channels(ours, [Drop("1", 0)], seeded_randn64(2, 6)).left[0].reason

    def test_a_name_that_is_no_norm_changes_nothing(self) -> None:
        model = prunable_net().train()
        with pytest.raises(ValueError, match="name of a batch norm"):
            remove_channels(model, [Drop("1", 0), Drop("0", 0)], seeded_randn64(2, 6))
        assert model[1].num_features == 8
        assert all(module.training for module in model.modules())


def test_without_torch_pruning_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest):
        if name == "torch_pruning":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"geonorm\[prune\]"):
        remove_channels(prunable_net(), [Drop("1", 0)], seeded_randn64(2, 6))
