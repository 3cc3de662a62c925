"""Records of a monitor: the file, TensorBoard, and the result."""

from __future__ import annotations

import builtins
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geonorm.analysis import Growth, Monitor
from helpers.small_training import records_of_steps, sgd, small_net, train_steps


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


def test_a_result_is_a_table_a_dict_and_a_picture() -> None:
    model = small_net()
    optimizer = sgd(model, weight_decay=0.01)
    with Monitor(model, optimizer, every=1) as monitor:
        train_steps(model, monitor, optimizer)
    found = monitor.result()
    assert "0.weight" in found.table()
    assert "lag of mean" in found.table()
    assert json.loads(json.dumps(found.to_dict()))["records"] == found.records
    assert len(found.plot().axes) == 3
    assert Growth([]).plot().axes
    assert Growth([]).rows() == []


def test_steps_are_counted_on_from_the_file(tmp_path) -> None:
    for _ in range(2):
        records_of_steps(lambda p: torch.optim.SGD(p, lr=0.1), file=tmp_path / "log", steps=3)
    assert [record["step"] for record in Growth.read(tmp_path / "log").records] == list(range(6))


@pytest.mark.parametrize("line", ["[1]", '{"a": 1}', "words"])
def test_files_of_something_else_are_refused(tmp_path, line: str) -> None:
    (tmp_path / "log").write_text(f'{{"step": 0, "loss": null, "weights": {{}}, "norms": {{}}}}\n{line}\n')
    with pytest.raises(ValueError, match="line 2"):
        Growth.read(tmp_path / "log")
