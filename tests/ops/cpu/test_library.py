"""The layout that Python and the compiled library agree on."""

from __future__ import annotations

import pytest

from geonorm.ops import choose, problem
from geonorm.ops.cpu import library

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")

CHANGES = ["renamed", "moved", "missing", "missing at the end", "added", "added in front"]


def changed(names: tuple[str, ...], change: str) -> tuple[str, ...]:
    given = list(names)
    if change == "renamed":
        given[2] += "s"
    elif change == "moved":
        given[2], given[3] = given[3], given[2]
    elif change == "missing":
        del given[2]
    elif change == "missing at the end":
        del given[-1]
    elif change == "added":
        given.append("more")
    else:
        given.insert(0, "more")
    return tuple(given)


class TestLayout:
    """A field that one side has and the other has not, or has elsewhere, is noticed."""

    def reason(self, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> library._Library | str:
        monkeypatch.setattr(library, name, value)
        return library.load.__wrapped__()

    def test_agrees(self) -> None:
        assert isinstance(library.load.__wrapped__(), library._Library)
        fields = len(library._SPEC_FIELDS) + len(library._CALL_FIELDS)
        assert library._SPEC.size + library._CALL.size == 8 * fields

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("part", ["_SPEC_FIELDS", "_CALL_FIELDS"])
    def test_fields(self, monkeypatch: pytest.MonkeyPatch, change: str, part: str) -> None:
        found = self.reason(monkeypatch, part, changed(getattr(library, part), change))
        assert isinstance(found, str)
        assert "belongs to another version of geonorm" in found

    @pytest.mark.parametrize("change", CHANGES)
    def test_columns(self, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
        found = self.reason(monkeypatch, "COLUMNS", changed(problem.COLUMNS, change))
        assert isinstance(found, str)
        assert "belongs to another version of geonorm" in found
