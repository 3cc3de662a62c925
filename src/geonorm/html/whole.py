"""Files that are written whole or not at all: a kill, an error or a full disk leaves what was there before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside another, with the same ending; it takes the other's place if the body succeeds.

    Args:
        path: the file to replace, which need not exist; its folder must.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from geonorm.html.whole import replacing
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "page.html"
        ...     with replacing(path) as temporary:
        ...         written = temporary.write_text("all of it")
        ...     path.read_text()
        'all of it'
    """
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():  # such as /dev/null
        yield path
        return
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.filename == str(temporary):  # it is the other that the caller knows
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text as UTF-8, replacing the file in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
