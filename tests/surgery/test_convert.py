"""`convert`: the same function where there is one, and everything kept."""

import copy

import pytest
import torch
from torch import Tensor, nn

import geonorm
from helpers.model_states import conv_net, copy_state, eval_outputs, has_state
from helpers.slow_cases import slow_except
from helpers.third_party_models import THIRD_PARTY_MODELS, WITH_BATCH_NORM, Nested, ThirdPartyModel, briefly_trained

ids = {"ids": lambda case: case.name}


class TestSameFunction:
    @pytest.mark.parametrize("case", THIRD_PARTY_MODELS, **ids)
    def test_phi_2_leaves_evaluation_unchanged(self, case: ThirdPartyModel) -> None:
        model, inputs = briefly_trained(case), case.inputs()
        expected = eval_outputs(model, inputs)
        report = geonorm.convert(model, "aug(phi=2)")
        assert report.changed
        torch.testing.assert_close(eval_outputs(model, inputs), expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("case", WITH_BATCH_NORM, **ids)
    def test_augbn_phi_2(self, case: ThirdPartyModel) -> None:
        model, inputs = briefly_trained(case), case.inputs()
        expected = eval_outputs(model, inputs)
        report = geonorm.convert(model, "augbn(phi=2)")
        assert report.changed
        assert not report.left
        torch.testing.assert_close(eval_outputs(model, inputs), expected, rtol=1e-5, atol=1e-5)

    def test_a_training_step_is_that_of_torch(self) -> None:
        torch.manual_seed(0)
        model = conv_net()
        twin = copy.deepcopy(model)
        geonorm.convert(model, "augbn(phi=2)")
        x = torch.randn(4, 3, 9, 9)
        for net in (model, twin):
            net(x).square().sum().backward()
        for (name, mine), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4, msg=name)

    def test_other_phi_says_what_it_starts_from(self) -> None:
        model = briefly_trained(THIRD_PARTY_MODELS[0])
        mean = model.features.init_block.bn.running_mean.clone()
        report = geonorm.convert(model, "aug(phi=1.5)")
        assert all("running_center starts from the old mean" in change.note for change in report.changed)
        assert torch.equal(model.features.init_block.bn.running_center, mean)


class TestKept:
    def test_names_parameters_statistics_mode_and_hooks(self) -> None:
        model = conv_net().double().eval()
        model[1].weight.data.uniform_()
        model[1].weight.requires_grad_(False)
        model[1].running_mean.uniform_()
        model[1].num_batches_tracked.fill_(7)
        parameters = dict(model.named_parameters())
        seen: list[str] = []
        handle = model[1].register_forward_hook(lambda module, inputs, output: seen.append("after"))
        model[1].register_forward_pre_hook(lambda module, inputs: seen.append("before"))
        geonorm.convert(model, "augbn(phi=2)")
        layer = model[1]
        assert isinstance(layer, geonorm.AugBatchNorm2d)
        assert not layer.training
        assert layer.weight is parameters["1.weight"]
        assert not layer.weight.requires_grad
        assert layer.bias is parameters["1.bias"]
        assert layer.running_mean.dtype == torch.float64
        assert layer.num_batches_tracked == 7
        model(torch.randn(1, 3, 8, 8).double())
        assert seen == ["before", "after"]
        handle.remove()  # the user's handle still removes it
        model(torch.randn(1, 3, 8, 8).double())
        assert seen == ["before", "after", "before"]

    def test_keep_nothing(self) -> None:
        model = conv_net()
        model[1].weight.data.fill_(3.0)
        model[1].running_mean.fill_(5.0)
        model[1].register_forward_hook(lambda *_: pytest.fail("a hook was kept"))
        geonorm.convert(model, "augbn", keep=())
        assert torch.equal(model[1].weight, torch.ones(8))
        assert torch.equal(model[1].running_center, torch.zeros(8))
        model(torch.randn(2, 3, 8, 8))

    def test_arguments_of_the_layer(self) -> None:
        model = nn.Sequential(
            nn.BatchNorm2d(4, eps=1e-3, momentum=None, affine=False), nn.LayerNorm((4, 5, 5), bias=False, eps=1e-4)
        )
        geonorm.convert(model, "aug(phi=3)")
        assert (model[0].eps, model[0].momentum, model[0].weight) == (1e-3, None, None)
        assert (model[1].eps, model[1].bias, model[1].normalized_shape) == (1e-4, None, (4, 5, 5))
        assert model[0].phi == 3

    def test_shared_modules_are_converted_once(self) -> None:
        model = Nested()
        report = geonorm.convert(model, "aug(phi=1.5)")
        assert model.shared is model.twice["a"]
        assert [change.name for change in report.changed] == ["first.1.0", "shared", "twice.b", "twice.c"]
        assert isinstance(model.twice["b"], geonorm.AugGroupNorm)
        assert isinstance(model.twice["c"], geonorm.AugInstanceNorm1d)

    def test_on_the_meta_device(self) -> None:
        with torch.device("meta"):
            model = conv_net()
        geonorm.convert(model, "diffphi")
        assert model[1].phi_offset.is_meta
        assert model[1].running_center.is_meta
        geonorm.revert(model)
        assert type(model[1]) is nn.BatchNorm2d
        geonorm.convert(model, "pop")
        assert model[0].pre_norm.weight.is_meta

    def test_half_precision(self) -> None:
        model = conv_net().bfloat16()
        geonorm.convert(model, "aug(phi=1.5)")
        assert model[1].running_center.dtype == torch.bfloat16
        assert model(torch.randn(2, 3, 8, 8).bfloat16()).dtype == torch.bfloat16


class TestAxes:
    def test_augbn_is_for_batch_norm_layers(self) -> None:
        model = Nested()
        report = geonorm.convert(model, "augbn")
        assert [left.name for left in report.left] == ["twice.b", "twice.c"]
        assert "how many dimensions" in report.left[0].reason
        assert "name it with where=" in report.left[1].reason
        report = geonorm.convert(model, "augbn", where="twice.*")
        assert [change.name for change in report.changed] == ["twice.c"]
        assert "other axes" in report.changed[0].note
        assert [left.name for left in report.left] == ["twice.b"]

    def test_group_norm_in_the_place_of_batch_norm(self) -> None:
        model = conv_net()
        model[1].weight.data.uniform_()
        weight = model[1].weight
        geonorm.convert(model, "auggroup(groups=2)")
        assert model[1].num_groups == 2
        assert model[1].weight is weight
        geonorm.revert(model)
        geonorm.convert(model, "gn")
        assert type(model[1]) is nn.GroupNorm

    def test_layer_norm_needs_another_layout(self) -> None:
        report = geonorm.convert(conv_net(), "augln")
        assert not report.changed
        assert "gn(groups=1)" in report.left[0].reason

    def test_instance_norm_wants_positions(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        assert "no positions" in geonorm.convert(model, "augin").left[0].reason
        assert geonorm.convert(model, "augin", where="1").changed

    def test_none(self) -> None:
        model = conv_net()
        before = copy_state(model)
        geonorm.convert(model, "none")
        assert isinstance(model[1], nn.Identity)
        geonorm.revert(model)
        assert has_state(model, before)

    def test_from_one_of_ours_to_another(self) -> None:
        model = conv_net()
        before = copy_state(model)
        geonorm.convert(model, "augbn(phi=1.5)")
        geonorm.convert(model, "median")
        assert model[1].phi == 1
        geonorm.convert(model, "bn")
        assert type(model[1]) is nn.BatchNorm2d
        assert has_state(model, before)

    @pytest.mark.parametrize("first", slow_except(["pop"], ["pop", "ws", "none"]))
    def test_from_a_place_at_an_operation_to_another(self, first: str) -> None:
        model = conv_net()
        before = copy_state(model)
        geonorm.convert(model, first)
        geonorm.convert(model, "pop(kappa=2)")
        assert model[0].pre_norm.kappa == 2
        assert len(model[0]._forward_pre_hooks) == 1
        report = geonorm.convert(model, "aug(phi=3)")
        assert [change.name for change in report.changed] == ["1", "4"]
        assert not model[0]._forward_pre_hooks
        geonorm.revert(model)
        assert has_state(model, before)

    def test_graph_norm(self) -> None:
        geometric = pytest.importorskip("torch_geometric.nn")
        model = nn.Sequential(geometric.GraphNorm(4))
        model[0].mean_scale.data.uniform_()
        x = torch.randn(9, 4)
        expected = model(x)
        before = copy_state(model)
        report = geonorm.convert(model, "aug(phi=2)")
        assert isinstance(model[0], geonorm.AugGraphNorm), report
        torch.testing.assert_close(model(x), expected)
        geonorm.revert(model)
        assert has_state(model, before)


class TestNothingSilent:
    def test_unknown_norms_are_named(self) -> None:
        class MyNorm(nn.BatchNorm2d):
            def forward(self, input: Tensor) -> Tensor:
                return super().forward(input) + 1

        model = nn.Sequential(MyNorm(3), nn.RMSNorm(4), nn.LazyBatchNorm2d(), nn.SyncBatchNorm(4), nn.Identity())
        report = geonorm.convert(model, "aug")
        assert not report.changed
        reasons = [left.reason for left in report.left]
        for reason, part in zip(
            reasons, ["forward of its own", "no center", "no channel count yet", "dimensions"], strict=True
        ):
            assert part in reason

    def test_a_subclass_with_torch_s_forward_is_torch_s(self) -> None:
        class Named(nn.BatchNorm2d):
            pass

        model = nn.Sequential(Named(3))
        assert geonorm.convert(model, "aug").changed
        geonorm.revert(model)
        assert type(model[0]) is Named

    def test_the_model_itself(self) -> None:
        assert "nn.Sequential" in geonorm.convert(nn.BatchNorm2d(3), "aug").left[0].reason

    def test_the_second_time_does_nothing(self) -> None:
        for spec in ("aug(phi=1.5)", "auggroup(groups=2)", "pop", "ws", "none"):
            model = conv_net()
            assert geonorm.convert(model, spec).changed
            before = copy_state(model)
            report = geonorm.convert(model, spec)
            assert not report.changed, report
            assert not report.left, report
            assert has_state(model, before)

    def test_another_bias_is_something_to_do(self) -> None:
        model = nn.Sequential(nn.BatchNorm1d(4))
        geonorm.convert(model, "augbn(phi=1.5)")
        assert geonorm.convert(model, "augbn(phi=1.5, bias=false)").changed
        assert model[0].bias is None

    def test_optimizers_and_averages_are_pointed_out(self) -> None:
        model = conv_net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        average = torch.optim.swa_utils.AveragedModel(model)
        report = geonorm.convert(model, "diffphi")
        assert any("SGD" in note and "lacks 2 new ones" in note for note in report.notes), report
        assert any("AveragedModel" in note for note in report.notes)
        assert "SGD" in str(report)
        report = geonorm.convert(model, "none")
        assert any("holds 4 parameters that are no longer" in note for note in report.notes), report
        del optimizer, average

    def test_a_wrapped_model_is_refused(self) -> None:
        with pytest.raises(ValueError, match="then wrap it"):
            geonorm.convert(nn.DataParallel(conv_net()), "aug")
        with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
            geonorm.convert("model", "aug")  # type: ignore[arg-type]

    def test_bad_arguments_change_nothing(self) -> None:
        model = conv_net()
        for arguments in ({"spec": "augbm"}, {"spec": "augbn(phy=1)"}, {"spec": "aug", "keep": ("weights",)}):
            with pytest.raises(ValueError):  # noqa: PT011
                geonorm.convert(model, **arguments)
        assert type(model[1]) is nn.BatchNorm2d

    def test_running_scale_is_called_an_estimate(self) -> None:
        report = geonorm.convert(conv_net(), "augbn(spread=max_abs)")
        assert "estimate" in report.changed[0].note

    def test_transformers_do_not_skip_the_norms(self) -> None:
        """In evaluation torch's encoder calls a fused kernel with the weights of its norms, whatever they are."""
        model, x = THIRD_PARTY_MODELS[4].make(), torch.randn(3, 7, 16)
        plain = eval_outputs(model, (x,))
        report = geonorm.convert(model, "aug(phi=1.2)")
        assert len(report.changed) == 4
        model.train()
        slow = model(x).detach()
        torch.testing.assert_close(eval_outputs(model, (x,)), slow)
        assert not torch.allclose(slow, plain, atol=1e-3)
        padded = torch.zeros(3, 7, dtype=torch.bool)
        padded[:, 5:] = True
        with torch.no_grad():
            model(x, src_key_padding_mask=padded)
        geonorm.revert(model)
        assert model.use_nested_tensor
        torch.testing.assert_close(eval_outputs(model, (x,)), plain)

    @pytest.mark.parametrize("spec", ["in", "augin", "in(track_running_stats=true)", "augin(track_running_stats=true)"])
    def test_instances_in_the_place_of_a_tracking_batchnorm(self, spec: str) -> None:
        model = conv_net()
        model[1].running_mean.fill_(2.0)
        keys = list(model.state_dict())
        assert len(geonorm.convert(model, spec).changed) == 2
        assert model(torch.randn(2, 3, 9, 9)).isfinite().all()
        if "track" in spec:
            assert model[1].running_mean.max() > 1
        geonorm.revert(model)
        assert list(model.state_dict()) == keys
