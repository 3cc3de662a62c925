"""A monitor of training: what it watches, what it disturbs, and which models it takes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from geonorm.analysis import Monitor
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.small_training import seeded_randn, sgd, small_net, train_steps


class Wrapper(torch.optim.Optimizer):
    """As Accelerate's: an optimizer by its class, which was never initialized as one."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict]:  # type: ignore[override]
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None) -> None:  # type: ignore[override]
        self.optimizer.step(closure)


class TestWrappers:
    def test_a_wrapped_optimizer_is_watched_as_the_one_inside(self) -> None:
        records = []
        for wrap in (lambda optimizer: optimizer, Wrapper, lambda optimizer: Wrapper(Wrapper(optimizer))):
            torch.manual_seed(0)
            model = small_net()
            optimizer = wrap(sgd(model))
            with Monitor(model, optimizer, every=1) as monitor:
                train_steps(model, monitor, optimizer, steps=2)
            records.append(monitor.result().records)
        assert records[0] == records[1] == records[2]
        assert next(iter(records[0][-1]["weights"].values()))["predicted"] is not None

    def test_what_is_no_optimizer_is_refused(self) -> None:
        for wrong in (small_net(), Wrapper(None)):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"holds one as \.optimizer"):
                Monitor(small_net(), wrong)  # type: ignore[arg-type]


class TestEnemies:
    def test_no_optimizer_no_norms_no_gradients(self) -> None:
        with Monitor(small_net()) as monitor:
            monitor.step(torch.tensor(1.5))
        record = monitor.result().records[0]
        assert record["loss"] == 1.5
        assert record["weights"]["0.weight"]["effective_rate"] is None
        assert record["norms"]["1"]["gamma_gap"] is None
        with Monitor(nn.Linear(2, 2)) as monitor:
            monitor.step()
        assert monitor.result().records[0]["weights"] == {}
        assert monitor.result().table()

    def test_frozen_and_unused_weights(self) -> None:
        model = small_net()
        model[0].weight.requires_grad_(False)
        optimizer = sgd(model)
        with Monitor(model, optimizer) as monitor:
            train_steps(model, monitor, optimizer, steps=1)
        assert monitor.result().records[0]["weights"]["0.weight"]["growth"] is None

    def test_weights_in_another_optimizer(self) -> None:
        model = small_net()
        optimizer = torch.optim.SGD(model[3].parameters(), 0.1)
        with Monitor(model, optimizer) as monitor:
            train_steps(model, monitor, optimizer, steps=1)
        assert monitor.result().records[0]["weights"]["0.weight"]["predicted"] is None

    def test_parametrized_weights(self) -> None:
        """The direction of a weight-normalized weight is scale invariant per row, whatever follows."""
        torch.manual_seed(0)
        model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)).double()
        optimizer = sgd(model)
        with Monitor(model, optimizer, every=1) as monitor:
            train_steps(model, monitor, optimizer)
        (found,) = monitor.result().records[-1]["weights"].values()
        assert found["unit"] == "row"
        assert found["growth"] == pytest.approx(found["predicted"], rel=1e-6)

    def test_transposed_convolutions_have_rows_in_dimension_1(self) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.ConvTranspose2d(3, 4, 2, bias=False), nn.BatchNorm2d(4, eps=1e-12)).double()
        optimizer = sgd(model)
        with Monitor(model, optimizer) as monitor:
            (model(seeded_randn(3, 3, 4, 4)) * seeded_randn(3, 4, 5, 5, seed=1)).sum().backward()
            optimizer.step()
            monitor.step()
        (found,) = monitor.result().records[0]["weights"].values()
        assert found["growth"] == pytest.approx(found["predicted"], rel=1e-6)
        assert monitor.result().records[0]["norms"]["1"]["gamma_gap_unit"] is not None

    def test_half_precision(self) -> None:
        model = small_net().to(torch.bfloat16)
        optimizer = sgd(model)
        with Monitor(model, optimizer) as monitor:
            model(seeded_randn(16, 4).to(torch.bfloat16)).float().square().mean().backward()
            optimizer.step()
            monitor.step()
        found = monitor.result().records[0]
        assert found["weights"]["0.weight"]["growth"] is not None
        assert found["norms"]["1"]["gamma_gap"] > 0

    def test_shared_norms_and_weights_are_told_once(self) -> None:
        norm = nn.BatchNorm1d(4)
        model = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm)
        with Monitor(model) as monitor:
            model(torch.randn(8, 4))
            monitor.step()
        assert list(monitor.result().records[0]["norms"]) == ["1"]

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="every >= 1"):
            Monitor(small_net(), every=0)
        with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
            Monitor("model")
        monitor = Monitor(small_net())
        monitor.close()
        with pytest.raises(RuntimeError, match="create a new one"):
            monitor.step()


def test_only_every_nth_step_is_recorded_and_others_have_no_hooks() -> None:
    model = small_net()
    optimizer = sgd(model)
    with Monitor(model, optimizer, every=3) as monitor:
        train_steps(model, monitor, optimizer, steps=8)
        assert not model[1]._forward_pre_hooks
        assert not optimizer._optimizer_step_pre_hooks
    assert [record["step"] for record in monitor.result().records] == [0, 3, 6]


def test_training_goes_as_without_a_monitor() -> None:
    """Bit by bit, dropout included; and afterwards nothing of it is left on model or optimizer."""
    ends = []
    for watched in (True, False):
        model = small_net()
        model.insert(3, nn.Dropout(0.3))
        optimizer = sgd(model, momentum=0.9)
        torch.manual_seed(5)
        if watched:
            with Monitor(model, optimizer, every=2) as monitor:
                train_steps(model, monitor, optimizer)
        else:
            train_steps(model, None, optimizer)
        assert not any(module._forward_pre_hooks for module in model.modules())
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
    model = small_net().eval()
    with assert_model_unchanged(model), pytest.warns(UserWarning, match="evaluation"):
        Monitor(model).close()


def test_evaluation_between_steps_does_not_count() -> None:
    model = small_net()
    optimizer = sgd(model)
    monitor = Monitor(model, optimizer)
    model.eval()(seeded_randn(8, 4) + 100)
    model.train()
    train_steps(model, monitor, optimizer, steps=1)
    assert monitor.result().records[0]["norms"]["1"]["beta_gap"] < 10


def test_copies_are_not_watched() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    with Monitor(model):
        twin = copy.deepcopy(model)
        saved = pickle.loads(pickle.dumps(model))
        for other in (twin, saved):
            assert all(hook.watch is None for hook in other[1]._forward_pre_hooks.values())
            other(torch.randn(8, 4))
            assert len(other[1]._forward_pre_hooks) == len(other[1]._forward_pre_hooks_with_kwargs) == 0
        assert len(model[1]._forward_pre_hooks) == 1
