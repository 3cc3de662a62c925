"""A callback for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError("expected transformers for geonorm.integrations.huggingface; pip install transformers") from error

from .training_watch import TrainingWatch

__all__ = ["GeonormCallback"]


class GeonormCallback(TrainerCallback):
    """Watches the normalization of a model that a transformers ``Trainer`` trains.

        watch = TrainingWatch(screen=True, recalibrate=True, guard=3.0, log=wandb.log)
        Trainer(model, args, train_dataset=data, callbacks=[GeonormCallback(watch)]).train()

    A ``Trainer`` passes no loss to its callbacks, so there is no curve of it here.

    Args:
        watch: what to record and what to run; by default it records every 50th step.
    """

    def __init__(self, watch: TrainingWatch | None = None) -> None:
        self.watch = TrainingWatch() if watch is None else watch

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        self.watch.start(
            given["model"],
            given["optimizer"],
            given["train_dataloader"],
            processes=args.world_size,
            is_first=state.is_world_process_zero,
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        self.watch.step(given["model"], given["train_dataloader"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        self.watch.end(given["model"], given["train_dataloader"])
