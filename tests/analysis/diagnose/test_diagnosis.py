"""How a diagnosis is shown: as text, in notebooks, as JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from geonorm.analysis import diagnose
from helpers.planted_faults import faults_in_use


def noisy_classifier(scale: float) -> tuple[nn.Module, list[Any]]:
    model, batches = faults_in_use.trained("mlp")
    return model.eval(), [(scale * x, y) for x, y in batches]


def test_text_is_wrapped_between_words_and_coloured_if_asked() -> None:
    found = diagnose(*noisy_classifier(30.0), fix=True)
    for width in (60, 100):
        assert max(len(line) for line in found.text(width).splitlines()) <= width
    assert "\x1b[" not in str(found)
    assert "\x1b[1;3" in found.text(color=True)
    assert found.text(60).replace("\n", " ").split() == found.text(100).replace("\n", " ").split()


def test_healthy_says_what_would_have_been_noticed() -> None:
    found = diagnose(*faults_in_use.trained("mlp"))
    assert "Healthy" in str(found)
    assert "Would have noticed" in str(found)
    assert len(found.noticed) > 25
    assert len(diagnose(nn.BatchNorm1d(4), torch.randn(64, 4), synthetic=True).noticed) < len(found.noticed)


def test_notebooks_and_json() -> None:
    found = diagnose(*noisy_classifier(30.0), fix=True)
    assert '<b class="error">ERROR</b>' in found._repr_html_() or "WARNING" in found._repr_html_()
    told = found.to_dict()
    assert told["after"]["findings"] is not None
    assert "fixed" not in told
    assert told["evaluation"]["agreement"]["predictions"]["share"] >= 0
