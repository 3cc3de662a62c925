"""Text for terminals: nothing in it controls one."""

from __future__ import annotations

import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import geonorm
from geonorm.analysis import diagnose, summary
from geonorm.html.text import table, visible
from helpers.hostile_names import CONTROLS, uncontrolled


@given(st.text())
def test_nothing_controls_a_terminal(text: str) -> None:
    """Whatever is left is printable, a line break or a tab; and what was so stays as it is."""
    shown = visible(text)
    uncontrolled(shown)
    if all(unicodedata.category(character)[0] not in "CZ" or character in " \n\t" for character in text):
        assert shown == text


@pytest.mark.parametrize("name", CONTROLS)
def test_known_tricks_are_spelled_out(name: str) -> None:
    shown = visible(f"a{name}b")
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert table(["norm"], [[name]])[2] == visible(name)


def test_our_own_colours_stay() -> None:
    assert visible("\x1b[1;31mno\x1b[0m φ ± 5\u00a0%") == "\x1b[1;31mno\x1b[0m φ ± 5\u00a0%"
    assert visible("\x1b[8mhidden") == "\\x1b[8mhidden"


@pytest.mark.parametrize("name", CONTROLS)
def test_names_of_layers(name: str) -> None:
    """Of a model that somebody else has written."""
    model = nn.Sequential()
    model.add_module(f"a{name}".replace(".", ""), nn.BatchNorm1d(4, momentum=0.0))
    x = torch.zeros(8, 4)
    for found in (diagnose(model, x), summary(model, x), geonorm.freeze(model)):
        uncontrolled(str(found))
