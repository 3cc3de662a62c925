"""The number of sweeps where nobody may look at the data: enough for hostile data."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from geonorm.ops import Axes
from geonorm.ops.torch.center import center, fixed_sweeps
from helpers.oracles import hostile_groups


def hostile(members: int) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(members)
    x = rng.standard_normal((100, members))
    made_up = hostile_groups(rng, 100, members)
    outlier = x.copy()
    outlier[:, 0] = 1e6
    return {
        "normal": x,
        "one outlier": outlier,
        "rectified": np.maximum(x, 0),
        "sparse": np.maximum(x - 1.28, 0),
        "long tail": np.exp(2 * x),
        "rounded": np.round(8 * x) / 8,
        "offset": x + 1e4,
        "Cauchy": rng.standard_cauchy(x.shape),
        "two clusters": np.where(rng.random(x.shape) < 0.5, 0, 1) + 1e-3 * x,
        "hostile": made_up / np.abs(made_up).max(1, keepdims=True).clip(1e-300),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("phi", [1.05, 1.1, 1.2, 1.35, 1.5, 1.6, 1.75, 2.5, 20.0])
def test_fixed_sweeps_are_enough(phi: float, dtype: torch.dtype) -> None:
    """Within 1e-6 standard deviations of the truth, or what rounding hides from the adaptive solver as well."""
    for members in (3, 8, 16, 40, 257):
        for name, values in hostile(members).items():
            x = torch.from_numpy(values).to(dtype)
            truth, adaptive = center(x.double(), phi, None, Axes((1,))), center(x, phi, None, Axes((1,)))
            found = center(x, phi, None, Axes((1,)), fixed_sweeps(phi))
            error = (found.center.double() - truth.center).abs()
            allowed = 1e-6 * x.double().std(1, keepdim=True) + adaptive.bound
            assert (error <= allowed).all(), f"{name}, {members} values"
            assert (error <= found.bound + truth.bound).all(), f"{name}, {members} values"
