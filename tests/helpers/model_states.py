"""A copy of a model's state, a comparison with it, and a small model to try both on."""

import torch
from torch import Tensor, nn


def copy_state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def has_state(model: nn.Module, before: dict[str, Tensor]) -> bool:
    after = model.state_dict()
    return before.keys() == after.keys() and all(torch.equal(after[key], before[key]) for key in before)


@torch.no_grad()
def eval_outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return model.eval()(*inputs)


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8)
    )
