"""Findings about the data: padding, outliers, and none where the inputs are synthetic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import diagnose
from helpers.findings import severity_by_kind
from helpers.planted_faults import faults


def test_made_up_inputs_say_nothing_about_data() -> None:
    model, batches = faults.healthy()
    with torch.no_grad():
        model.norm.running_mean += 3
    assert "stale statistics" in severity_by_kind(model, batches)
    assert severity_by_kind(model, [torch.randn_like(batches[0])], synthetic=True) == {}


def test_outliers_that_the_norm_bears_are_a_note() -> None:
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    x[::20] += 30
    found = {}
    for spec in ("bn", "robustbn"):
        model = geonorm.create_norm(spec, 8, dim=1)
        found[spec] = next(one for one in diagnose(model, x).findings if one.kind == "outliers")
    assert (found["bn"].severity, found["robustbn"].severity) == ("warning", "note")
    assert "guardbn" in found["bn"].advice
    assert "guardbn" not in found["robustbn"].advice


def test_token_padding_is_seen_where_a_batch_norm_counts_it() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(50, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.words(x).transpose(1, 2)).mean(2))

    torch.manual_seed(0)
    x = torch.randint(1, 50, (64, 20))
    assert "padding counts" not in {f.kind for f in diagnose(Words(), x).findings}
    padded = x * (torch.arange(20) < torch.randint(5, 21, (64, 1)))
    assert "padding counts" in {f.kind for f in diagnose(Words(), padded).findings}
