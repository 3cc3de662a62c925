"""The callback in a training by Lightning. Run by `make test-compat`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from geonorm.integrations import TrainingWatch

lightning = pytest.importorskip("lightning.pytorch", reason="run by `make test-compat`")


class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data() -> DataLoader:
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    x[:4] *= 1000
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=32, shuffle=True)


def fit(folder: Path, watch: TrainingWatch, **options):
    from lightning.pytorch.loggers import CSVLogger

    from geonorm.integrations.lightning import GeonormCallback

    logger = CSVLogger(folder)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=logger,
        callbacks=[GeonormCallback(watch)],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
        **options,
    )
    module = Module()
    trainer.fit(module, data())
    return module, Path(logger.log_dir) / "metrics.csv"


pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about workers and the like


def test_everything_at_once(tmp_path: Path) -> None:
    watch = TrainingWatch(every=4, diagnose_every=8, screen=True, recalibrate=True, guard=3.0)
    module, metrics = fit(tmp_path, watch)
    assert watch.monitor is not None
    records = watch.monitor.result().records
    assert [record["step"] for record in records] == [0, 4, 8, 12]
    assert all(record["loss"] is not None for record in records)
    assert next(iter(records[-1]["weights"].values()))["predicted"] is not None
    assert watch.screening is not None
    assert sorted(watch.screening.indices) == [0, 1, 2, 3]
    assert list(watch.diagnoses) == [8, 16]
    assert watch.recalibration is not None
    assert module.net[1].running_var.max() < 100
    assert "geonorm/effective_rate" in metrics.read_text()


def test_accumulated_gradients_make_fewer_steps(tmp_path: Path) -> None:
    watch = TrainingWatch(every=1)
    fit(tmp_path, watch, accumulate_grad_batches=4)
    assert watch.monitor is not None
    assert len(watch.monitor.result().records) == 4
