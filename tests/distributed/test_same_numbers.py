"""The same numbers on N processes as on one."""

from __future__ import annotations

import pytest

from helpers import distributed_layer_cases as cases
from helpers.process_group import run_in_processes


def quick(rank: int, size: int) -> tuple[list[str], bool]:
    return cases.mismatches(rank, size, list(cases.some_cases())), cases.fails_without_a_group(rank, size)


def test_two_processes() -> None:
    for found, noticed in run_in_processes(2, quick):
        assert not found, "\n".join(found)
        assert noticed


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_case(size: int) -> None:
    for found in run_in_processes(size, cases.mismatches, list(cases.all_cases()), timeout=600):
        assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_two_hundred_random_configurations(size: int) -> None:
    for found in run_in_processes(size, cases.mismatches, list(cases.random_cases(size, 67)), timeout=600):
        assert not found, "\n".join(found)
