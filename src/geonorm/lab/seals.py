"""A checksum behind a text: one flipped bit in stored figures shows, which SQLite itself does not notice."""

from __future__ import annotations

import zlib

_MARK = " crc32:"


def sealed(text: str, *about: object) -> str:
    """A JSON object with a checksum behind it.

    Args:
        text: the object.
        about: what else the checksum covers, such as the key of the row.

    Examples:
        >>> from geonorm.lab.seals import sealed, unsealed
        >>> sealed('{"loss": 0.5}', "a1", 3)
        '{"loss": 0.5} crc32:aaf9a71e'
        >>> unsealed('{"loss": 0.5} crc32:aaf9a71e', "a1", 3)
        '{"loss": 0.5}'
    """
    return f"{text}{_MARK}{checksum(text, *about)}"


def unsealed(text: str, *about: object) -> str:
    """The object without its checksum; raises ``ValueError`` if that does not fit. Older texts have none."""
    if text.endswith("}"):
        return text
    bare, _, found = text.rpartition(_MARK)
    if found != checksum(bare, *about):
        raise ValueError("its checksum does not fit")
    return bare


def checksum(text: str, *about: object) -> str:
    """The CRC-32 of a text and what it is about, in eight hexadecimal digits."""
    return f"{zlib.crc32(repr((text, *about)).encode()):08x}"
