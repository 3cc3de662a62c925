"""A callback for Lightning."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer  # the same under its older name
    except ImportError as error:
        raise ImportError("expected Lightning for geonorm.integrations.lightning; pip install lightning") from error

from .training_watch import TrainingWatch

__all__ = ["GeonormCallback"]


class GeonormCallback(Callback):
    """Watches the normalization of a model that Lightning trains.

        watch = TrainingWatch(screen=True, recalibrate=True, guard=3.0)
        Trainer(callbacks=[GeonormCallback(watch)]).fit(module, loader)

    Curves go to the trainer's loggers unless ``watch`` names another function. The recalibration at the end comes after
    Lightning has written its last checkpoint: save the model again to keep it.

    Args:
        watch: what to record and what to run; by default it records every 50th step.
    """

    def __init__(self, watch: TrainingWatch | None = None) -> None:
        self.watch = TrainingWatch() if watch is None else watch
        self._steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._steps = trainer.global_step
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None

        def log(values: dict[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(values, step)

        self.watch.start(
            pl_module,
            optimizer,
            trainer.train_dataloader,
            log if trainer.loggers else None,
            processes=trainer.world_size,
            is_first=trainer.is_global_zero,
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step != self._steps:  # with accumulated gradients, not every batch ends in a step
            self._steps = trainer.global_step
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.watch.step(pl_module, trainer.train_dataloader, loss)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.watch.end(pl_module, trainer.train_dataloader)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.watch.close()
