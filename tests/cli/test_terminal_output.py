"""A terminal gets lines that fit and break between words, examples to copy, and colour. A pipe gets none of it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geonorm.cli import main
from geonorm.cli.help_format import HelpFormatter
from geonorm.cli.terminal import fitted, in_color, show

COMMANDS = ["compare", "report", "reproduce", "data", "norms", "diagnose", "summary", "screen", "completion"]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> str:
    """What a command shows on a terminal of so many columns."""
    screen = Screen()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, screen)
    with contextlib.suppress(SystemExit):
        main(list(arguments))
    return screen.getvalue()


def without_color(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@given(st.lists(st.from_regex(r"[a-z-]{1,30}", fullmatch=True), min_size=1, max_size=40), st.integers(40, 100))
def test_lines_fit_and_no_word_is_broken(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = fitted(text, width).split("\n")
    assert " ".join(lines).split() == words or not text.strip("- ")
    assert all(len(line) <= width for line in lines)


def test_a_word_that_is_longer_than_the_line_stays_whole() -> None:
    path = "/a/very/long/path/" * 4
    assert path in fitted(f"Page: {path}", 40).split("\n")


def test_the_last_column_of_a_table_keeps_its_place() -> None:
    table = "norm  what it is\n----  --------------------------------\nbn    mean and rms over the batch, torch"
    assert fitted(table, 26).split("\n") == [
        "norm  what it is",
        "----  --------------------",
        "bn    mean and rms over",
        "      the batch, torch",
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda command: " ".join(command) or "-")
def test_help_fits_the_terminal(command: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = without_color(on_screen(monkeypatch, columns, *command, "--help"))
    words = {word for line in told.split("\n") if len(line) > columns for word in line.split()}
    assert all(len(word) > columns // 2 for word in words if len(word) > 1), words  # such as a path


def test_examples_can_be_copied() -> None:
    example = 'geonorm compare --model my_file.py:make_model --data my_file.py:make_data --norms own "aug(phi=1.5)"'
    shown = HelpFormatter("geonorm")._fill_text(f"examples:\n  {example}", 60, "").split("\n", 1)[1]
    assert all(len(line) <= 60 for line in shown.split("\n"))
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(example)  # as a shell joins lines


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b[1musage:\x1b[0m" in on_screen(monkeypatch, 80, "--help")
    assert "\x1b[1;31merror:\x1b[0m" in on_screen(monkeypatch, 80, "zzz")
    assert "\x1b[1;31mgeonorm:\x1b[0m" in on_screen(monkeypatch, 80, "report", "nothing.sqlite")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not in_color(Screen())
    monkeypatch.delenv("NO_COLOR")
    assert not in_color(io.StringIO())
    assert not in_color(None)


def test_a_pipe_gets_the_text_as_it_is() -> None:
    pipe = io.StringIO()
    show("word " * 100, pipe, style="good")
    assert pipe.getvalue() == "word " * 100 + "\n"


@pytest.mark.parametrize("arguments", [["norms"], ["data", "list"], ["info"]], ids=" ".join)
def test_lists_fit_the_terminal(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_screen(monkeypatch, 60, *arguments).splitlines()
    assert lines
    too_long = [line for line in lines if len(line) > 60 and len(line.split()) > 2]
    assert not too_long, too_long
