"""Weight standardization with a GroupNorm after each convolution, as its authors use it (Qiao et al., 2019)."""

from __future__ import annotations

from torch import nn

from geonorm.nn import weight_standardization

STANDARDIZED = "ws_gn"  # its name among the norms of a study
FOLLOWED_BY = {STANDARDIZED: "gn", f"{STANDARDIZED}(groups=4)": "gn(groups=4)"}  # the norms after the convolutions


def standardize_convolutions(model: nn.Module) -> None:
    """Standardize the weights of all convolutions, in place."""
    for module in list(model.modules()):
        if isinstance(module, nn.Conv2d):
            weight_standardization(module)
