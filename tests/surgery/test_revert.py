"""`revert`, and what may be done with a model after `convert`."""

import copy
import pickle

import pytest
import torch
from torch import nn

import geonorm
from helpers.model_states import conv_net, copy_state, eval_outputs, has_state
from helpers.third_party_models import THIRD_PARTY_MODELS, ThirdPartyModel, briefly_trained


class TestRevert:
    @pytest.mark.parametrize(
        ("case", "spec"),
        [
            *[(case, "aug(phi=1.5)") for case in THIRD_PARTY_MODELS],
            *[pytest.param(case, "none", marks=pytest.mark.slow) for case in THIRD_PARTY_MODELS],
            *[
                pytest.param(case, spec, marks=pytest.mark.slow)
                for case in THIRD_PARTY_MODELS[:3]
                for spec in ("pop", "ws")
            ],
            *[
                (THIRD_PARTY_MODELS[-1], spec)
                for spec in ("aug(phi=2, spread=mean_abs)", "pop", "wn", "sn", "popgroup", "cwn")
            ],
        ],
        ids=lambda value: value.name if isinstance(value, ThirdPartyModel) else value,
    )
    def test_right_after_convert_bit_for_bit(self, case: ThirdPartyModel, spec: str) -> None:
        model, inputs = briefly_trained(case), case.inputs()
        before, kinds = copy_state(model), [type(module) for module in model.modules()]
        expected = eval_outputs(model, inputs)
        geonorm.convert(model, spec)
        eval_outputs(model, inputs)
        geonorm.revert(model)
        assert [type(module) for module in model.modules()] == kinds
        assert has_state(model, before)
        assert torch.equal(eval_outputs(model, inputs), expected)

    @pytest.mark.parametrize(
        "spec",
        ["augbn(phi=1.5)", "diffphi", "augbn(phi=1.5, alpha=0.5, learn_alpha=true)", "robustbn", "l1bn", "rangebn"],
    )
    def test_after_training_the_same_evaluation(self, spec: str) -> None:
        torch.manual_seed(1)
        model, x = conv_net(), torch.randn(8, 3, 10, 10)
        geonorm.convert(model, spec)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(3):
            optimizer.zero_grad()
            model(x + torch.randn_like(x)).square().mean().backward()
            optimizer.step()
        weight = model[1].weight
        expected = eval_outputs(model, (x,))
        report = geonorm.revert(model)
        assert type(model[1]) is nn.BatchNorm2d
        assert model[1].weight is weight
        assert model[1].num_batches_tracked == 3
        assert all("no twin" in change.note for change in report.changed)
        torch.testing.assert_close(eval_outputs(model, (x,)), expected, rtol=1e-5, atol=1e-5)

    def test_of_layers_that_were_built(self) -> None:
        model = nn.Sequential(
            geonorm.AugBatchNorm2d(4, phi=2.0),
            geonorm.AugGroupNorm(2, 4),
            geonorm.PopNorm2d(4),
            geonorm.AugLayerNorm(5),
        ).eval()
        x = torch.randn(2, 4, 5, 5)
        expected = model[0](x)
        report = geonorm.revert(model)
        assert [type(layer) for layer in model[:2]] == [nn.BatchNorm2d, nn.GroupNorm]
        assert [left.name for left in report.left] == ["2"]
        torch.testing.assert_close(model[0](x), expected)

    def test_what_has_no_twin_is_listed(self) -> None:
        model = conv_net()
        geonorm.convert(model, "pop(kappa=2)")
        report = geonorm.revert(model)
        assert report.changed[0].note == "no twin: PopNorm2d before 0"

    def test_a_second_time_does_nothing(self) -> None:
        model = conv_net()
        geonorm.convert(model, "aug")
        geonorm.revert(model)
        report = geonorm.revert(model)
        assert not report.changed
        assert not report.left


class TestAfterwards:
    @pytest.mark.parametrize("spec", ["diffphi", "robustbn", "pop", "ws"])
    def test_deepcopy_and_pickle(self, spec: str) -> None:
        torch.manual_seed(0)
        model, x = conv_net(), torch.randn(3, 3, 9, 9)
        before = copy_state(model)
        geonorm.convert(model, spec)
        expected = model(x)
        clone = copy.deepcopy(model)
        assert torch.equal(clone(x), expected)
        parameters = {id(p) for p in model.parameters()}
        assert not any(id(p) in parameters for p in clone.parameters())
        if spec != "ws":  # torch does not pickle parametrized modules
            again = pickle.loads(pickle.dumps(model))
            assert torch.equal(again(x), expected)
            geonorm.revert(again)
            assert again.state_dict().keys() == before.keys()
        geonorm.revert(clone)
        assert clone.state_dict().keys() == before.keys()
