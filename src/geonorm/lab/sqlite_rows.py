"""Rows of a damaged SQLite file, read page by page without the trees above them.

SQLite refuses a file that was cut off, and everything below a damaged page. Rows lie in pages that can be read by
themselves; whether a row is what was written, its checksum says. The format: https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = 100  # bytes before the first page's own
_USUAL = 4096  # bytes in a page, unless the header says something possible
_SIZES = [2**power for power in range(9, 16)]
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of each type

Value = None | int | float | str | bytes


def rows_in(data: bytes) -> Iterator[tuple[Value, ...]]:
    """Everything that can be read as a row, in the order of the pages; some of it may be no row at all."""
    said = int.from_bytes(data[16:18], "big")
    size = 65536 if said == 1 else said if said in _SIZES else _USUAL
    for start in range(0, len(data), size):
        head = start + (_HEADER if not start else 0)
        content = int.from_bytes(data[head + 5 : head + 7], "big") or size
        for place in range(head + 8, start + min(content, size) - 1, 2):
            cell = int.from_bytes(data[place : place + 2], "big")
            try:
                yield _row(data, start + cell, size)
            except (IndexError, ValueError, struct.error):  # the page is of another kind, or damaged here
                continue


def _row(data: bytes, place: int, size: int) -> tuple[Value, ...]:
    length, place = _varint(data, place)
    _, place = _varint(data, place)  # the number of the row
    payload = _payload(data, place, length, size)
    heads, at = _varint(payload, 0)
    kinds = []
    while at < heads:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != length:
        raise ValueError("not a row")
    return tuple(values)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number in one to nine bytes, and the place behind it."""
    value = 0
    for byte in data[place : place + 8]:
        place += 1
        value = value << 7 | byte & 127
        if byte < 128:
            return value, place
    return value << 8 | data[place], place + 1


def _payload(data: bytes, place: int, length: int, size: int) -> bytes:
    """The bytes of a row, of which those that do not fit into its page are in a chain of others."""
    if length > len(data):
        raise ValueError("longer than the file")
    most, least = size - 35, (size - 12) * 32 // 255 - 23
    if length <= most:
        return data[place : place + length]
    fitting = least + (length - least) % (size - 4)
    here = fitting if fitting <= most else least
    parts, left = [data[place : place + here]], length - here
    following = data[place + here : place + here + 4]
    while left:
        start = (int.from_bytes(following, "big") - 1) * size
        if not 0 < start < len(data):
            raise ValueError("the chain is broken")
        following, part = data[start : start + 4], data[start + 4 : start + min(size, left + 4)]
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind], at
    if kind < 12:
        raise ValueError("no such type")
    raw = payload[at : at + (kind - 12) // 2]
    return raw.decode() if kind % 2 else raw, at + (kind - 12) // 2
