"""Downloaded archives, checked against a published checksum before anything is read from them."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import ssl
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..bars import downloading
from .errors import DataError

_CHUNK = 1 << 20
_TIMEOUT = 60.0


class Archive(NamedTuple):
    """A published file with its checksum.

    Attributes:
        url: its address.
        algorithm, digest: the checksum.
        source: who published the checksum.
        makes: the folder that unpacking it creates.
    """

    url: str
    algorithm: str
    digest: str
    source: str
    makes: str


ARCHIVES = {
    "cifar10": Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "md5",
        "c58f30108f718f92721af3b95e74349a",
        "torchvision, datasets/cifar.py",
        "cifar-10-batches-py",
    ),
    "cifar100": Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "md5",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "torchvision, datasets/cifar.py",
        "cifar-100-python",
    ),
    "cifar10c": Archive(
        "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",
        "md5",
        "56bf5dcef84df0e2308c6dcbcbbd8499",
        "Zenodo, record 2535967",
        "CIFAR-10-C",
    ),
}


def fetch(archive: Archive, folder: Path) -> Path:
    """Download, check, unpack; returns the new folder.

    Args:
        archive: the archive.
        folder: where to put it; nothing is written there until the checksum is verified.
    """
    made = folder / archive.makes
    if made.exists():
        return made
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as work:
            file = Path(work) / "archive"
            found = _download(archive, file)
            if found != archive.digest:
                raise DataError(
                    f"the file from {archive.url} has {archive.algorithm} {found}, expected {archive.digest} "
                    f"({archive.source}): nothing was kept; try again, or download it elsewhere"
                )
            unpacked = Path(work) / "unpacked"
            unpack(file, unpacked)
            if not (unpacked / archive.makes).is_dir():
                raise DataError(f"{archive.url} contains no folder {archive.makes}: download it yourself into {folder}")
            _move(unpacked / archive.makes, made)
    except OSError as error:
        raise DataError(
            f"cannot write to {folder} ({error}): free space, or set GEONORM_DATA to a writable folder"
        ) from error
    return made


def _move(folder: Path, made: Path) -> None:
    """Move the folder into place, unless another process was faster."""
    try:
        os.replace(folder, made)
    except OSError:
        if not made.is_dir():
            raise


def _download(archive: Archive, file: Path) -> str:
    """Write the file; returns its checksum."""
    checksum = hashlib.new(archive.algorithm, usedforsecurity=False)
    try:
        with urllib.request.urlopen(archive.url, timeout=_TIMEOUT) as answer, file.open("wb") as out:
            length = int(answer.headers.get("Content-Length") or 0)
            got = 0
            with downloading(archive.makes, length) as advance:
                while chunk := answer.read(_CHUNK):
                    checksum.update(chunk)
                    out.write(chunk)
                    got += len(chunk)
                    advance(len(chunk))
    except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
        raise DataError(
            f"cannot download {archive.url} ({error}): check the network, or download it elsewhere, unpack it, and set "
            f"GEONORM_DATA to the folder that holds {archive.makes}"
        ) from error
    if got < length:
        raise DataError(f"{archive.url} ended after {got} of {length} bytes: nothing was kept; try again")
    return checksum.hexdigest()


def unpack(file: Path, folder: Path) -> None:
    """Unpack a tar archive into a new folder; refused if a member is a link or a device, or would be placed outside."""
    try:
        with tarfile.open(file) as archive:
            members = archive.getmembers()
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                    raise DataError(
                        f"the archive contains {member.name!r}, which is not a plain file inside it: not unpacked"
                    )
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, members, **safe)  # type: ignore[arg-type]
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the archive
            raise
        raise DataError(f"{file} is not a tar archive, or is damaged ({error}): fetch it again") from error
