"""Our attacks against torchattacks, to rounding. Run by `make test-compat`."""

import pytest
import torch
from torch import nn

from geonorm.robust import bim, fgsm, pgd

ATTACKS = {"fgsm": fgsm, "bim": bim, "pgd": pgd}


@pytest.fixture(autouse=True)
def _torchattacks() -> None:
    pytest.importorskip("torchattacks")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("seed", range(5))
def test_the_same_attack(name: str, dtype: torch.dtype, tolerance: float, seed: int) -> None:
    model = net().to(dtype).train()
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)
    labels = torch.arange(16) % 4
    found = []
    for backend in ("own", "torchattacks", "auto"):
        torch.manual_seed(seed)
        found.append(ATTACKS[name](model, x, labels, 8 / 255, backend=backend))
    own, outside, chosen = found
    assert torch.equal(outside, chosen)
    assert float((own - x).abs().max()) > 7 / 255
    torch.testing.assert_close(own, outside, rtol=0, atol=tolerance)


def test_modes_are_put_back_one_by_one() -> None:
    """torchattacks itself sends every module into training afterwards, frozen norms too."""
    model = net().train()
    model[1].eval()
    fgsm(model, torch.rand(2, 3, 8, 8), torch.tensor([0, 1]), backend="torchattacks")
    assert [module.training for module in model] == [True, False, True, True, True, True]
