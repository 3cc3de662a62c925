"""Running a model to observe it: what it costs other devices."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from geonorm.introspect.observe import random_state_restored, state_restored
from helpers.pretend_cuda import pretend_cuda


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_the_gpu_of_the_model_is_asked_for_its_random_state(device: str) -> None:
    """torch's own context asks all of them, which starts each, and warns on a machine with several."""
    asked: list[object] = []
    with pretend_cuda(number=8), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_rng_state", lambda gpu: asked.append(gpu) or torch.zeros(1, dtype=torch.uint8))
        model = nn.Linear(2, 2).to(device)
        with state_restored(model):
            pass
        with random_state_restored(model.weight):
            pass
    assert asked == ([] if device == "cpu" else [0, 0])


def test_random_numbers_of_the_cpu_are_restored() -> None:
    torch.manual_seed(3)
    with random_state_restored(nn.Linear(2, 2)):
        first = torch.rand(2)
    torch.manual_seed(3)
    nn.Linear(2, 2)
    assert torch.equal(torch.rand(2), first)
