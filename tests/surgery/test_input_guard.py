"""`recalibrate` with a guard: broken samples are pulled in while statistics are measured."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import geonorm
from geonorm.functional import center

BATCHES = [torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(n)) * (n + 1) + n for n in (5, 2, 9)]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-6, atol=1e-6)


def trained_net() -> nn.Sequential:
    """Weights that training could have made, a norm behind a norm, and samples that keep their size in between."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
    )
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 2)
            module.bias.data.uniform_(-0.5, 0.5)
    return model


def pictures(number: int = 10, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(32, 3, 9, 9, generator=generator) + 0.2 for _ in range(number)]


def with_junk(batches: list[Tensor], share: float = 0.2) -> list[Tensor]:
    """Some samples were never scaled to [0, 1]."""
    generator = torch.Generator().manual_seed(2)
    broken = [torch.rand(len(batch), generator=generator) < share for batch in batches]
    return [
        torch.where(bad[:, None, None, None], batch * 255, batch) for batch, bad in zip(batches, broken, strict=True)
    ]


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: b.clone() for name, b in model.named_buffers() if name.split(".")[-1].startswith("running")}


GUARDED = ["bn", "guardbn", "augbn(phi=2)", "robustbn(guard=3)", "pop(guard=3)"]


class TestGuard:
    @pytest.mark.parametrize("spec", GUARDED)
    def test_junk_is_pulled_in(self, spec: str) -> None:
        """20 % of the samples 255 times too large.

        A pulled sample lies at three median distances: a share ε of them raises second moments 1 + 8ε times, whatever
        size they had. The joint center drifts a little besides; a tenth is allowed for that.
        """
        model = trained_net()
        geonorm.convert(model, spec)
        norms = [module for module in model.modules() if hasattr(module, "running_var")]
        clean = pictures()
        geonorm.recalibrate(model, clean)
        truth = [norm.running_var.clone() for norm in norms]
        report = geonorm.recalibrate(model, with_junk(clean), guard=3.0)
        guarded = [norm.running_var.clone() for norm in norms]
        pulled = int(report.changed[0].note.split()[1])
        assert report.changed[0].note == f"pulled {pulled} of 320 samples"
        assert 0.15 < pulled / 320 < 0.3
        assert float((guarded[0] / truth[0]).mean()) == pytest.approx(1 + 8 * pulled / 320, rel=0.1)
        assert float((guarded[1] / truth[1]).max()) < 1.5  # what reaches it are the samples, a bit smaller
        for norm in norms:
            norm.guard = None
        geonorm.recalibrate(model, with_junk(clean))
        assert float((norms[0].running_var / truth[0]).min()) > 1000

    @pytest.mark.parametrize("spec", [*GUARDED, "diffphi(guard=3)"])
    def test_clean_batches_give_the_same_bits(self, spec: str) -> None:
        """Nothing is pulled, and each norm hands on what it hands on without a guard."""
        model = trained_net()
        geonorm.convert(model, spec)
        for norm in model.modules():
            norm.guard = None
        assert all(not change.note for change in geonorm.recalibrate(model, pictures()).changed)
        expected = statistics(model)
        report = geonorm.recalibrate(model, pictures(), guard=3.0)
        assert {change.note for change in report.changed} == {"pulled 0 of 320 samples"}
        assert "* all: pulled 0 of 320 samples" in str(report)
        assert all(torch.equal(value, expected[name]) for name, value in statistics(model).items())

    @pytest.mark.parametrize("spec", [*GUARDED, "in(track_running_stats=true)"])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_samples_that_are_not_finite_are_as_good_as_absent(self, spec: str, value: float) -> None:
        clean, broken = pictures(3), pictures(3)
        for batch in broken:
            batch[[4, 9]] = clean[0][0]
            batch[4, 1, 2, 3] = value
            batch[9] = value
        model = trained_net()
        geonorm.convert(model, spec)
        rest = [batch[[i for i in range(32) if i not in (4, 9)]] for batch in clean]
        geonorm.recalibrate(model, rest, guard=3.0)
        expected = statistics(model)
        report = geonorm.recalibrate(model, broken, guard=3.0)
        assert not report.left
        assert "6 not finite" in report.changed[0].note or "6 of 96 samples not finite" in report.changed[0].note
        assert all(torch.equal(found, expected[name]) for name, found in statistics(model).items())

    def test_a_batch_with_one_finite_sample_or_none(self) -> None:
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), geonorm.AugBatchNorm1d(3, phi=1.5))
        full = torch.randn(8, 3)
        one = torch.full((4, 3), math.nan)
        one[2] = 1.0
        report = geonorm.recalibrate(model, [full, one, torch.full((4, 3), math.inf)], guard=30)
        assert {change.note for change in report.changed} == {"pulled 0 of 16 samples, 7 not finite"}
        assert report.changed[0].after == "9 values in 2 batches"
        close(model[0].running_mean, torch.cat([full, one[2:3]]).mean(0))
        before = statistics(model)
        report = geonorm.recalibrate(model, [torch.full((4, 3), math.nan)], guard=3)
        assert {left.reason for left in report.left} == {"all 4 samples are not finite; the old statistics are kept"}
        assert all(torch.equal(value, before[name]) for name, value in statistics(model).items())

    def test_a_guarded_layer_needs_no_argument_and_the_argument_goes_before_its_own(self) -> None:
        batch = torch.randn(64, 3)
        batch[0] *= 4
        model = nn.Sequential(geonorm.AugBatchNorm1d(3, phi=2, guard=2), nn.BatchNorm1d(3)).eval()
        counts = model[0].guard_counts
        report = geonorm.recalibrate(model, [batch])
        assert "pulled" in report.changed[0].note
        assert report.changed[1].note == ""
        tight = model[0].running_var.clone()
        pulled = geonorm.functional.guard(batch, 2).output
        close(model[0].running_var, pulled.var(0))
        geonorm.recalibrate(model, [batch], guard=1e6)
        close(model[0].running_var, batch.var(0))
        assert (model[0].running_var > tight).all()
        assert model[0].guard == 2
        assert model[0].guard_counts is counts
        assert not counts.any()  # those are of training
        assert not model[0].training

    def test_later_norms_see_what_a_guarded_layer_hands_on(self) -> None:
        """And in every pass: with little memory the second norm is measured in a pass of its own."""
        model = nn.Sequential(nn.BatchNorm1d(3), geonorm.AugBatchNorm1d(3, phi=1.5)).double()
        batches = [batch.double() for batch in with_junk([torch.randn(40, 3, 1, 1) for _ in range(4)], 0.1)]
        batches = [batch.flatten(1) for batch in batches]
        guarded = geonorm.AugBatchNorm1d(3, phi=2, guard=3).double()
        expected = torch.cat([guarded(batch).detach() for batch in batches])
        for memory in (1 << 30, expected.numel() * 8):
            geonorm.recalibrate(model, batches, guard=3.0, memory=memory)
            found = [geonorm.functional.guard(part, 3).output for part in expected.split(40)]
            close(model[1].running_center, center(torch.cat(found), 1.5, 0))
        both = nn.ModuleList([geonorm.AugBatchNorm1d(3, phi=phi).double() for phi in (1.2, 3.0)])
        report = geonorm.recalibrate(
            both, batches, lambda model, x: [m(x) for m in model], guard=3, memory=expected.numel() * 8
        )
        assert len({change.note for change in report.changed}) == 1
        assert "of 160 samples" in report.changed[0].note  # not twice, in two passes

    def test_masks(self) -> None:
        """A padded sample is judged by its values; one without any is not measured."""
        layer = geonorm.AugBatchNorm1d(2, phi=2.0)
        x, mask = torch.randn(12, 2, 6), torch.rand(12, 1, 6) > 0.3
        mask[:, :, 0] = True
        mask[7] = False
        x[~mask.expand_as(x)] = math.nan
        x[3] *= 1000
        x[5, 0, 0] = math.inf
        report = geonorm.recalibrate(
            nn.Sequential(layer), [(x, mask)], lambda model, batch: model[0](batch[0], mask=batch[1]), guard=3
        )
        assert report.changed[0].note == "pulled 1 of 12 samples, 1 not finite"
        kept = [i for i in range(12) if i not in (5, 7)]
        pulled = geonorm.functional.guard(x, 3, mask=mask).output[kept]
        close(layer.running_mean, pulled.movedim(1, -1)[mask[kept].squeeze(1)].mean(0))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_dict_batches_and_iterators(self, dtype: torch.dtype) -> None:
        model = nn.Sequential(nn.BatchNorm1d(4), geonorm.AugBatchNorm1d(4, phi=1.5)).to(dtype)
        x = torch.randn(3, 64, 4)
        x[:, 3] = 1e30  # Inf in float16, far away in bfloat16
        report = geonorm.recalibrate(
            model, ({"x": batch.to(dtype)} for batch in x), lambda model, batch: model(batch["x"]), guard=3
        )
        assert ("3 not finite" in report.changed[0].note) == (dtype == torch.float16)
        assert (model[0].running_var < 3).all()
        assert model[0].running_var.dtype == dtype

    @pytest.mark.parametrize("joined", [False, True])
    def test_sync_batch_norm_measures_alone(self, joined: bool, tmp_path) -> None:
        """Within a group, torch's own forward would wait for the others, or refuse a CPU."""
        if joined:
            dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
        try:
            self.check_sync_batch_norm(nn.SyncBatchNorm(3, process_group=dist.group.WORLD if joined else None))
        finally:
            if joined:
                dist.destroy_process_group()

    def check_sync_batch_norm(self, layer: nn.SyncBatchNorm) -> None:
        group = layer.process_group
        batches = with_junk(BATCHES)
        plain = nn.BatchNorm2d(3)
        for model in (layer, plain):
            geonorm.recalibrate(nn.Sequential(model), batches, guard=3)
        assert torch.equal(layer.running_var, plain.running_var)
        assert "forward" not in layer.__dict__
        assert layer.process_group is group

    def test_hooks_of_others_see_whole_batches(self) -> None:
        seen = []
        model = nn.Sequential(nn.BatchNorm1d(3))
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
        x = torch.randn(6, 3)
        x[2] = math.nan
        geonorm.recalibrate(model, [x], guard=3)
        assert seen[0].isnan().all(1).tolist() == [False, False, True, False, False, False]
        assert len(model[0]._forward_hooks) == 1
        assert not model[0]._forward_pre_hooks

    def test_errors(self) -> None:
        model = nn.Sequential(nn.BatchNorm2d(3))
        with pytest.raises(ValueError, match=r"1 <= guard < inf.*got 0\.5"):
            geonorm.recalibrate(model, BATCHES, guard=0.5)
        with pytest.raises(TypeError, match="guard to be a number"):
            geonorm.recalibrate(model, BATCHES, guard="3")
        assert model[0].num_batches_tracked == 0
