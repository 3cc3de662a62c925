"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.html.whole import replacing, write_whole


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_whole(path, "old φ")
    with pytest.raises(UnicodeEncodeError), replacing(path) as temporary:
        temporary.write_text("ne\udc00", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "old φ"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none/page\.html"):
        write_whole(tmp_path / "none" / "page.html", "text")


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "model.pt", tmp_path / "link.pt"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    before = Path("/dev/null").stat().st_ino
    write_whole(Path("/dev/null"), "text")
    assert Path("/dev/null").stat().st_ino == before
