"""A small model, and whether a model is still as it was."""

import torch
from torch import Tensor, nn


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def same_state(model: nn.Module, before: dict[str, Tensor]) -> bool:
    after = model.state_dict()
    return before.keys() == after.keys() and all(torch.equal(after[key], before[key]) for key in before)


@torch.no_grad()
def outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return model.eval()(*inputs)


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8)
    )
