"""CIFAR's pickles, read without running any code: dicts, lists, strings, numbers and arrays of bytes."""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

from ..extras import require
from .errors import DataError


class _Bytes:
    """An array of unsigned bytes while it is read: a shape and its content."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.content = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        plain = isinstance(kind, _ByteType) and not fortran and isinstance(content, bytes)
        if not plain or math.prod(shape) != len(content):
            raise pickle.UnpicklingError("an array that is not of plain bytes")
        self.shape, self.content = tuple(shape), content


class _ByteType:
    """The type of such an array; no other can be made."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Maker:
    """A stand-in for a name in the pickle; it has no attributes to overwrite."""

    __slots__ = ("__weakref__",)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a state for a function")


class _MakeArray(_Maker):
    __slots__ = ()

    def __call__(self, *arguments: Any) -> _Bytes:
        return _Bytes()


class _MakeType(_Maker):
    __slots__ = ()

    def __call__(self, name: Any, *flags: Any) -> _ByteType:
        if name not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"an array of type {name!r}")
        return _ByteType()


class _Plain(pickle.Unpickler):
    """An unpickler that accepts three names, all from numpy, and replaces each by a stand-in."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _MakeArray()
        if (module, name) == ("numpy", "ndarray"):
            return _Bytes
        if (module, name) == ("numpy", "dtype"):
            return _MakeType()
        raise pickle.UnpicklingError(f"the name {module}.{name}")

    def persistent_load(self, key: Any) -> Any:
        raise pickle.UnpicklingError("a reference to something outside")


def read_plain(path: Path) -> dict[bytes, Any]:
    """A pickled dict with byte strings as keys; arrays become uint8 arrays of numpy."""
    numpy = require("numpy", "numpy")
    try:
        found = _Plain(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{path} is not a plain pickle of bytes and lists, or is damaged ({type(error).__name__}: {error}). "
            "Nothing in it was run; fetch it again."
        ) from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}, expected a dict: it is a different file")
    return {
        key: numpy.frombuffer(value.content, numpy.uint8).reshape(value.shape) if isinstance(value, _Bytes) else value
        for key, value in found.items()
    }
