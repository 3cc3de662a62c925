"""An error in one line; for errors in the user's code with type and place, since no traceback is printed."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_PATHS = sysconfig.get_paths()
_OTHERS = [str(Path(__file__).parents[1]), *(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]


def one_line_error(error: BaseException) -> str:
    """The message of an error; with its type, file and line if it is outside this library and installed packages.

    Examples:
        >>> from geonorm.lab.one_line_error import one_line_error
        >>> one_line_error(ValueError("expected a number (got 'x')"))
        "expected a number (got 'x')"
        >>> one_line_error(KeyboardInterrupt())
        'KeyboardInterrupt'
    """
    kind = type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    if not frames:
        return str(error) or kind
    return f"{kind}: {error} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _is_own(file: str) -> bool:
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in _OTHERS)
