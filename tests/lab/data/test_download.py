"""Downloads, from a server on this machine."""

import contextlib
import errno
import hashlib
import http.client
import http.server
import io
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from geonorm.lab.data import DataError, cifar, download, load
from geonorm.lab.data.download import ARCHIVES, Archive, fetch, unpack


class Server(http.server.ThreadingHTTPServer):
    """Answers with the files of a dict; counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked = 0
        self.missing_bytes = 0
        self.silence = 0.0
        self.broken = False
        self.redirect = ""
        self.endless = False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        content = self.server.files.get(self.path.lstrip("/"))
        time.sleep(self.server.silence)
        if self.server.broken:
            self.send_error(500)
            return
        if self.server.redirect and self.path == "/set.tar.gz":
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        if self.server.endless:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for _ in range(1024):  # much more than the test allows, and yet an end
                    self.wfile.write(bytes(1 << 16))
            return
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + self.server.missing_bytes))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def packed(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def offer(server: Server, content: bytes, digest: str | None = None) -> Archive:
    server.files["set.tar.gz"] = content
    return Archive(server.url("set.tar.gz"), "md5", digest or hashlib.md5(content).hexdigest(), "this test", "set")


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_right(server: Server, tmp_path: Path, mode: str) -> None:
    archive = offer(server, packed({"set/a": b"one", "set/deep/b": b"two"}, mode))
    made = fetch(archive, tmp_path / "data")
    assert (made / "a").read_bytes() == b"one"
    assert (made / "deep" / "b").read_bytes() == b"two"
    assert left_in(tmp_path / "data") == ["set"]
    assert fetch(archive, tmp_path / "data") == made
    assert server.asked == 1  # what is there is not fetched again


@pytest.mark.parametrize(
    ("content", "digest", "message"),
    [
        (packed({"set/a": b"one"}), "0" * 32, r"has md5 .*, expected 0{32} \(this test\): nothing was kept"),
        (b"<html>blocked</html>", None, "not a tar archive, or is damaged"),
        (packed({"set/a": bytes(range(256)) * 400})[:-40], None, "not a tar archive, or is damaged"),
        (packed({"other/a": b"one"}), None, "contains no folder set"),
        (packed({"set/a": b"one", "../escaped": b"two"}), None, r"'../escaped', which is not a plain file inside it"),
        (packed({"/escaped": b"two"}), None, "not a plain file inside it"),
        (packed({"set/../../escaped": b"two"}), None, "not a plain file inside it"),
    ],
    # Named: an archive carries the time of its making, and every worker must see the same names.
    ids=["checksum", "page", "truncated", "another folder", "beside", "absolute", "beside, deep"],
)
def test_nothing_is_kept(server: Server, tmp_path: Path, content: bytes, digest: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fetch(offer(server, content, digest), tmp_path / "data")
    assert left_in(tmp_path / "data") == []
    assert left_in(tmp_path) == ["data"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    file = tmp_path / "archive.tar"
    with tarfile.open(file, "w") as archive:
        member = tarfile.TarInfo("set/a")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(DataError, match="not a plain file inside it: not unpacked"):
        unpack(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_truncated_on_the_way(server: Server, tmp_path: Path) -> None:
    archive = offer(server, packed({"set/a": b"one"}))
    server.missing_bytes = 100
    with pytest.raises(DataError, match=r"ended after \d+ of \d+ bytes: nothing was kept"):
        fetch(archive, tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataError, match=r"cannot write to .*data .*: free space, or set GEONORM_DATA"):
        fetch(offer(server, packed({"set/a": b"one"})), tmp_path / "data")
    assert server.asked == 0


def test_not_there(server: Server, tmp_path: Path) -> None:
    archive = offer(server, b"")._replace(url=server.url("elsewhere"))
    with pytest.raises(DataError, match=r"cannot download .*404.* set GEONORM_DATA to the folder that holds set"):
        fetch(archive, tmp_path / "data")


def test_a_server_that_fails(server: Server, tmp_path: Path) -> None:
    archive = offer(server, packed({"set/a": b"one"}))
    server.broken = True
    with pytest.raises(DataError, match=r"cannot download .*500"):
        fetch(archive, tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def test_a_server_that_hangs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_TIMEOUT", 0.1)
    archive = offer(server, packed({"set/a": b"one"}))
    server.silence = 0.5
    with pytest.raises(DataError, match=r"cannot download .*timed out.*check the network"):
        fetch(archive, tmp_path / "data")
    assert left_in(tmp_path / "data") == []


@pytest.mark.parametrize("to", ["https://127.0.0.1:9/x", "file:///etc/passwd", "ftp://127.0.0.1:9/x", "javascript:1"])
def test_a_redirect_to_another_scheme_is_not_followed(server: Server, tmp_path: Path, to: str) -> None:
    """The tests have no HTTPS: here any other scheme is the one that HTTP would be for our addresses."""
    archive = offer(server, packed({"set/a": b"one"}))
    server.redirect = to
    with pytest.raises(DataError, match=r"cannot download .*(redirects to|disallowed|not allowed)"):
        fetch(archive, tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def test_from_https_to_http_is_refused() -> None:
    request = urllib.request.Request("https://example.org/set.tar.gz")
    handler = download._SameScheme()
    with pytest.raises(urllib.error.URLError, match=r"redirects to 'http://example\.org/x', which"):
        handler.redirect_request(request, io.BytesIO(), 302, "", http.client.HTTPMessage(), "http://example.org/x")
    found = handler.redirect_request(
        request, io.BytesIO(), 302, "", http.client.HTTPMessage(), "https://example.com/set.tar.gz"
    )
    assert found is not None
    assert found.full_url == "https://example.com/set.tar.gz"


def test_a_redirect_to_another_place_is_followed_and_checked(server: Server, tmp_path: Path) -> None:
    archive = offer(server, packed({"set/a": b"one"}))
    server.files["elsewhere"] = server.files["set.tar.gz"]
    server.redirect = server.url("elsewhere")
    assert (fetch(archive, tmp_path / "data") / "a").read_bytes() == b"one"
    server.files["elsewhere"] = packed({"set/a": b"two"})
    with pytest.raises(DataError, match="nothing was kept"):
        fetch(archive, tmp_path / "other")


def test_an_answer_that_does_not_end(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_LARGEST", 4 << 20)
    archive = offer(server, packed({"set/a": b"one"}))
    server.endless = True
    with pytest.raises(DataError, match=r"does not end after .*: nothing was kept"):
        fetch(archive, tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def a_terabyte(mode: str) -> bytes:
    """An archive that claims to hold 1 TB."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        member = tarfile.TarInfo("set/a")
        member.size = 1 << 40
        archive.fileobj.write(member.tobuf() + bytes(1 << 20))
    return out.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_that_claims_a_terabyte(tmp_path: Path, mode: str) -> None:
    (tmp_path / "archive.tar").write_bytes(a_terabyte(mode))
    with pytest.raises(DataError, match=r"more than 20 times its own size with 'set/a': not unpacked"):
        unpack(tmp_path / "archive.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_made_to_fill_a_disk(tmp_path: Path) -> None:
    """Many files of zeros, each small: together they count."""
    (tmp_path / "archive.tar").write_bytes(packed({f"set/{i}": bytes(1 << 20) for i in range(64)}))
    with pytest.raises(DataError, match="more than 20 times its own size"):
        unpack(tmp_path / "archive.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_process_was_faster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = offer(server, packed({"set/a": b"one"}))

    def slow(file: Path, folder: Path) -> None:
        unpack(file, folder)
        unpack(file, tmp_path / "data")

    monkeypatch.setattr(download, "unpack", slow)
    assert (fetch(archive, tmp_path / "data") / "a").read_bytes() == b"one"
    assert left_in(tmp_path / "data") == ["set"]


def test_no_room_to_unpack(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is to blame, not the archive."""

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(DataError, match=r"cannot write to .*No space left.*free space"):
        fetch(offer(server, packed({"set/a": b"one"})), tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    archive = Archive("http://127.0.0.1:9/set.tar.gz", "md5", "0" * 32, "this test", "set")
    with pytest.raises(DataError, match=r"cannot download .*: check the network"):
        fetch(archive, tmp_path / "data")


def test_through_load(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive arrives, and its files are then checked one by one."""
    archive = offer(server, packed({"cifar-10-batches-py/data_batch_1": b"not it"}))
    monkeypatch.setitem(ARCHIVES, "cifar10", archive._replace(makes="cifar-10-batches-py"))
    with pytest.raises(DataError, match="not at hand"):
        load("cifar10")
    with pytest.raises(DataError, match=r"data_batch_1 is damaged or a different file: its MD5"):
        load("cifar10", download=True)
    assert (folder / "cifar-10-batches-py" / "data_batch_1").read_bytes() == b"not it"


def test_every_checksum_names_its_source() -> None:
    for archive in ARCHIVES.values():
        assert archive.url.startswith("https://")
        assert len(archive.digest) == hashlib.new(archive.algorithm).digest_size * 2
        assert archive.source
    assert set(ARCHIVES) - {"cifar10c"} == set(cifar.OFFICIAL)
