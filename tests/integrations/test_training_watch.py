"""What the callbacks of all frameworks do, without a framework."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import geonorm
from geonorm.analysis import Growth
from geonorm.integrations import TrainingWatch
from geonorm.integrations.training_watch import in_order


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def loader(broken: int = 0) -> DataLoader:
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    x[:broken] *= 1000
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=32, shuffle=True)


def train(watch: TrainingWatch, model: nn.Module, data: DataLoader, epochs: int = 1, **start) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch.start(model, optimizer, data, **start)
    for _ in range(epochs):
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(model, data, loss)
    watch.end(model, data)
    return model


def test_training_is_what_it_is_without_a_watch() -> None:
    results = []
    for watch in (TrainingWatch(every=None), TrainingWatch(every=1, diagnose_every=3, screen=True)):
        results.append(train(watch, net(), loader(), epochs=2).state_dict())
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


def test_curves_and_file(tmp_path: Path) -> None:
    sent: list[tuple[dict[str, float], int]] = []
    watch = TrainingWatch(every=4, file=tmp_path / "log.jsonl", log=lambda values, step: sent.append((values, step)))
    train(watch, net(), loader())
    assert [step for _, step in sent] == [0, 4]
    assert {"geonorm/loss", "geonorm/effective_rate", "geonorm/gamma_gap", "geonorm/lag"} <= sent[0][0].keys()
    assert len(sent[0][0]) <= 8
    assert len(Growth.read(tmp_path / "log.jsonl").records) == 2


def test_the_broken_samples_are_named_by_their_index_in_the_data_set(caplog: pytest.LogCaptureFixture) -> None:
    watch = TrainingWatch(screen=True)
    with caplog.at_level(logging.WARNING, "geonorm"):
        train(watch, net(), loader(broken=5))
    assert watch.screening is not None
    assert sorted(watch.screening.indices) == list(range(5))
    assert "5 of 256 samples look broken" in caplog.text


def test_a_finding_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    model[1].momentum = 0.0
    watch = TrainingWatch(diagnose_every=4)
    with caplog.at_level(logging.WARNING, "geonorm"):
        train(watch, model, loader(), epochs=2)
    assert list(watch.diagnoses) == [4, 8, 12, 16]
    assert caplog.text.count("momentum is 0") == 1


def test_recalibration_at_the_end_is_guarded() -> None:
    data = loader(broken=8)
    plain = train(TrainingWatch(recalibrate=True), net(), data)
    guarded = train(TrainingWatch(recalibrate=True, guard=3.0), net(), data)
    assert guarded[1].running_var.mean() < 0.01 * plain[1].running_var.mean()


def test_of_several_processes_the_first_records_and_none_runs_anything_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = (TrainingWatch(every=1, diagnose_every=1, screen=True, recalibrate=True) for _ in range(2))
    with caplog.at_level(logging.WARNING, "geonorm"):
        train(first, net(), loader(), processes=2)
        train(second, net(), loader(), processes=2, is_first=False)
    assert first.monitor is not None
    assert second.monitor is None
    assert not first.diagnoses
    assert first.screening is None
    assert "one process only" in caplog.text
    assert first.recalibration is not None
    assert second.recalibration is not None


def test_batches_that_are_dicts() -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            scores = self.inner(values)
            loss = scores.sum() if labels is None else nn.functional.cross_entropy(scores, labels)
            return {"loss": loss, "logits": scores}

    batches = [{"values": x, "labels": y} for x, y in loader()]
    model = Takes()
    assert geonorm.recalibrate(model, batches).changed[0].after == "256 values in 8 batches"
    found = geonorm.diagnose(model.eval(), batches)
    assert found.passes > 0
    assert not found.missing, found.missing
    batches[0]["values"][3] = 1e6
    assert geonorm.screen(model, batches).indices == [3]


def test_what_has_no_order_is_not_screened() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(8)

    assert in_order(DataLoader(Stream())) is None
    assert in_order(iter([torch.zeros(2, 8)])) is None
    assert in_order([torch.zeros(2, 8)]) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every >= 1"),
        ({"diagnose_every": 0}, "diagnose_every >= 1"),
        ({"batches": 0}, "batches >= 1"),
        ({"guard": 3.0}, "recalibrate=True"),
        ({"every": None, "file": "x"}, "every= with file="),
    ],
)
def test_options_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingWatch(**options)


@pytest.mark.parametrize("options", [{"diagnose_every": 1}, {"recalibrate": True}])
def test_no_batch_is_taken_away_from_the_training(options: dict) -> None:
    batches = iter([torch.zeros(2, 8)])
    with pytest.raises(TypeError, match="pass the DataLoader itself"):
        TrainingWatch(**options).start(net(), None, batches)
    assert len(list(batches)) == 1
