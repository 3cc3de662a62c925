"""What users hang on a norm goes where the norm goes: hooks, attributes, parameters, buffers, modules."""

import copy

import pytest
import torch
from torch import nn

import geonorm
from helpers.model_states import conv_net, copy_state, has_state

SPECS = ["aug(phi=1.5)", "gn(groups=2)", "in", "pop", "ws", "none"]


def hung() -> nn.Sequential:
    """A model whose first norm has all that may hang on it."""
    model = conv_net()
    norm = model[1]
    norm.lr_scale, norm._private = 3.0, "mine"
    norm.gate = nn.Parameter(torch.full((8, 1, 1), 2.0))
    norm.register_buffer("seen", torch.zeros(1))
    norm.register_buffer("unsaved", torch.ones(1), persistent=False)
    norm.head = nn.Linear(2, 2)
    norm.register_forward_hook(gate)
    return model


def gate(module, inputs, output):
    module.seen += 1
    return output * module.gate


@pytest.mark.parametrize("spec", SPECS)
def test_there_and_back(spec: str) -> None:
    model, x = hung(), torch.randn(2, 3, 9, 9)
    before, keys, norm, attributes = copy_state(model), list(model.state_dict()), model[1], set(model[1].__dict__)
    parameter, head, expected = norm.gate, norm.head, copy.deepcopy(model).eval()(x)
    geonorm.convert(model, spec)
    new = model[1]
    assert new is not norm
    assert (new.lr_scale, new._private) == (3.0, "mine")
    assert new.gate is parameter
    assert new.head is head
    assert "1.seen" in model.state_dict()
    assert "1.unsaved" not in model.state_dict()
    assert new.unsaved == 1
    geonorm.revert(model)
    assert model[1] is norm
    assert set(norm.__dict__) == attributes
    assert has_state(model, before)
    assert list(model.state_dict()) == keys
    assert torch.equal(model.eval()(x), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_what_changed_meanwhile_comes_back(spec: str) -> None:
    model = hung()
    geonorm.convert(model, spec)
    model(torch.randn(2, 3, 9, 9)).sum().backward()
    model[1].lr_scale, model[1].later = 5.0, "new"
    model.double()
    geonorm.revert(model)
    assert (model[1].seen, model[1].seen.dtype) == (1, torch.float64)
    assert (model[1].lr_scale, model[1].later) == (5.0, "new")
    assert model[1].gate.dtype == torch.float64


def test_through_several_conversions() -> None:
    model = hung()
    for spec in ("aug(phi=1.5)", "robustbn", "pop", "gn(groups=2)"):
        geonorm.convert(model, spec)
        assert model[1].lr_scale == 3.0
        assert model[1].gate.max() == 2
    geonorm.revert(model)
    assert model[1].lr_scale == 3.0
    assert type(model[1]) is nn.BatchNorm2d


def test_a_name_that_the_new_layer_uses_is_told() -> None:
    model = conv_net()
    model[1].guard, model[1].alpha = "mine", nn.Parameter(torch.ones(3))
    report = geonorm.convert(model, "aug(phi=1.5)")
    assert any("guard" in note and "alpha" in note for note in report.notes), report
    assert model[1].guard is None
    geonorm.revert(model)
    assert model[1].guard == "mine"
    assert model[1].alpha.shape == (3,)


class TestHooksOfTheState:
    def hooked(self, seen: list[str]) -> nn.Sequential:
        model = conv_net()
        model[1].register_state_dict_pre_hook(lambda module, *_: seen.append(f"before {type(module).__name__}"))
        model[1].register_state_dict_post_hook(lambda module, *_: seen.append(f"after {type(module).__name__}"))
        model[1].register_load_state_dict_pre_hook(lambda module, *_: seen.append(f"load {type(module).__name__}"))
        model[1].register_load_state_dict_post_hook(lambda module, keys: seen.append(f"done {type(module).__name__}"))
        return model

    def test_they_go_along_and_come_back(self) -> None:
        seen: list[str] = []
        model = self.hooked(seen)
        handle = model[1].register_state_dict_post_hook(lambda *_: seen.append("removed"))
        geonorm.convert(model, "aug(phi=1.5)")
        handle.remove()  # the user's handle still removes it
        for kind in ("AugBatchNorm2d", "BatchNorm2d"):
            seen.clear()
            model.load_state_dict(model.state_dict())
            assert seen == [f"{when} {kind}" for when in ("before", "after", "load", "done")]
            geonorm.revert(model)

    def test_they_stay_where_nothing_has_a_state(self) -> None:
        seen: list[str] = []
        model = self.hooked(seen)
        report = geonorm.convert(model, "pop")
        assert any("state_dict" in note for note in report.notes)
        seen.clear()
        model.state_dict()
        assert not seen
        geonorm.revert(model)
        seen.clear()
        model.state_dict()
        assert seen == ["before BatchNorm2d", "after BatchNorm2d"]


class TestFreezeBetween:
    def test_pop_freeze_revert(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        geonorm.convert(model, "pop")
        geonorm.freeze(model, affine=True)
        geonorm.revert(model)
        assert not any(p.requires_grad for p in model[1].parameters())
        before = copy_state(model)
        model.train()(torch.randn(2, 3, 5, 5))
        assert has_state(model, before)
        geonorm.unfreeze(model)
        assert all(p.requires_grad for p in model.parameters())

    def test_what_the_user_stopped_stays_stopped(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        model[1].weight.requires_grad_(False)
        geonorm.convert(model, "pop")
        geonorm.freeze(model, affine=True)
        geonorm.revert(model)
        geonorm.unfreeze(model)
        assert (model[1].weight.requires_grad, model[1].bias.requires_grad) == (False, True)

    def test_statistics_alone(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        geonorm.convert(model, "pop")
        geonorm.freeze(model)
        geonorm.revert(model)
        model.train()(torch.randn(2, 3, 5, 5))
        assert model[1].num_batches_tracked == 0
        assert model[1].weight.requires_grad
