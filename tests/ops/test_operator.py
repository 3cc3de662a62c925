"""The registered operator behaves as torch expects of one."""

import pytest
import torch
from torch.func import vmap

from geonorm.ops import Segments, center

X = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
BATCH = torch.tensor([0, 2, 2, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("phi", [torch.tensor(1.5), torch.tensor([[1.0], [1.5], [2.0], [torch.inf]])])
@pytest.mark.parametrize("sweeps", [None, 3])
def test_opcheck_rows(phi: torch.Tensor, dtype: torch.dtype, sweeps: int | None) -> None:
    weight = torch.rand(X.shape, dtype=dtype)
    for given in (None, weight):
        torch.library.opcheck(torch.ops.geonorm.center, (X.to(dtype), phi.double(), given, None, 0, sweeps))


@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, torch.inf])
def test_opcheck_segments(phi: float) -> None:
    torch.library.opcheck(torch.ops.geonorm.center, (X, torch.tensor(phi), None, BATCH, 5, None))


def test_a_mapped_batch_vector_is_refused() -> None:
    with pytest.raises(RuntimeError, match="same `batch` vector"):
        vmap(lambda b: center(X, 1.5, None, Segments(b, 5)).center)(BATCH.expand(2, -1))


def test_vmap_of_segments() -> None:
    stacked = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(1))
    mapped = vmap(lambda x: center(x, 1.5, None, Segments(BATCH, 5)).center)(stacked)
    looped = torch.stack([center(x, 1.5, None, Segments(BATCH, 5)).center for x in stacked])
    torch.testing.assert_close(mapped, looped)
