"""Models that are not as they seem, under revert, freeze, recalibrate, param_groups: each was once silently wrong."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import geonorm
from helpers.randomized_model import randomized


class TestRevert:
    def test_from_another_root(self) -> None:
        inner = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        geonorm.convert(inner, "pop")
        outer = nn.Sequential(nn.Conv2d(3, 3, 1), inner)
        geonorm.revert(outer)
        assert not inner[0]._modules
        model = nn.ModuleDict({"b": nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))})
        geonorm.convert(model, "pop")
        geonorm.revert(model["b"])
        assert not model["b"][0]._forward_pre_hooks

    @pytest.mark.parametrize(
        ("affine", "spec"),
        [(True, "aug(phi=2, eps=0.5)"), (True, "aug(phi=2, affine=false)"), (False, "aug(phi=2, affine=true)")],
    )
    def test_other_arguments_after_training(self, affine: bool, spec: str) -> None:
        torch.manual_seed(0)
        model, x = randomized(nn.Sequential(nn.BatchNorm2d(4, affine=affine))), torch.randn(8, 4, 3, 3)
        geonorm.convert(model, spec)
        model.train()(x)
        for parameter in model.parameters():
            nn.init.uniform_(parameter, 0.5, 2)
        expected = model.eval()(x)
        geonorm.revert(model)
        assert type(model[0]) is nn.BatchNorm2d
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)

    def test_through_torch_s_own_layers(self) -> None:
        model, x = randomized(nn.Sequential(nn.BatchNorm2d(4))), torch.randn(8, 4, 3, 3)
        for spec in ("aug", "bn"):
            geonorm.convert(model, spec)
        model.train()(x)
        expected = model.eval()(x)
        geonorm.revert(model)
        assert torch.equal(model(x), expected)
        for spec in ("gn(groups=2)", "aug(phi=1.5)"):
            geonorm.convert(model, spec)
        assert isinstance(model[0], geonorm.AugGroupNorm)
        geonorm.revert(model)
        assert type(model[0]) is nn.BatchNorm2d

    def test_bit_for_bit_with_nothing_kept(self) -> None:
        model, seen = randomized(nn.Sequential(nn.BatchNorm2d(4))), []
        model[0].register_forward_hook(lambda *_: seen.append(1))
        before = {key: value.clone() for key, value in model.state_dict().items()}
        geonorm.convert(model, "aug", keep=())
        model(torch.randn(2, 4, 3, 3))
        assert not seen
        geonorm.revert(model)
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        model(torch.randn(2, 4, 3, 3))
        assert seen == [1]

    @pytest.mark.parametrize("spec", ["none", "pop", "ws", "gn", "auggroup", "l1bn"])
    def test_after_a_change_of_dtype(self, spec: str) -> None:
        model = randomized(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
        twin = copy.deepcopy(model).double()
        geonorm.convert(model, spec)
        model.double()
        geonorm.revert(model)
        x = torch.randn(2, 3, 5, 5).double()
        torch.testing.assert_close(model(x), twin(x))

    def test_the_weight_itself_comes_back(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        weight = model[0].weight
        for spec in ("wn", "ws", "sn"):
            geonorm.convert(model, spec)
            geonorm.revert(model)
            assert model[0].weight is weight

    @pytest.mark.parametrize("spec", ["wn", "ws", "cwn", "sn"])
    def test_a_copy_is_not_touched(self, spec: str) -> None:
        model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(5, 4)
        geonorm.convert(model, spec)
        average = copy.deepcopy(model).eval()
        expected = average(x)
        geonorm.revert(model)
        assert torch.equal(average(x), expected)
        geonorm.revert(average)
        assert type(average[0]) is nn.Linear

    def test_transformers_get_their_fast_path_back(self) -> None:
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, dropout=0.0), 2).eval()
        x = torch.randn(2, 3, 8)
        for spec in ("aug(phi=1.5)", "aug(phi=3)", "none"):
            geonorm.convert(model, spec)
        geonorm.revert(model, where="*.norm1")
        with torch.no_grad():
            model(x)
        geonorm.revert(model)
        assert model.use_nested_tensor
        assert all(layer.activation_relu_or_gelu for layer in model.layers)


class TestFreeze:
    def test_parameters_after_a_conversion(self) -> None:
        model = nn.Sequential(nn.BatchNorm2d(3))
        geonorm.freeze(model, affine=True)
        geonorm.convert(model, "diffphi")
        assert not any(p.requires_grad for p in model.parameters())
        geonorm.unfreeze(model)
        assert all(p.requires_grad for p in model.parameters())

    def test_moving_a_frozen_norm(self) -> None:
        for spec in ("pop", "none", "ws"):
            model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
            geonorm.freeze(model)
            assert "unfreeze it first" in geonorm.convert(model, spec).left[0].reason

    def test_a_model_that_was_compiled_before(self) -> None:
        torch._dynamo.reset()
        model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(8, 3)
        compiled = torch.compile(model, backend="eager")
        compiled(x)
        geonorm.freeze(model)
        before = model[1].running_mean.clone()
        compiled.train()
        compiled(x)
        assert torch.equal(model[1].running_mean, before)


class TestRecalibrate:
    def test_inputs_that_change_in_place(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = geonorm.AugBatchNorm1d(3, phi=1.5)

            def forward(self, x: Tensor) -> Tensor:
                h = x * 1
                y = self.norm(h)
                h.zero_()
                return y

        model, x = Net(), torch.randn(8, 3) + 5
        geonorm.recalibrate(model, [x])
        torch.testing.assert_close(model.norm.running_center, geonorm.functional.center(x, 1.5, 0))

    def test_weights_that_count_for_less_than_one_value(self) -> None:
        layer = geonorm.AugBatchNorm1d(3, phi=2.0)
        batches = [(torch.randn(10, 3), torch.full((10, 3), 0.05))]
        report = geonorm.recalibrate(layer, batches, lambda m, b: m(b[0], element_weight=b[1]))
        assert report.left
        assert torch.equal(layer.running_var, torch.ones(3))

    def test_a_bad_batch_of_instances(self) -> None:
        layer = geonorm.AugInstanceNorm1d(3, track_running_stats=True)
        report = geonorm.recalibrate(layer, [torch.full((2, 3, 4), torch.nan), torch.randn(2, 3, 4)])
        assert "not finite" in report.left[0].reason
        assert torch.equal(layer.running_mean, torch.zeros(3))

    def test_batches_that_run_out(self) -> None:
        class Once:
            def __init__(self) -> None:
                self.left = iter([torch.randn(8, 3)] * 2)

            def __iter__(self):
                return self.left

        model = nn.ModuleList([geonorm.AugBatchNorm1d(3), geonorm.AugBatchNorm1d(3)])
        with pytest.raises(RuntimeError, match="same batches in every pass"):
            geonorm.recalibrate(model, Once(), lambda m, x: [layer(x) for layer in m], memory=300)
        assert torch.equal(model[1].running_center, torch.zeros(3))

    def test_inside_no_stat_update(self) -> None:
        with pytest.raises(RuntimeError, match="no_stat_update"), geonorm.no_stat_update():
            geonorm.recalibrate(nn.BatchNorm1d(3), [torch.randn(4, 3)])

    def test_averages_count_masks(self) -> None:
        layer = geonorm.AugBatchNorm1d(2, phi=1.5)
        x, y = torch.randn(10, 2), torch.randn(10, 2) + 4
        some = torch.zeros(10, 2)
        some[:2] = 1
        batches = [(x, some), (y, torch.ones(10, 2))]
        geonorm.recalibrate(layer, batches, lambda m, b: m(b[0], element_weight=b[1]), memory=0)
        parts = [geonorm.functional.center(x[:2], 1.5, 0), geonorm.functional.center(y, 1.5, 0)]
        torch.testing.assert_close(layer.running_center, (2 * parts[0] + 10 * parts[1]) / 12)

    def test_half_precision(self) -> None:
        x = torch.randn(64, 3) * 300
        layer = nn.BatchNorm1d(3).bfloat16()
        geonorm.recalibrate(layer, [x.bfloat16()])
        torch.testing.assert_close(layer.running_var.float(), x.bfloat16().float().var(0), rtol=1e-2, atol=0)
        # a variance of 90000 is more than float16 can hold
        assert "not finite" in geonorm.recalibrate(nn.BatchNorm1d(3).half(), [x.half()]).left[0].reason


class TestParamGroups:
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_biases_by_other_names(self) -> None:
        model = nn.ModuleDict(
            {
                "lstm": nn.LSTM(4, 4),
                "attention": nn.MultiheadAttention(4, 2, add_bias_kv=True),
                "old": nn.utils.weight_norm(nn.Linear(4, 4)),
                "norm": nn.BatchNorm1d(4),
                "bound": nn.Linear(4, 4),
            }
        )
        parametrize.register_parametrization(model["norm"], "weight", nn.Softplus())
        parametrize.register_parametrization(model["bound"], "bias", nn.Softplus())
        names = {id(p): name for name, p in model.named_parameters()}
        decayed = {names[id(p)] for p in geonorm.param_groups(model, 0.1)[0]["params"]}
        assert decayed == {
            "lstm.weight_ih_l0",
            "lstm.weight_hh_l0",
            "attention.in_proj_weight",
            "attention.out_proj.weight",
            "old.weight_v",
            "bound.weight",
        }
        bare = parametrize.register_parametrization(nn.Linear(4, 4), "bias", nn.Softplus())
        assert [len(group["params"]) for group in geonorm.param_groups(bare, 0.1)] == [1, 1]
