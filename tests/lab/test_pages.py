"""What pages show is what there is: `UPDATE_DOCS=1 pytest tests/lab/test_pages.py` writes it."""

import os
from pathlib import Path

import pytest
import torch

import studies  # noqa: F401 - its data and networks are shown too
from geonorm.lab.data.sources import _KNOWN
from geonorm.lab.models import create_model
from geonorm.lab.models.create import _MODELS
from geonorm.lab.recipe import DIGITS
from geonorm.lab.repository import OF_STUDIES

DOCS = Path(__file__).parents[2] / "docs"


def networks(of_studies: bool) -> str:
    rows = []
    for model in _MODELS.values():
        if (model.name in OF_STUDIES["network"]) != of_studies:
            continue
        with torch.device("meta"):
            number = sum(parameter.numel() for parameter in create_model(model.name).parameters())
        shape = "×".join(map(str, model.input_shape))
        rows.append(f"| `{model.name}` | {model.line} | {shape} | {number:,} |\n")
    if of_studies:
        rows.sort()  # they are registered in the order in which tests import them
    return "| name | what it is | input | parameters |\n| --- | --- | --- | --- |\n" + "".join(rows)


def sources(of_studies: bool) -> str:
    rows = []
    for name, known in _KNOWN.items():
        if (name in OF_STUDIES["data"]) != of_studies:
            continue
        places = "<br>".join(f"`{place}`" for place in known.places) or "needs no file"
        rows.append(f"| `{name}` | {known.line} | {places} | {known.how} |\n")
    if of_studies:
        rows.sort()
    return "| name | what it is | looked for | how to get it |\n| --- | --- | --- | --- |\n" + "".join(rows)


def digits() -> str:
    return f"```toml\n{DIGITS.read_text(encoding='utf-8')}```\n"


@pytest.mark.parametrize(
    ("page", "mark", "table"),
    [
        ("networks.md", "networks", lambda: networks(False)),
        ("networks.md", "networks of the studies", lambda: networks(True)),
        ("data.md", "sources", lambda: sources(False)),
        ("data.md", "sources of the studies", lambda: sources(True)),
        ("cli.md", "digits", digits),
    ],
    ids=["networks", "networks of the studies", "data", "data of the studies", "digits"],
)
def test_the_table_is_the_registry(page: str, mark: str, table) -> None:
    path = DOCS / page
    head, start, rest = path.read_text().partition(f"<!-- {mark} -->\n")
    written, end, tail = rest.partition("<!-- end -->\n")
    assert start
    assert end
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(head + start + table() + end + tail)
        return
    assert written == table()
