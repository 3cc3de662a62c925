"""Text for a terminal: lines that fit it and break between words, and colour. Pipes and files get neither."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import IO, Any

from ..html.text import visible

_STYLES = {"bold": "1", "good": "1;32", "warning": "1;33", "error": "1;31"}
_LEAST = 40  # columns: a narrower terminal breaks lines itself
_GAP = re.compile(r"\S {2,}(?=\S)")  # between two columns of a table


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person reads this stream; None if the parent process has closed it."""
    return stream is not None and stream.isatty()


def in_color(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal, and NO_COLOR is not set (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: IO[str] | None) -> str:
    """The text in a style of ``_STYLES``, if the stream shows colours."""
    return styled_always(text, style) if in_color(stream) else text


def styled_always(text: str, style: str) -> str:
    """The text in a style of ``_STYLES``."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def terminal_width() -> int:
    """The columns of the terminal, or of COLUMNS if that is set."""
    return max(_LEAST, shutil.get_terminal_size().columns)


def fitted(text: str, width: int) -> str:
    """The text with lines of at most this width, broken between words; only a single longer word stays longer.

    In a table the rest of a line goes below its last column.

    Examples:
        >>> from geonorm.cli.terminal import fitted
        >>> print(fitted("gn   mean and rms over groups of channels", 24))
        gn   mean and rms over
             groups of channels
    """
    return "\n".join(part for line in text.split("\n") for part in _fitted_line(line, width))


def _fitted_line(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    if not line.strip("- "):  # the rule below the head of a table
        return [line[:width].rstrip()]
    own = len(line) - len(line.lstrip())
    columns = [gap.end() for gap in _GAP.finditer(line) if gap.end() <= 2 * width // 3]
    below = " " * (columns[-1] if columns else own)
    return textwrap.wrap(
        line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def show(text: str, stream: IO[str] | None = None, style: str | None = None, **options: Any) -> None:
    """Print a text, by default on stdout: fitted and in colour where that is a terminal, which it cannot control."""
    stream, text = sys.stdout if stream is None else stream, visible(text)
    if is_terminal(stream):
        text = fitted(text, terminal_width())
        if style is not None:  # line by line: a pager keeps no colour beyond a line
            text = "\n".join(styled(line, style, stream) if line else "" for line in text.split("\n"))
    print(text, file=stream, **options)
