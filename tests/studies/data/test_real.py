"""The real tables, where they are at hand: counts that others have published."""

import functools
import os

import pytest

from geonorm.lab.data import load, sources

pytestmark = pytest.mark.skipif(
    not os.environ.get("GEONORM_DATA"), reason="needs real data: set GEONORM_DATA to the folder that holds them"
)


@functools.cache
def real(name: str, **options):
    if not next(source for source in sources() if source.name == name).at_hand:
        pytest.skip(f"{name} is not in GEONORM_DATA")
    return load(name, **options)


def test_compas() -> None:
    task = real("compas", target="two_year_recid")
    assert (task.pool().y == 1).sum() == 3251  # ProPublica's count
    assert (len(task.train), len(task.test)) == (5049, 2165)


@pytest.mark.slow
def test_adult() -> None:
    task = real("adult")
    assert (len(task.train), len(task.test)) == (32561, 16281)
    assert (task.train.y == 1).sum() == 7841  # 24.08 %: adult.names
    assert (task.test.y == 1).sum() == 3846
