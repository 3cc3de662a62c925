"""What a monitor writes, and what it bears."""

from __future__ import annotations

import builtins
import json
import math
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.analysis import Growth, Monitor
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


class TestFile:
    def test_lines_are_there_at_once_and_are_appended(self, tmp_path: Path) -> None:
        file, model = tmp_path / "growth.jsonl", small_net()
        for number in (1, 2):
            optimizer = sgd(model)
            monitor = Monitor(model, optimizer, every=1, file=file)
            train_steps(model, monitor, optimizer, steps=2)
            assert len(file.read_text().splitlines()) == 2 * number  # before close
            monitor.close()
        assert Growth.read(file).records[2:] == monitor.result().records

    def test_a_kill_loses_nothing_that_was_recorded(self, tmp_path: Path) -> None:
        file = tmp_path / "growth.jsonl"
        script = (
            "import itertools, sys, torch\n"
            "from geonorm.analysis import Monitor\n"
            "model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "monitor = Monitor(model, optimizer, every=1, file=sys.argv[1])\n"
            "for step in itertools.count():\n"
            "    optimizer.zero_grad(); model(torch.randn(8, 4)).square().mean().backward(); optimizer.step()\n"
            "    monitor.step()\n"
            "    if step == 5: print('on its way', flush=True)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script, str(file)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "on its way\n"
            os.kill(child.pid, signal.SIGKILL)
        *whole, last = file.read_text().split("\n")
        steps = [json.loads(line)["step"] for line in whole]
        assert steps == list(range(len(steps)))
        assert len(steps) >= 6
        file.write_text("\n".join([*whole, (last or whole[-1])[:40]]))  # at worst a torn line
        monitor = Monitor(small_net(), file=file)
        monitor.step()
        monitor.close()
        assert [record["step"] for record in Growth.read(file).records] == [*steps, len(steps)]

    def test_nan_is_valid_json(self, tmp_path: Path) -> None:
        model = small_net()
        optimizer = sgd(model)
        model[0].weight.data[0] = math.nan
        with Monitor(model, optimizer, file=tmp_path / "growth.jsonl") as monitor:
            train_steps(model, monitor, optimizer, steps=1)
        text = (tmp_path / "growth.jsonl").read_text()
        assert "NaN" not in text
        assert json.loads(text)["weights"]["0.weight"]["norm"] is None


class TestCurves:
    def test_a_function_and_a_writer_get_the_same_few_curves(self) -> None:
        class Writer:
            def __init__(self) -> None:
                self.calls: dict[int, dict[str, float]] = {}

            def add_scalar(self, name: str, value: float, step: int) -> None:
                self.calls.setdefault(step, {})[name] = value

        model, writer, sent = small_net(), Writer(), {}
        optimizer = sgd(model, weight_decay=0.1)
        log = lambda values, step: sent.update({step: values})  # noqa: E731
        with Monitor(model, optimizer, every=2, log=log, tensorboard=writer) as monitor:
            train_steps(model, monitor, optimizer, steps=3)
        assert sent == writer.calls
        assert list(sent) == [0, 2]
        record = monitor.result().records[-1]
        weight = record["weights"]["0.weight"]
        expected = {
            "geonorm/loss": record["loss"],
            "geonorm/effective_rate": weight["effective_rate"],
            "geonorm/over_equilibrium": weight["norm"] / weight["equilibrium"],
            "geonorm/gamma_gap": record["norms"]["1"]["gamma_share_unit"],
            "geonorm/lag": record["norms"]["1"]["lag_mean"],
        }
        assert sent[2] == expected

    def test_a_log_that_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"such as wandb\.log"):
            Monitor(small_net(), log="runs")  # type: ignore[arg-type]

    def test_without_the_package_the_error_says_what_to_install(self, monkeypatch, tmp_path: Path) -> None:
        real = builtins.__import__

        def without(name: str, *rest):
            if name.startswith(("tensorboard", "torch.utils.tensorboard")):
                raise ImportError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match="pip install tensorboard"):
            Monitor(small_net(), tensorboard=tmp_path)


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
