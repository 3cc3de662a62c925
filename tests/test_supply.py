"""What geonorm is made with: every version pinned, listed in a bill of materials, and loaded from no fixed place."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("packaging")
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from benchmarks import bill_of_materials

ROOT = Path(__file__).parents[1]
OLDEST = "3.10"
TESTED = (3, 11)  # the Python of constraints.txt; others also need packages that this one has built in


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len({one.name for one in found}) == len(found)
    return {bill_of_materials.normal(one.name): one for one in found}


def test_every_line_is_one_version() -> None:
    for one in pins().values():
        assert re.fullmatch(r"==[\d.]+\w*", str(one.specifier)), one
        assert one.url is None
        assert not one.extras


@pytest.mark.skipif(sys.version_info[:2] != TESTED, reason="constraints.txt has the versions for another Python")
def test_all_that_make_installs_is_pinned() -> None:
    parts = bill_of_materials.bill()["components"]
    assert len(parts) > 50
    unpinned = {part["name"] for part in parts} - pins().keys()
    assert not unpinned, f"add to constraints.txt: {', '.join(sorted(unpinned))}"


def test_older_pythons_are_left_to_pip() -> None:
    """Where a version needs a newer Python than the oldest supported one, its line says which."""
    for name, one in pins().items():
        try:
            found = bill_of_materials.distribution(name)
        except bill_of_materials.PackageNotFoundError:
            continue
        needs = SpecifierSet(found.metadata.get("Requires-Python") or "")
        if found.version.partition("+")[0] not in one.specifier or f"{OLDEST}.0" in needs:
            continue
        assert one.marker is not None, f"{one} needs Python {needs}"
        assert not one.marker.evaluate({"python_full_version": f"{OLDEST}.9", "python_version": OLDEST}), one
        lowest = next(part.version for part in needs if part.operator == ">=")
        assert not one.marker.evaluate({"python_full_version": "3.11.0"}) or "3.11.0" in needs, f"{one} needs {lowest}"


def test_the_bill_of_materials() -> None:
    found = bill_of_materials.bill()
    parts = {part["name"]: part for part in found["components"]}
    assert found["metadata"]["component"]["name"] == "geonorm"
    assert parts["torch"]["scope"] == "required"
    assert parts["pytest"]["scope"] == "excluded"
    assert {name for name, part in parts.items() if part["scope"] == "required"} >= {"sympy", "filelock"}
    refs = {part["bom-ref"] for part in parts.values()}
    assert len(refs) == len(parts)
    for edge in found["dependencies"]:
        assert set(edge["dependsOn"]) <= refs
    own = found["dependencies"][0]
    assert own["dependsOn"] == [parts["torch"]["bom-ref"]]
    assert str(Path.home()) not in str(found)
    assert "file:" not in str(found)


def test_no_file_names_a_package_index() -> None:
    """Where packages come from is the business of whoever installs them."""
    files = [ROOT / "constraints.txt", ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / ".github").rglob("*.yml")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|files\.pythonhosted|/simple\b", text), (
            file
        )
