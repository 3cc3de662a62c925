"""Statistics and affine parameters of norms drawn at random, so that nothing hides behind 0 and 1."""

from torch import nn


def randomized(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                nn.init.uniform_(buffer, -1 if "mean" in name or "center" in name else 0.5, 2)
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.uniform_(module.bias, -1, 1)
    return model.eval()
