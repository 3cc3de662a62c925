"""The notebooks run from the first cell to the last, show what is stored in them, and become pages of the site."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tutorials

MENU = (Path(__file__).parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
LARGEST = 100_000  # bytes of a notebook with its outputs
parametrized = pytest.mark.parametrize("path", tutorials.TUTORIALS, ids=lambda path: path.stem)


def test_both_are_there() -> None:
    assert [path.stem for path in tutorials.TUTORIALS] == ["broken_samples", "what_is_wrong"]


def shown(cell: dict[str, Any]) -> list[str]:
    """What a cell shows, without figures: their last digits differ between machines."""
    texts = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        text = tutorials.text_of(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
        texts.append(re.sub(r"\d[\d.,]*", "0", text))
    return texts


@parametrized
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter, in this process; the kernel has its own
def test_it_runs_and_shows_what_is_stored(path: Path) -> None:
    pytest.importorskip("nbclient", reason="the extra test has it: make setup")
    stored, found = tutorials.read(path), tutorials.executed(path)
    assert len(stored["cells"]) == len(found["cells"])
    for before, after in zip(stored["cells"], found["cells"], strict=True):
        if after["cell_type"] != "code":
            continue
        streams = [output.get("name") for output in after["outputs"]]
        assert "stderr" not in streams, after["outputs"]
        if "outputs-vary" in after["metadata"].get("tags", []):  # words that depend on how many runs failed
            assert len(after["outputs"]) == len(before["outputs"])
        else:
            assert shown(after) == shown(before)


@parametrized
def test_stored_outputs_are_whole_and_small(path: Path) -> None:
    cells = [cell for cell in tutorials.read(path)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert any("text/html" in output.get("data", {}) for cell in cells for output in cell["outputs"])
    assert path.stat().st_size < LARGEST
    assert not re.search(r"/(home|tmp|root|work)/", path.read_text(encoding="utf-8")), "paths of a machine"


@parametrized
def test_its_page_is_in_the_menu(path: Path) -> None:
    assert f"tutorials/{path.stem}.md" in MENU
    page = tutorials.markdown(tutorials.read(path), path.name)
    assert page.startswith("# ")
    assert page.count("```") % 2 == 0
    links = re.findall(r"\]\(([^)#]+)", page)
    assert links
    assert all((tutorials.FOLDER / link).is_file() for link in links)


def test_html_stays_one_block() -> None:
    """An empty line would end it, and the rest would be read as Markdown."""
    data = {"text/html": ["<div>\n", "\n", "  <p>x</p></div>"], "text/plain": ["<X>"]}
    cell = {"cell_type": "code", "source": ["x"], "outputs": [{"output_type": "execute_result", "data": data}]}
    title = {"cell_type": "markdown", "source": ["# Title"]}
    page = tutorials.markdown(json.loads(json.dumps({"cells": [title, cell]})), "x.ipynb")
    assert "<div> <p>x</p></div>" in page
