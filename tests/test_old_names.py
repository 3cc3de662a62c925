"""Names that changed: the old one works until it goes, and says so where it was written."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import geonorm
from geonorm.functional import aug_norm, center, center_with_info, pop_norm, segment_center, segment_spread, spread

X, SHARE, BATCH = torch.randn(6, 3), torch.rand(6, 3) + 0.1, torch.tensor([0, 0, 0, 1, 1, 1])
CALLS: dict[str, Callable[..., Tensor]] = {
    "center": lambda **given: center(X, 1.5, 0, **given),
    "center_with_info": lambda **given: center_with_info(X, 1.5, 0, **given).center,
    "spread": lambda **given: spread(X, "rms", 0, **given),
    "segment_center": lambda **given: segment_center(X, 1.5, BATCH, **given),
    "segment_spread": lambda **given: segment_spread(X, "rms", BATCH, **given),
    "AugBatchNorm1d": lambda **given: geonorm.AugBatchNorm1d(3)(X, **given),
    "AugInstanceNorm1d": lambda **given: geonorm.AugInstanceNorm1d(6)(X, **given),
    "AugLayerNorm": lambda **given: geonorm.AugLayerNorm(3)(X, **given),
    "AugGroupNorm": lambda **given: geonorm.AugGroupNorm(1, 3)(X, **given),
    "AugGraphNorm": lambda **given: geonorm.AugGraphNorm(3)(X, BATCH, **given),
    "PopNorm1d": lambda **given: geonorm.PopNorm1d(3)(X, **given),
    "PopInstanceNorm1d": lambda **given: geonorm.PopInstanceNorm1d(6)(X[None], **given),
    "PopGroupNorm": lambda **given: geonorm.PopGroupNorm(1, 3)(X, **given),
}


@pytest.mark.parametrize("name", CALLS)
def test_weight_is_element_weight(name: str) -> None:
    call = CALLS[name]
    with pytest.warns(
        DeprecationWarning, match=r"weight= is now element_weight=; weight= will be removed in 0\.3"
    ) as seen:
        found = call(weight=SHARE)
    assert [warning.filename for warning in seen] == [__file__]
    assert torch.equal(found, call(element_weight=SHARE))
    assert not torch.equal(found, call())
    assert torch.equal(call(weight=None), call())
    with pytest.raises(TypeError, match="got weight too, which is its old name"):
        call(weight=SHARE, element_weight=SHARE)


def test_recalibrate_counts_what_the_old_name_says() -> None:
    old, new = geonorm.AugBatchNorm1d(3), geonorm.AugBatchNorm1d(3)
    with pytest.warns(DeprecationWarning, match="element_weight"):
        geonorm.recalibrate(old, [X], lambda layer, x: layer(x, weight=SHARE))
    geonorm.recalibrate(new, [X], lambda layer, x: layer(x, element_weight=SHARE))
    assert all(torch.equal(*pair) for pair in zip(old.buffers(), new.buffers(), strict=True))


@pytest.mark.parametrize(
    ("old", "new"),
    [("survival", "activation_effect"), ("Survival", "ActivationEffect"), ("Arrival", "OperationInput")],
)
def test_old_names_of_activation_effect(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}; {old} will be removed in 0\.3"):
        found = getattr(geonorm.analysis, old)
    assert found is getattr(geonorm.analysis, new)


def test_the_old_name_in_a_diagnosis() -> None:
    diagnosis = geonorm.diagnose(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)), torch.randn(8, 3))
    with pytest.warns(DeprecationWarning, match="activation_effect"):
        assert diagnosis.survival is diagnosis.activation_effect


@pytest.mark.parametrize("norm", [aug_norm, pop_norm])
def test_interior_is_phi_strictly_inside(norm: Callable[..., tuple[Tensor, object]]) -> None:
    phi = torch.tensor(1.5)
    message = r"interior= is now phi_strictly_inside=; interior= will be removed in 0\.3"
    with pytest.warns(DeprecationWarning, match=message) as seen:
        found, _ = norm(X, 0, phi, interior=True)
    assert [warning.filename for warning in seen] == [__file__]
    assert torch.equal(found, norm(X, 0, phi, phi_strictly_inside=True)[0])
