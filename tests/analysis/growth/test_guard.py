"""Pulled samples of guarded norms, as a monitor records them."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Monitor
from helpers.small_training import seeded_randn, small_net


class TestGuard:
    def steps(self, monitor: Monitor, model: nn.Module, far: list[int]) -> None:
        """One step for each entry: that many samples far away, among 32."""
        for step, number in enumerate(far):
            x = seeded_randn(32, 4, seed=step)
            x[:number] *= 1000
            model(x).square().mean().backward()
            monitor.step()

    def guarded(self, **options: float) -> nn.Sequential:
        return nn.Sequential(geonorm.AugBatchNorm1d(4, phi=2.0, guard=10.0, **options), nn.Linear(4, 2)).double()

    def test_pulled_samples_of_each_recorded_step(self) -> None:
        model = self.guarded()
        self.steps(Monitor(nn.Linear(2, 2)), model, [5])  # before the watch begins: not its business
        with Monitor(model, every=2) as monitor:
            self.steps(monitor, model, [3, 7, 0, 1, 2])
        found = monitor.result()
        assert found.series("norms", "0", "pulled") == ([0, 2, 4], [3, 0, 2])
        assert found.series("norms", "0", "pull_rate") == ([0, 2, 4], [1.0, 2 / 3, 4 / 5])
        assert found.series("norms", "0", "not_finite")[1] == [0, 0, 0]
        lines = found.table().splitlines()
        assert lines[0].split("  ")[-3:] == ["pulled", "not finite", "batches with a pull"]
        assert lines[-1].split()[-3:] == ["2", "0", "0.8"]
        assert len(found.plot().axes) == 4

    def test_samples_that_are_not_finite(self) -> None:
        model = self.guarded()
        x = seeded_randn(32, 4)
        x[3] = math.nan
        with Monitor(model) as monitor:
            model(x)
            model(x)  # two micro-batches of one step
            monitor.step()
        assert monitor.result().records[0]["norms"]["0"]["not_finite"] == 2

    def test_moments_are_those_of_the_pulled_samples(self) -> None:
        model = self.guarded(momentum=1.0)
        x = seeded_randn(32, 4)
        x[3] *= 1000
        model(x)
        with Monitor(model) as monitor:
            model(x)
            monitor.step()
        record = monitor.result().records[0]["norms"]["0"]
        assert record["lag_mean"] < 1e-6
        assert record["lag_var"] < 0.05  # n/(n − 1)

    def test_pop_norm_is_watched_and_plain_ones_have_no_such_columns(self) -> None:
        model = nn.Sequential(geonorm.PopNorm1d(4, guard=10.0), nn.Linear(4, 2)).double()
        with Monitor(model) as monitor:
            self.steps(monitor, model, [3])
        assert monitor.result().records[0]["norms"]["0"]["pulled"] == 3
        with Monitor(small_net()) as monitor:
            monitor.step()
        assert "pulled" not in monitor.result().table()

    def test_pulls_all_the_time_warn_once_and_tell_the_cure(self) -> None:
        model = self.guarded()
        with Monitor(model, every=1) as monitor:
            self.steps(monitor, model, [1] * 19)  # too early
            with pytest.warns(
                UserWarning, match=r"norm 0 \(guard=10\) pulled samples in 20 of 20 .* guard=20"
            ) as caught:
                self.steps(monitor, model, [1] * 6)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert "geonorm.screen" in str(caught[0].message)

    def test_half_of_the_batches_is_no_reason_to_warn(self) -> None:
        model = self.guarded()
        with Monitor(model, every=5) as monitor, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.steps(monitor, model, [0, 1] * 25)
        assert not caught
        steps, rates = monitor.result().series("norms", "0", "pull_rate")
        assert steps[-1] == 45
        assert rates[-1] == pytest.approx(0.5, abs=0.05)

    def test_steps_that_are_not_recorded_count_for_the_warning(self) -> None:
        model = self.guarded()
        with Monitor(model, every=30) as monitor, pytest.warns(UserWarning, match="31 of 31"):
            self.steps(monitor, model, [1] * 31)

    def test_nothing_is_read_in_steps_that_are_not_recorded(self, monkeypatch) -> None:
        model = self.guarded()
        with Monitor(model, every=100) as monitor:
            self.steps(monitor, model, [1])
            read = []
            with monkeypatch.context() as patched:
                for name in ("tolist", "item", "__bool__", "__float__", "__int__"):
                    patched.setattr(torch.Tensor, name, lambda tensor, name=name: read.append(name))
                for _ in range(5):
                    monitor.step()
        assert not read
        assert [record["step"] for record in monitor.result().records] == [0]
