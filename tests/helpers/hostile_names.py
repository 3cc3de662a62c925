"""Names as somebody would choose them who wants more than to be read: for pages, terminals and spreadsheets."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

HTML = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style></textarea><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "<a href=javascript:alert(1)>a</a>",
    "<svg/onload=alert(1)>",
    "<!--",
    "]]><![CDATA[",
    "&lt;script&gt;&#60;b&#62;",
    "${alert(1)}{{7*7}}`alert(1)`",
]
CONTROLS = [
    "\x1b]0;title\x07",  # sets the title of the window
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b[8m",  # hides what follows
    "\x1b]8;;http://example.org\x1b\\",  # a link that looks like another
    "\x9b2J",  # the same as an escape, in one character
    "\rgood",  # overwrites the line
    "\x08\x08",
    "\u202egood",  # reverses what follows
    "\u2066",
    "\u2028",
]
FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", '=HYPERLINK("http://example.org")']


def harmless(name: str) -> str:
    """The name without what HTML knows, and as long."""
    return "".join("a" if character in "<>&\"'/[]!`" else character for character in name)


def uncontrolled(text: str) -> None:
    """Fails if a terminal would do more with a text than show it."""
    for character in text:
        kind = unicodedata.category(character)
        assert character in "\n\t" or kind[0] not in "CZ" or kind == "Zs", f"{character!r} in {text!r}"


class _Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, and the attributes that lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *[name for name, _ in attributes]))
        self.links += [value or "" for name, value in attributes if name in ("href", "src", "action", "srcset")]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)

    def handle_comment(self, data: str) -> None:
        self.tags.append(("a comment",))

    def unknown_decl(self, data: str) -> None:
        self.tags.append(("a declaration",))


def same_skeleton(page: str, plain: str) -> None:
    """Fails unless a page with hostile names has the elements of the page with harmless ones, and leads nowhere."""
    found, expected = _Skeleton(), _Skeleton()
    for skeleton, text in ((found, page), (expected, plain)):
        skeleton.feed(text)
        skeleton.close()
    assert found.tags == expected.tags
    for link in found.links:
        assert link.startswith(("#", "data:image/png;base64,")), link
