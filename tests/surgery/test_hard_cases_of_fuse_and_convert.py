"""Models that are not as they seem: fuse and convert; each case was once silently wrong."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import geonorm
from helpers.randomized_model import randomized
from helpers.third_party_models import pytorchcv_model


@torch.no_grad()
def unchanged_by_fuse(model: nn.Module, x: Tensor, **arguments) -> geonorm.Report:
    expected = model(x)
    report = geonorm.fuse(model, **arguments)
    found = model(x)
    for a, b in zip(*(v if isinstance(v, (tuple, list)) else [v] for v in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    return report


class BatchNormAct2d(nn.BatchNorm2d):
    """As timm's."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


BatchNormAct2d.__module__, BatchNormAct2d.__qualname__ = "timm.layers.norm_act", "BatchNormAct2d"


class TestFuse:
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_hooks(self, place: int) -> None:
        model = randomized(nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.BatchNorm1d(4)))
        model[place].register_forward_hook(lambda module, inputs, output: output.relu())
        unchanged_by_fuse(model, torch.randn(5, 4))

    def test_an_operation_with_a_forward_of_its_own(self) -> None:
        class Scaled(nn.Linear):
            def forward(self, x: Tensor, by: float = 1.0) -> Tensor:
                return super().forward(x) * by

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.norm = Scaled(4, 4), nn.BatchNorm1d(4)

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.linear(x, 2.0))

        report = unchanged_by_fuse(randomized(Net()), torch.randn(5, 4))
        assert "forward of its own" in report.left[0].reason

    def test_activated_norms(self) -> None:
        x = torch.randn(2, 3, 5, 5)
        assert unchanged_by_fuse(randomized(nn.Sequential(nn.Conv2d(3, 4, 1), BatchNormAct2d(4))), x).changed
        model = randomized(nn.Sequential(nn.Conv2d(3, 4, 1), BatchNormAct2d(4)))
        geonorm.convert(model, "aug(phi=2)")
        assert unchanged_by_fuse(model, x).changed
        model = randomized(nn.Sequential(nn.Conv2d(3, 4, 1), BatchNormAct2d(4), nn.BatchNorm2d(4)))
        unchanged_by_fuse(model, x)
        unchanged_by_fuse(model, x)

    def test_a_weight_that_is_used_elsewhere(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.linear(x)) + F.linear(x, self.linear.weight)

        unchanged_by_fuse(randomized(Net()), torch.randn(5, 4))

    def test_a_part_that_is_run_piece_by_piece(self) -> None:
        class Features(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.f = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

            def forward(self, x: Tensor) -> list[Tensor]:
                outputs = []
                if x.shape[0] > 0:
                    for module in self.f:
                        x = module(x)
                        outputs.append(x)
                return outputs

        model, x = randomized(Features()), torch.randn(5, 4)
        report = unchanged_by_fuse(model, x)
        assert "example=" in report.left[0].reason
        with pytest.raises(RuntimeError, match="the model is unchanged"):
            geonorm.fuse(model, example=x)
        unchanged_by_fuse(model, x)

    def test_an_optional_input(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

            def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
                y = self.linear(x)
                skip = y if skip is None else skip
                return self.norm(y) + skip

        unchanged_by_fuse(randomized(Net()), torch.randn(5, 4))

    @pytest.mark.parametrize("bind", [nn.utils.weight_norm, lambda m: prune.random_unstructured(m, "weight", 0.5)])
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_weights_that_are_computed(self, bind) -> None:
        model = randomized(nn.Sequential(bind(nn.Linear(4, 4)), nn.BatchNorm1d(4)))
        assert "parametrized or pruned" in unchanged_by_fuse(model, torch.randn(5, 4)).left[0].reason

    def test_a_shared_operation_in_two_parts(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                shared = nn.Linear(4, 4)
                self.a, self.b = (nn.Sequential(shared, nn.BatchNorm1d(4)) for _ in range(2))

            def forward(self, x: Tensor) -> Tensor:
                return self.a(x) + self.b(x) if x.sum() > -1e9 else x

        model, x = randomized(Net()), torch.randn(5, 4)
        assert not unchanged_by_fuse(model, x, example=x).changed

    def test_what_fails_restores_the_same_objects(self) -> None:
        model, x = randomized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))), torch.randn(3, 4, 4)
        weight, norm = model[0].weight, model[1]
        with pytest.raises(RuntimeError, match="the model is unchanged"):
            geonorm.fuse(model, example=x)
        assert model[0].weight is weight
        assert model[1] is norm

    def test_there_is_no_way_back(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
        geonorm.convert(model, "pop")
        unchanged_by_fuse(randomized(model), torch.randn(5, 4))
        assert not geonorm.revert(model).changed

    def test_optimizers_are_pointed_out(self) -> None:
        model = randomized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        assert "SGD" in str(geonorm.fuse(model))
        del optimizer


class TestConvert:
    def test_in_place_activations_behind_a_standin(self) -> None:
        class PreActivation(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)

            def forward(self, x: Tensor) -> Tensor:
                return x + self.conv(F.relu_(self.norm(x)))

        for spec in ("pop", "none"):
            model, x = PreActivation(), torch.randn(2, 3, 4, 4)
            assert geonorm.convert(model, spec).changed
            before = x.clone()
            model(x)
            assert torch.equal(x, before)

    def test_a_pre_activation_resnet_without_norms(self) -> None:
        torch.manual_seed(0)
        model, x = pytorchcv_model("preresnet_cifar", "preresnet20_cifar10").eval(), torch.randn(1, 3, 32, 32)
        geonorm.convert(model, "none")
        apart = copy.deepcopy(model)
        for module in apart.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False
        torch.testing.assert_close(model(x), apart(x))

    def test_a_module_of_the_user_s_called_pre_norm(self) -> None:
        model = nn.ModuleDict({"pre_norm": nn.LayerNorm(4), "f": nn.Linear(4, 4)})
        assert len(geonorm.convert(model, "aug").changed) == 1
        assert len(geonorm.revert(model).changed) == 1

    def test_odd_subclasses_are_named(self) -> None:
        class GroupNorm32(nn.GroupNorm):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.float()).type(x.dtype)

        class ABN(nn.BatchNorm2d):
            def forward(self, x: Tensor) -> Tensor:
                return F.leaky_relu(super().forward(x))

        model = nn.Sequential(nn.Conv2d(3, 4, 3), ABN(4), GroupNorm32(2, 4))
        assert len(geonorm.convert(model, "aug").left) == 2
        groups = geonorm.param_groups(model, 0.1)
        assert [len(group["params"]) for group in groups] == [1, 5]
        assert len(geonorm.fuse(randomized(model)).left) == 2

    def test_a_forward_of_the_instance(self) -> None:
        model = nn.Sequential(nn.BatchNorm2d(3))
        model[0].forward = lambda x: x + 1
        assert "forward of its own" in geonorm.convert(model, "aug").left[0].reason

    def test_scripted_models_are_refused(self) -> None:
        scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(3)))
        for verb in (geonorm.revert, geonorm.freeze, geonorm.fuse):
            with pytest.raises(ValueError, match="scripted"):
                verb(scripted)

    def test_statistics_that_disagree_with_their_flag(self) -> None:
        model = nn.Sequential(nn.BatchNorm2d(3)).eval()
        model[0].track_running_stats = False
        assert "disagree" in geonorm.convert(model, "aug").left[0].reason

    def test_activated_norms_twice(self) -> None:
        model, x = randomized(nn.Sequential(nn.Conv2d(3, 4, 1), BatchNormAct2d(4))), torch.randn(2, 3, 5, 5)
        expected = model(x)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        for spec in ("aug(phi=2)", "aug(phi=2, sweeps=7)"):
            geonorm.convert(model, spec)
            torch.testing.assert_close(model(x), expected)
        geonorm.revert(model)
        assert type(model[1]) is BatchNormAct2d
        assert before.keys() == model.state_dict().keys()
        assert torch.equal(model(x), expected)

    @pytest.mark.parametrize(
        "spec",
        ["aug(affine=false)", "aug(momentum=0.2)", "aug(single_element=running)", "gn(groups=4)", "popgroup(groups=4)"],
    )
    def test_arguments_that_only_some_layers_take(self, spec: str) -> None:
        model = nn.Sequential(
            nn.Conv2d(3, 8, 1),
            nn.BatchNorm2d(8),
            nn.Conv2d(8, 6, 1),
            nn.BatchNorm2d(6),
            nn.LayerNorm(5),
            nn.GroupNorm(2, 6),
        )
        report = geonorm.convert(model, spec)
        assert {change.name for change in report.changed} | {left.name for left in report.left} == set("1345")
        model(torch.randn(2, 3, 5, 5))

    @pytest.mark.parametrize("spec", ["ws(foo=1)", "wn(dim=7)", "sn(n_power_iterations=0)"])
    def test_bad_arguments_of_weight_specs(self, spec: str) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        with pytest.raises(ValueError, match=spec.partition("(")[0]):
            geonorm.convert(model, spec)
        assert type(model[1]) is nn.BatchNorm1d
        assert not parametrize.is_parametrized(model[0])

    def test_tied_and_transposed_weights_are_left(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        assert "shared by 0, 2" in geonorm.convert(model, "ws").left[0].reason
        model = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4))
        assert "its inputs" in geonorm.convert(model, "ws").left[0].reason

    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_old_weight_norm_and_pruned_norms(self) -> None:
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)), nn.BatchNorm1d(4))
        assert "parametrized or pruned" in geonorm.convert(model, "ws").left[0].reason
        model = nn.Sequential(nn.BatchNorm1d(4))
        prune.random_unstructured(model[0], "weight", 0.5)
        assert "parametrized or pruned" in geonorm.convert(model, "aug").left[0].reason

    def test_an_operation_called_by_keyword(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.conv(input=x))

        model = Net()
        assert geonorm.convert(model, "pop", pairs=[("conv", "norm")]).changed
        model(torch.randn(2, 3, 4, 4))

    def test_pairs_by_a_second_name(self) -> None:
        inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        model = nn.ModuleDict({"a": inner, "z": inner})
        assert geonorm.convert(model, "pop", pairs=[("z.0", "z.1")]).changed[0].name == "a.1"

    def test_spreads_do_not_lend_each_other_their_scale(self) -> None:
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.BatchNorm1d(4)), torch.randn(512, 4)
        geonorm.convert(model, "augbn(spread=max_abs)")
        geonorm.recalibrate(model, [x])
        expected = model.eval()(x)
        geonorm.convert(model, "bn")
        torch.testing.assert_close(model(x), expected)  # the same function, as revert gives

    def test_tracing_leaves_no_marks(self) -> None:
        class Counting(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm, self.count, self.last = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), 0, None

            def forward(self, x: Tensor) -> Tensor:
                self.count += 1
                self.last = x
                return self.norm(self.conv(x))

        model = Counting()
        assert geonorm.convert(model, "pop").changed
        assert (model.count, model.last) == (0, None)

    def test_a_container_by_its_name(self) -> None:
        model = nn.ModuleDict({"a": nn.Sequential(nn.BatchNorm1d(3)), "ab": nn.BatchNorm1d(3)})
        assert [change.name for change in geonorm.convert(model, "aug", where="a").changed] == ["a.0"]

    def test_keep_as_a_generator(self) -> None:
        model = nn.Sequential(nn.BatchNorm1d(3))
        model[0].running_mean.fill_(2.0)
        geonorm.convert(model, "aug", keep=(part for part in ["statistics"]))
        assert torch.equal(model[0].running_mean, torch.full((3,), 2.0))
