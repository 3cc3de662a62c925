"""The layout of help: paragraphs fill the width, tables keep their columns, and examples can still be copied."""

from __future__ import annotations

import argparse
import re
import textwrap

from .terminal import fitted, styled_always


class HelpFormatter(argparse.HelpFormatter):
    """argparse's formatter, for texts with paragraphs, tables and examples; breaks between words only."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for block in _blocks(text) for line in _filled(block, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def _blocks(text: str) -> list[str]:
    """The lines of a text, those of a paragraph joined; indented lines stand alone."""
    blocks: list[str] = []
    for line in text.splitlines():
        before = blocks[-1] if blocks else ""
        if before and line and not before[0].isspace() and not line[0].isspace() and not before.endswith(":"):
            blocks[-1] = f"{before} {line}"
        else:
            blocks.append(line)
    return blocks


def _filled(block: str, width: int) -> list[str]:
    """One block; a command that is too long goes on after a backslash, as a shell takes it."""
    is_command = re.match(r" +(geonorm|torchrun) ", block) and not re.search(r"\S {2,}\S", block)
    if not is_command or len(block) <= width:
        return fitted(block, width).split("\n")
    lines = textwrap.wrap(block, width - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [*[f"{line} \\" for line in lines[:-1]], lines[-1]]


def headings_bold(text: str) -> str:
    """The text with its headings in bold, and the word error in red."""
    text = re.sub(r"^[a-z][a-z ]*:(?=\s|$)", lambda found: styled_always(found[0], "bold"), text, flags=re.MULTILINE)
    return re.sub(r"\berror:", lambda found: styled_always(found[0], "error"), text, count=1)
