"""The house: torch is the only import of the core, rooms open one way, and README and pages run."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "geonorm"
# An import may go to a room further down, never up.
ORDER = ["cli", "lab", "analysis", "robust", "optim", "surgery", "nn", "functional", "distributed", "ops"]
SIDE_BY_SIDE = {"analysis", "robust", "optim", "surgery"}


def test_import_needs_torch_and_nothing_else() -> None:
    """A fresh interpreter in which everything but torch's own dependencies is hidden."""
    script = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import geonorm\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "outside = {m for m in new if m not in sys.stdlib_module_names} - {'geonorm', 'torch'}\n"
        "assert not outside, outside\n"
        "assert 'geonorm.analysis' not in sys.modules and geonorm.diagnose is geonorm.analysis.diagnose\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def room_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = room_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level or here is None:
            continue
        parts = list(path.relative_to(PACKAGE).parts[:-1])
        parts = parts[: len(parts) - node.level + 1] + (node.module.split(".") if node.module else [])
        for there in [parts[0]] if parts else [name.name for name in node.names]:
            if there in ORDER and there != here and not {here, there} <= SIDE_BY_SIDE:
                assert ORDER.index(here) < ORDER.index(there), f"{here} must not import {there}"


def code_blocks() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (f"{page.relative_to(ROOT)}:{i}", block)
        for page in pages
        for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    ]


@pytest.mark.parametrize(("name", "block"), code_blocks(), ids=[name for name, _ in code_blocks()])
def test_code_in_the_pages_runs(name: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=str
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_figures_of_the_pages_are_the_stored_ones() -> None:
    stored = json.loads((ROOT / "benchmarks" / "pages.json").read_text())
    for name, kept in stored.items():
        page = (ROOT / "docs" / kept["page"]).read_text()
        assert f"<!-- benchmark: {name} -->\n{kept['table']}<!-- end -->" in page, name


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60


def public_things() -> list[object]:
    """Functions and layers that users import."""
    import torch

    import geonorm

    modules = (geonorm, geonorm.functional, geonorm.nn, geonorm.analysis, geonorm.optim, geonorm.robust)
    things = {getattr(module, name) for module in modules for name in module.__all__}
    ours = [t for t in things if (getattr(t, "__module__", None) or "").startswith("geonorm")]
    layers = [t for t in ours if isinstance(t, type) and issubclass(t, torch.nn.Module)]
    return sorted([*layers, *[t for t in ours if not isinstance(t, type)]], key=lambda t: t.__name__)


@pytest.mark.parametrize("thing", public_things(), ids=lambda t: t.__name__)
def test_docstrings_are_whole(thing) -> None:
    """What it does, its arguments, shapes, and an example that the doctests run."""
    doc = thing.__doc__
    takes_something = isinstance(thing, type) or inspect.signature(thing).parameters
    rooms_on_models = ("geonorm.surgery", "geonorm.analysis", "geonorm.optim", "geonorm.robust")
    on_models = thing.__module__.startswith(rooms_on_models)
    parts = [*(["Args:"] if takes_something else []), *([] if on_models or not takes_something else ["Shape:"])]
    parts += ["Examples:", ">>> "]
    for part in parts:
        assert part in doc, f"{thing.__name__} lacks {part}"


def test_the_table_of_specs_is_the_registry() -> None:
    """Written by hand nowhere: `UPDATE_DOCS=1 pytest tests/test_house.py` writes it."""
    import os

    import geonorm

    page = ROOT / "docs" / "layers.md"
    rows = "".join(f"| `{name}` | {line} |\n" for name, line in geonorm.norms().items())
    head, mark, rest = page.read_text().partition("<!-- specs -->\n")
    written, end, tail = rest.partition("<!-- end -->\n")
    expected = "| name | what it is |\n| --- | --- |\n" + rows
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(head + mark + expected + end + tail)
        return
    assert written == expected
