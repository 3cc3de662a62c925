"""The callback in a training by transformers' Trainer, and optimizers of Accelerate. Run by `make test-compat`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Monitor
from geonorm.integrations import TrainingWatch

transformers = pytest.importorskip("transformers", reason="run by `make test-compat`")
accelerate = pytest.importorskip("accelerate", reason="run by `make test-compat`")
pytestmark = pytest.mark.filterwarnings("ignore")  # the packages' own


def model() -> nn.Module:
    """A small ResNet of transformers; its batches are dicts with pixel_values and labels."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config)


def data(broken: int = 3) -> list[dict[str, torch.Tensor]]:
    x = torch.rand(96, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x[:broken] *= 255
    return [{"pixel_values": image, "labels": torch.tensor(i % 4)} for i, image in enumerate(x)]


def test_everything_at_once(tmp_path: Path) -> None:
    from geonorm.integrations.huggingface import GeonormCallback

    sent: list[int] = []
    watch = TrainingWatch(
        every=2,
        diagnose_every=3,
        screen=True,
        recalibrate=True,
        guard=3.0,
        log=lambda values, step: sent.append(step),
    )
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=32, num_train_epochs=2, use_cpu=True, report_to="none",
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    net = model()
    transformers.Trainer(net, args, train_dataset=data(), callbacks=[GeonormCallback(watch)]).train()
    assert sent == [0, 2, 4]
    assert watch.screening is not None
    assert sorted(watch.screening.indices) == [0, 1, 2]
    assert list(watch.diagnoses) == [3, 6]
    assert not watch.diagnoses[6].missing, watch.diagnoses[6].missing
    assert watch.recalibration is not None
    assert "pulled" in str(watch.recalibration)


def test_verbs_take_dict_batches_as_they_come() -> None:
    net, samples = model(), data()
    batches = [
        {key: torch.stack([sample[key] for sample in samples[i : i + 32]]) for key in samples[0]} for i in (0, 32, 64)
    ]
    assert geonorm.recalibrate(net, batches).changed
    assert sorted(geonorm.screen(net, batches).indices) == [0, 1, 2]
    found = geonorm.diagnose(net.eval(), batches)
    assert not found.missing, found.missing


def test_monitor_under_accelerate() -> None:
    """The optimizer that Accelerate hands back is one by its class only."""
    net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.Linear(16, 3))
    accelerator = accelerate.Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    with Monitor(accelerator.unwrap_model(prepared), optimizer, every=1) as monitor:
        for _ in range(3):
            loss = prepared(torch.randn(16, 8)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
    assert next(iter(monitor.result().records[-1]["weights"].values()))["predicted"] is not None
