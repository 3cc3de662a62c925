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
import urllib.parse
import urllib.request
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..bars import downloading
from .errors import DataError

_CHUNK = 1 << 20
_TIMEOUT = 60.0
_LARGEST = 4 << 30  # bytes; CIFAR-10-C has 2.9 GB
_EXPANDS = 20  # times the size of its archive: more than images do, and much less than an archive made to fill a disk


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another host, since the checksum decides, but never from HTTPS to anything weaker."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        url: str = rest[-1]
        if urllib.parse.urlsplit(url).scheme != urllib.parse.urlsplit(req.full_url).scheme:
            raise urllib.error.URLError(f"it redirects to {url!r}, which is not followed")
        return super().redirect_request(req, *rest)


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
        opener = urllib.request.build_opener(_SameScheme)
        with opener.open(archive.url, timeout=_TIMEOUT) as answer, file.open("wb") as out:
            length = int(answer.headers.get("Content-Length") or 0)
            got = 0
            with downloading(archive.makes, length) as advance:
                while chunk := answer.read(_CHUNK):
                    checksum.update(chunk)
                    out.write(chunk)
                    got += len(chunk)
                    if got > _LARGEST:
                        raise DataError(f"{archive.url} does not end after {_LARGEST >> 30} GB: nothing was kept")
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
    """Unpack a tar archive into a new folder.

    Refused if a member is a link or a device, or would be placed outside, or if all would take far more room than the
    archive, as those do that are made to fill a disk.
    """
    try:
        with tarfile.open(file) as archive:
            members, room = [], max(_EXPANDS * file.stat().st_size, 1 << 20)
            for member in archive:  # one by one: the next one is looked for after the content of this one
                members.append(member)
                room -= max(0, member.size)
                if room < 0:
                    raise DataError(
                        f"the archive holds more than {_EXPANDS} times its own size with {member.name!r}: not unpacked"
                    )
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
