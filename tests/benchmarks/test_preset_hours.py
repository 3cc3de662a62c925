"""The arithmetic of how long a preset takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import preset_hours
from studies import estimated_hours, study
from studies.recipe import StudyRecipe


def test_operations_are_those_of_the_network() -> None:
    """Digits: 64·64 + 64·64 + 64·10 products and as many additions, three times as many with backward."""
    one = StudyRecipe(epochs=10, batch_size=50)
    operations, steps = preset_hours.work(one)
    assert operations == 3 * 2 * (64 * 64 + 64 * 64 + 64 * 10) * 1438 * 10
    assert steps == pytest.approx(287.6)
    smaller = replace(one, data="cifar10", model="resnet20", data_options={"side": 16, "train_size": 100})
    larger = replace(smaller, data_options={"side": 32, "train_size": 100})
    assert preset_hours.work(larger)[0] == pytest.approx(4 * preset_hours.work(smaller)[0], rel=0.01)


@pytest.mark.parametrize("name", ["guard-digits", "geometry-batch"])
def test_the_stored_hours_are_these(name: str) -> None:
    """`python -m benchmarks.preset_hours` writes them."""
    assert preset_hours.hours_of(study(name)) == estimated_hours()[name]
    assert preset_hours.hours_of(study("augnorm-graphs")) is None  # it was run
