"""Guarded norms under every verb: evaluation as before, clean batches as without a guard, counts that stay apart."""

from __future__ import annotations

import copy
import io
import math
import pickle
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import geonorm
from geonorm.nn import create_norm
from geonorm.ops import using_backend
from helpers.model_states import copy_state, eval_outputs, has_state

SPECS = [
    "guardbn",
    "robustbn(guard=3)",
    "augbn(phi=1.5, guard=2.5)",
    "diffphi(guard=3)",
    "median(guard=3)",
    "l1bn(guard=3)",
    "pop(guard=3)",
]


def net() -> nn.Sequential:
    """Convolutions and a dense layer, with statistics of a few batches."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
        nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5),
    )  # fmt: skip
    for seed in range(3):
        model(batch(seed))
    return model


def batch(seed: int = 0, junk: int = 0) -> Tensor:
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    x[:junk] *= 255
    return x


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, junk: int = 0) -> float:
    labels = torch.randint(5, (16,), generator=torch.Generator().manual_seed(seed))
    loss = nn.functional.cross_entropy(model(batch(seed, junk)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def guarded(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if getattr(module, "guard", None) is not None]


def counts(model: nn.Module) -> list[list[int]]:
    return [module.guard_counts.tolist() for module in guarded(model)]


def converted(spec: str = "guardbn") -> nn.Sequential:
    model = net()
    geonorm.convert(model, spec)
    return model


class TestConvert:
    def test_evaluation_is_unchanged_bit_for_bit(self) -> None:
        model, x = net(), batch(9, junk=2)
        expected = eval_outputs(model, (x,))
        report = geonorm.convert(model, "guardbn")
        assert len(report.changed) == len(guarded(model)) == 3
        assert torch.equal(eval_outputs(model, (x,)), expected)

    def test_clean_batches_train_it_as_without_a_guard_bit_for_bit(self) -> None:
        """On one backend. Kernels that differ in the order of their sums differ in the last bits, guard or no guard."""
        with using_backend("torch"):
            models = [converted("guardbn"), converted("augbn(phi=2)")]
            optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in models]
            for seed in range(6):
                losses = [step(*pair, seed) for pair in zip(models, optimizers, strict=True)]
                assert losses[0] == losses[1]
            assert has_state(models[0], copy_state(models[1]))
        assert counts(models[0]) == [[6, 0, 0, 0]] * 3

    def test_clean_batches_train_it_as_batch_norm(self) -> None:
        models = [converted("guardbn"), net()]
        optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in models]
        for seed in range(6):
            losses = [step(*pair, seed) for pair in zip(models, optimizers, strict=True)]
            assert losses[0] == pytest.approx(losses[1], rel=1e-4)

    @pytest.mark.parametrize("spec", SPECS)
    def test_every_spec_trains_on_junk(self, spec: str) -> None:
        model = converted(spec)
        layers = guarded(model)
        assert len(layers) >= 3 - spec.startswith("pop")
        k = 2.5 if "2.5" in spec else 3.0
        assert all(layer.guard == k and f"guard={k:g}" in repr(layer) for layer in layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        assert all(math.isfinite(step(model, optimizer, seed, junk=2)) for seed in range(3))
        assert all(p.isfinite().all() for p in model.parameters())
        assert counts(model)[0] == [3, 3, 6, 0]
        assert eval_outputs(model, (batch(7),)).isfinite().all()

    def test_keys_are_those_without_a_guard(self) -> None:
        model = converted()
        assert list(model.state_dict()) == list(converted("augbn(phi=2)").state_dict())
        model.load_state_dict(net().state_dict())  # strict
        assert has_state(net().eval(), {key: value for key, value in model.state_dict().items() if "center" not in key})

    def test_to_another_spec_the_guard_is_what_the_spec_says(self) -> None:
        """As φ and the spread: a spec describes the whole layer, and a guard that it does not name is gone."""
        model = converted()
        before = list(model)
        assert not geonorm.convert(model, "guardbn").changed
        assert list(model) == before
        assert len(geonorm.convert(model, "guardbn(guard=4)").changed) == 3
        assert [layer.guard for layer in guarded(model)] == [4.0] * 3
        geonorm.convert(model, "augbn(phi=1.5)")
        assert not guarded(model)
        geonorm.convert(model, "bn")
        assert type(model[1]) is nn.BatchNorm2d

    def test_aug_keeps_axes_and_is_refused_within_a_sample(self) -> None:
        model = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LayerNorm(6))
        report = geonorm.convert(model, "aug(guard=3)")
        assert [change.name for change in report.changed] == ["0"]
        assert len(report.left) == 3
        assert all("takes no guard: it normalizes each sample by itself" in left.reason for left in report.left)


@pytest.mark.parametrize("name", ["augln", "auggroup", "augin", "auggraph", "popin", "popgroup"])
def test_a_guard_is_for_norms_over_the_batch(name: str) -> None:
    with pytest.raises(ValueError, match=r"takes no guard: .* such as guardbn"):
        create_norm(f"{name}(guard=3)", 8)
    with pytest.raises(ValueError, match="takes no guard"):
        geonorm.convert(nn.Sequential(nn.BatchNorm2d(8)), f"{name}(guard=3)")


@pytest.mark.parametrize("name", ["bn", "ln", "gn", "in"])
def test_layers_of_torch_have_none(name: str) -> None:
    with pytest.raises(ValueError, match="guardbn is BatchNorm with one"):
        create_norm(f"{name}(guard=3)", 8)


def test_bad_radii_and_misspelled_names() -> None:
    with pytest.raises(ValueError, match=r"1 <= guard < inf.*got 0\.5"):
        create_norm("guardbn(guard=0.5)", 8)
    with pytest.raises(ValueError, match="guard to be a number"):
        create_norm("pop(guard=true)", 8)
    with pytest.raises(ValueError, match="did you mean 'guard'"):
        create_norm("augbn(gard=3)", 8)
    assert create_norm("guardbn(guard=none)", 8).guard is None


class TestRevert:
    @pytest.mark.parametrize("spec", SPECS)
    def test_right_after_convert_bit_for_bit(self, spec: str) -> None:
        model, before = net(), copy_state(net())
        geonorm.convert(model, spec)
        eval_outputs(model, (batch(),))
        geonorm.revert(model)
        assert has_state(model, before)
        assert not guarded(model)

    def test_after_training_the_same_evaluation_bit_for_bit(self) -> None:
        model = converted()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for seed in range(4):
            step(model, optimizer, seed, junk=2)
        expected = eval_outputs(model, (batch(9),))
        report = geonorm.revert(model)
        assert {change.note for change in report.changed} == {"no twin: guard=3"}
        assert type(model[1]) is nn.BatchNorm2d
        assert torch.equal(eval_outputs(model, (batch(9),)), expected)

    def test_counts_alone_are_no_change_of_state(self) -> None:
        """Such a forward moves nothing but the counts; the original comes back with the very same tensors."""
        model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
        original = model[0]
        geonorm.convert(model, "guardbn")
        model(batch())
        assert counts(model) == [[1, 0, 0, 0]]
        geonorm.revert(model)
        assert model[0] is original


class TestVerbs:
    @pytest.mark.parametrize("spec", SPECS)
    def test_freeze(self, spec: str) -> None:
        model = converted(spec)
        geonorm.freeze(model)
        before, expected = copy_state(model), eval_outputs(model, (batch(1, junk=2),))
        assert torch.equal(model.train()(batch(1, junk=2)), expected)
        assert has_state(model, before)
        assert all(not any(each) for each in counts(model))
        geonorm.unfreeze(model)
        model(batch(1, junk=2))
        assert counts(model)[0] == [1, 1, 2, 0]

    @pytest.mark.parametrize("spec", SPECS)
    def test_fuse(self, spec: str) -> None:
        model = converted(spec)
        model.train()(batch(1, junk=2))
        expected = eval_outputs(model, (batch(2),))
        report = geonorm.fuse(model, example=batch(2))
        assert report.changed
        torch.testing.assert_close(model(batch(2)), expected, rtol=1e-4, atol=1e-5)
        assert spec.startswith("pop") or not guarded(model)

    @pytest.mark.parametrize("spec", SPECS)
    def test_sync(self, spec: str) -> None:
        model = converted(spec)
        geonorm.sync(model)
        assert all(layer.process_group == "world" and "guard=" in repr(layer) for layer in guarded(model))
        if not spec.startswith("pop"):  # a norm that moves loses its group, and the report says so
            assert len(geonorm.convert(model, "robustbn(guard=2)").changed) == 3
            assert all(layer.process_group == "world" for layer in guarded(model))
        geonorm.unsync(model)
        model(batch())
        assert counts(model)[0][0] == 1

    def test_param_groups(self) -> None:
        model = converted()
        norms = {id(p) for layer in guarded(model) for p in layer.parameters()}
        groups = geonorm.param_groups(model, weight_decay=0.1)
        plain = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
        assert norms <= plain

    @pytest.mark.parametrize("spec", SPECS)
    def test_no_stat_update(self, spec: str) -> None:
        model = converted(spec)
        before = copy_state(model)
        with geonorm.no_stat_update():
            model(batch(1, junk=2))
        assert has_state(model, before)
        assert all(not any(each) for each in counts(model))

    @pytest.mark.parametrize("spec", SPECS)
    def test_recalibrate_of_a_guarded_model_is_guarded(self, spec: str) -> None:
        model = converted(spec)
        geonorm.recalibrate(model, [batch(seed) for seed in range(4)])
        clean = {name: value.clone() for name, value in model.named_buffers() if name.endswith("running_var")}
        report = geonorm.recalibrate(model, [batch(seed, junk=2) for seed in range(4)])
        first = next(iter(clean))
        assert "pulled 8 of 64 samples" in report.changed[0].note
        assert (model.get_buffer(first) / clean[first] < 5).all()
        assert all(not any(each) for each in counts(model))


class TestMachinery:
    @pytest.mark.parametrize("spec", ["guardbn", "robustbn(guard=3)", "pop(guard=3)"])
    def test_export_of_evaluation(self, spec: str) -> None:
        model = converted(spec).eval()
        exported = torch.export.export(model, (batch(1),))
        torch.testing.assert_close(exported.module()(batch(1)), model(batch(1)))

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # the exporter's own
    def test_onnx_of_evaluation(self, tmp_path) -> None:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        model = converted().eval()
        torch.onnx.export(model, (batch(1),), tmp_path / "model.onnx", dynamo=True, verbose=False)
        session = runtime.InferenceSession(tmp_path / "model.onnx")
        (y,) = session.run(None, {session.get_inputs()[0].name: batch(1).numpy()})
        torch.testing.assert_close(torch.from_numpy(y), model(batch(1)).detach(), rtol=1e-4, atol=1e-5)

    def test_compiled_evaluation(self) -> None:
        torch._dynamo.reset()
        model = converted().eval()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(batch(1)), model(batch(1)))

    @pytest.mark.parametrize("spec", ["guardbn", "robustbn(guard=3)", "pop(guard=3)"])
    def test_masks_in_training(self, spec: str) -> None:
        """Padding may be anything; a sample of padding alone is no sample."""
        torch.manual_seed(0)
        layer, other = (create_norm(spec, 3, dim=1).train() for _ in range(2))
        x, mask = torch.randn(12, 3, 6), torch.rand(12, 1, 6) > 0.3
        mask[:, :, 0], mask[4] = True, False
        x[2] *= 1000
        y = layer(torch.where(mask, x, math.nan), mask=mask)
        assert layer.guard_counts.tolist() == [1, 1, 1, 0]
        torch.testing.assert_close(y, other(torch.where(mask, x, 7.0), mask=mask))
        torch.testing.assert_close(layer.running_var, other.running_var)
        assert (y[~mask.expand_as(y)] == 0).all()

    @pytest.mark.parametrize("spec", SPECS)
    def test_autocast(self, spec: str) -> None:
        model = converted(spec)
        with torch.autocast("cpu", torch.bfloat16):
            y = model(batch(1, junk=2))
        assert y.dtype == torch.bfloat16
        y.float().square().mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        assert counts(model)[0] == [1, 1, 2, 0]

    @pytest.mark.parametrize("spec", SPECS)
    def test_copies(self, spec: str) -> None:
        model = converted(spec)
        model(batch(1, junk=2))
        with io.BytesIO() as file:
            torch.save(model.state_dict(), file)
            file.seek(0)
            fresh = converted(spec)
            fresh.load_state_dict(torch.load(file, weights_only=True))
        assert not any("guard" in key for key in model.state_dict())
        for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert counts(clone) == counts(model)
            clone(batch(2))
            assert counts(clone) != counts(model)
        assert torch.equal(eval_outputs(fresh, (batch(3),)), eval_outputs(model, (batch(3),)))

    @pytest.mark.parametrize("spec", ["guardbn", "robustbn(guard=3)", "pop(guard=3)"])
    def test_checkpointing_counts_once(self, spec: str) -> None:
        plain, stored = converted(spec), converted(spec)
        a, b = (batch(1, junk=2).requires_grad_() for _ in range(2))
        plain(a).square().mean().backward()

        def contexts():
            return nullcontext(), geonorm.no_stat_update()

        checkpoint(stored, b, use_reentrant=False, context_fn=contexts).square().mean().backward()
        torch.testing.assert_close(b.grad, a.grad)
        assert counts(stored) == counts(plain)
        assert has_state(stored, copy_state(plain))

    @pytest.mark.parametrize("change", ["half", "bfloat16", "double"])
    def test_counts_stay_integers(self, change: str) -> None:
        model = converted()
        model(batch(1, junk=2))
        before = counts(model)
        getattr(model, change)()
        assert all(layer.guard_counts.dtype == torch.int64 for layer in guarded(model))
        assert counts(model) == before
        model(batch(2, junk=2).to(model[0].weight.dtype))
        assert counts(model)[0] == [2, 2, 4, 0]
        assert all(layer.guard_counts.is_meta for layer in guarded(model.to("meta")))
