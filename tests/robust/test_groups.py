"""Accuracy per group, with groups that overlap."""

from __future__ import annotations

import pytest
import torch

from geonorm import robust


class TestGroups:
    def test_overlapping(self) -> None:
        correct = torch.tensor([True, False, True, True])
        groups = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0]]).bool()
        found = robust.group_accuracy(correct, groups)
        assert (found.average, found.worst) == (0.75, 0.5)
        assert found.per_group[3].isnan()
        assert found.counts.tolist() == [2, 2, 3, 0]

    def test_by_number(self) -> None:
        found = robust.group_accuracy(torch.tensor([True, False]), torch.tensor([0, 2]))
        assert found.worst == 0.0

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="shape"):
            robust.group_accuracy(torch.ones(3).bool(), torch.ones(2, 2).bool())
        for correct, groups in ((torch.rand(3), torch.ones(3, 2).bool()), (torch.ones(3).bool(), torch.rand(3, 2))):
            with pytest.raises(TypeError, match="expected booleans"):
                robust.group_accuracy(correct, groups)
        with pytest.raises(ValueError, match="at least one sample"):
            robust.group_accuracy(torch.ones(0).bool(), torch.ones(0, 2).bool())
