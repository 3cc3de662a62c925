"""The page: self-contained, the answer first, names escaped; in a browser it sorts, toggles, and fits a phone."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest

import geonorm
from geonorm.lab import Comparison, Recipe, report, run
from geonorm.lab.recipe import DIGITS
from geonorm.lab.report import rerun
from geonorm.lab.report.contents import gather
from geonorm.lab.report.page import page as page_of
from geonorm.lab.report.pictures import picture
from geonorm.lab.report.verdict_text import paragraphs
from helpers import chromium
from helpers.fake_comparison import accuracies_around, fake_comparison
from helpers.hostile_names import HTML, harmless, same_skeleton

NORMS = ["none", "bn", "ln", "augbn(phi=1.5)", "diffphi", "robustbn", "median", "pop(kappa=4)"]
OFFSET = "offset(share=0.1)"
LEVELS = {(norm, "clean"): 0.98 for norm in NORMS} | {(norm, OFFSET): 0.5 + 0.05 * i for i, norm in enumerate(NORMS)}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    path = tmp_path_factory.mktemp("store") / "r.sqlite"
    return fake_comparison(
        path, NORMS, accuracies_around(LEVELS), corruptions=["clean", OFFSET], epochs=6, unfinished=1
    )


@pytest.fixture(scope="module")
def path(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("report") / "report.html"
    found.write_text(page_of(gather(comparison)), encoding="utf-8")
    return found


def test_the_page_needs_nothing_else(path: Path, comparison: Comparison) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert "default-src 'none'" in text
    body = text[text.index("<main>") :]
    answer = [body.index(escape(part)) for part in paragraphs(gather(comparison))]
    rest = ["1 of 80 runs are not finished", 'class="run', "<table", 'class="plot"']
    places = [*answer, *[body.index(part) for part in rest]]
    assert places == sorted(places)
    for part in ("Every run", "Learning curves", "The learned exponent φ", "Cost of a training step", "The norms"):
        assert f"<h2>{part}" in body
    assert body.count('<svg class="norm"') == len(NORMS)


def test_the_recipe_on_the_page_is_the_one_that_ran(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn", "augbn(phi=1.5)"), model_options={"width": 8}, corruptions=("clean", OFFSET))
    found = Comparison(tuple(recipe.runs()), fake_comparison(tmp_path / "r.sqlite", ["bn"], lambda *_: 0.9).store)
    (tmp_path / "recipe.toml").write_text(rerun.recipe(found), encoding="utf-8")
    assert Recipe.from_toml(tmp_path / "recipe.toml") == recipe
    assert rerun.command(found).startswith("geonorm compare recipe.toml --store ")


def test_ones_own_model_is_done_again_by_a_call(tmp_path: Path) -> None:
    found = fake_comparison(
        tmp_path / "r.sqlite", ["own", "ln"], lambda *_: 0.9, data="me:make_data", model="me:make_model"
    )
    assert rerun.command(found).startswith("compare(make_model, make_data, norms=['own', 'ln'], losses=['erm'], ")
    text = page_of(gather(found))
    assert "the norms of the model as it was written" in text


def test_one_function_of_ones_own_is_named_in_a_recipe(tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], lambda *_: 0.9, data="me:make_data")
    assert rerun.command(found).startswith("geonorm compare recipe.toml")


def test_names_are_escaped(tmp_path: Path) -> None:
    bad = "<script>alert('x')</script>&\""
    found = fake_comparison(
        tmp_path / "r.sqlite",
        ["bn", bad],
        lambda norm, corruption, seed: 0.9 + 0.01 * seed,
        corruptions=["clean", f"{bad}1"],
        evaluations=["clean", f"{bad}2"],
        model=f"{bad}3",
        data=f"{bad}4",
        seeds=2,
    )
    text = page_of(gather(found))
    assert "<script>alert" not in text
    for number in ("", "1", "2", "3", "4"):
        assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;" + number in text
    assert text.count("</script>") == 2  # the curves, and the page's own


def named(folder: Path, name: str) -> Comparison:
    """A comparison in which everything that has a name is named so."""
    return fake_comparison(
        folder / "r.sqlite",
        ["bn", name],
        lambda norm, corruption, seed: 0.9 + 0.01 * seed,
        corruptions=["clean", f"{name}1"],
        evaluations=["clean", f"{name}2"],
        model=f"{name}3",
        data=f"{name}4",
        seeds=2,
    )


@pytest.mark.parametrize("name", HTML)
def test_no_name_adds_an_element(tmp_path: Path, name: str) -> None:
    """Whatever the names are, the page has the elements that it has with plain ones."""
    pages = []
    for number, one in enumerate((name, harmless(name))):
        (tmp_path / str(number)).mkdir()
        found = named(tmp_path / str(number), one)
        pages.append(page_of(gather(found)))
    same_skeleton(*pages)


@pytest.mark.slow
def test_no_name_breaks_a_report(tmp_path: Path) -> None:
    """All files, pictures included: matplotlib takes a dollar sign for the beginning of a formula."""
    for number, name in enumerate([*HTML, "a$b_{$", "$\\frac{$", "a" * 3000]):
        (tmp_path / str(number)).mkdir()
        written = report.write(named(tmp_path / str(number), name), tmp_path / str(number) / "report")
        for drawn in written.parent.glob("*.svg"):
            assert "<script" not in drawn.read_text(encoding="utf-8")


def test_every_norm_has_a_picture() -> None:
    for norm in geonorm.norms():
        assert picture(norm).startswith("<svg"), norm
    assert picture("own") == ""
    assert picture("bn") != picture("ln") != picture("pop")
    assert "median" in picture("median")
    assert "φ = 1.5" in picture("augbn(phi=1.5)")
    assert "φ learned" in picture("diffphi")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    if chromium.PROGRAM is None:
        pytest.skip("no Chromium here; apt-get install chromium")
    if sys.platform != "linux":
        pytest.skip("the browser is spoken to over pipes of Linux")
    with chromium.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


COLUMN = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[{}].dataset.value)"


def test_the_table_sorts(page: chromium.Page, path: Path) -> None:
    page.open(path)
    assert page.run(COLUMN.format(0)) == NORMS
    press = "document.querySelectorAll('th button')[2].click(); "
    up = [float(value) for value in page.run(press + COLUMN.format(2))]
    assert up == sorted(up)
    assert up != [float(value) for value in page.run(press + COLUMN.format(2))] == sorted(up, reverse=True)


def test_curves_toggle_and_rescale(page: chromium.Page, path: Path) -> None:
    page.open(path)
    lines = "document.querySelectorAll('.plot[data-source=curves] svg.curves path.line').length"
    ticks = "document.querySelector('.plot[data-source=curves] svg.curves').textContent"
    assert page.run(lines) == len(NORMS)
    page.run("document.querySelector('.plot select').value = 1; document.querySelector('.plot select')"
             ".dispatchEvent(new Event('change'))")  # fmt: skip
    before = page.run(ticks)
    page.run("document.querySelectorAll('.legend button')[7].click()")
    assert page.run(lines) == len(NORMS) - 1
    assert page.run(ticks) != before  # the axis fits what is left
    assert page.run("document.querySelectorAll('.legend button')[7].getAttribute('aria-pressed')") == "false"
    page.run("document.querySelectorAll('.legend button')[7].click()")
    assert page.run(lines) == len(NORMS)
    assert page.run(ticks) == before
    shown = page.run("document.querySelector('.legend .value').textContent")
    assert float(shown) == pytest.approx(100 * 0.95 * LEVELS["none", OFFSET], abs=0.5)  # the last of six epochs
    assert page.run("document.querySelectorAll('.plot[data-source=exponents] path.line').length") == 2


@pytest.mark.parametrize(("dark", "background"), [(False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 28)")])
@pytest.mark.parametrize("width", [1280, 375])
def test_light_and_dark_on_desk_and_phone(
    page: chromium.Page, path: Path, width: int, dark: bool, background: str
) -> None:
    page.open(path, width, dark=dark)
    assert page.run("getComputedStyle(document.body).backgroundColor") == background
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("document.querySelector('svg.curves').getBoundingClientRect().right <= innerWidth")
    assert page.run("document.querySelectorAll('h2').length") == 7


def test_long_names_fit_a_phone(page: chromium.Page, tmp_path: Path) -> None:
    name = "augbn(" + "a" * 80 + "=1)"
    found = fake_comparison(
        tmp_path / "r.sqlite", ["bn", name], lambda norm, corruption, seed: 0.9 + 0.01 * seed, model=name
    )
    page.open(report.write(found, tmp_path / "report"), 375)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_comparison_fits_a_phone(page: chromium.Page, tmp_path: Path) -> None:
    """The columns of ``make run`` side by side, with nothing to scroll to."""
    recipe = Recipe.from_toml(DIGITS)
    levels = {(norm, kind): 0.3 + 0.03 * i for i, norm in enumerate(recipe.norms) for kind in recipe.corruptions}
    found = fake_comparison(
        tmp_path / "r.sqlite", recipe.norms, accuracies_around(levels), corruptions=recipe.corruptions
    )
    page.open(report.write(found, tmp_path / "report"), 375)
    assert page.run("document.querySelector('tbody').textContent").count("0.001") > 5, "figures as wide as they get"
    assert page.run("[document.querySelector('.wide')].every((table) => table.scrollWidth <= table.clientWidth)")


def test_diverged_runs_do_not_break_the_curves(page: chromium.Page, tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], lambda norm, *_: math.nan if norm == "ln" else 0.9)
    page.open(report.write(found, tmp_path / "report"))
    assert page.run("document.querySelectorAll('svg.curves path.line').length") == 1
    assert page.run("document.querySelector('tbody').textContent").count("diverged") == 1


def test_two_seeds_do_not_reach_below_nothing(page: chromium.Page, tmp_path: Path) -> None:
    """Student's interval of two runs is wider than all accuracies."""
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], lambda norm, _, seed: 0.2 + 0.5 * seed, seeds=2)
    page.open(report.write(found, tmp_path / "report"))
    assert page.run("document.querySelector('tbody td.figures').innerText").splitlines()[1] == "0.0 to 100.0"
    assert page.run("[...document.querySelectorAll('.charts svg text')].every((t) => !t.textContent.startsWith('-'))")


def test_no_network_and_no_complaints(page: chromium.Page) -> None:
    """Over all that the tests above did."""
    assert all(address.startswith("file:") and address.endswith("report.html") for address in page.requests)
    assert len(page.requests) >= 1
    assert page.complaints == []


def charts_of(found: Comparison) -> str:
    """The part of the page with the runs."""
    text = page_of(gather(found))
    return text[text.index("<h2>Every run") : text.index("<h2>Accuracy")]


def test_every_run_is_a_dot_and_the_worst_is_ringed(comparison: Comparison) -> None:
    drawn = charts_of(comparison)
    assert drawn.count('class="run ') == len(comparison.finished())
    rings = drawn.count('class="worst"')
    assert rings == 2 * len(NORMS)  # of each norm in each column
    assert drawn.index(f"<h3>{OFFSET}") < drawn.index("<h3>clean"), "broken samples come first"
    assert drawn.count('class="interval ') == 2 * (len(NORMS) - 1)


def test_a_curve_that_is_flat_is_named_and_not_drawn(tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], lambda *_: 0.9, epochs=40)
    text = page_of(gather(found))
    assert "nothing moves in the second half: clean: test accuracy (%); clean: training loss" in text
    assert 'data-source="curves"' not in text


def test_memory_and_time_are_shown_where_they_are_known(tmp_path: Path) -> None:
    stored = run(Recipe(norms=("bn", "guardbn"), seeds=(0,), epochs=1), tmp_path / "r.sqlite")
    text = page_of(gather(stored))
    assert "Time of a training step, BatchNorm = " in text
    assert "Memory kept for the backward pass, BatchNorm = " in text
    old = fake_comparison(tmp_path / "old.sqlite", ["bn", "ln"], lambda *_: 0.9)
    text = page_of(gather(old))
    assert "Time of a training step, BatchNorm = 1<" in text
    assert "Memory kept" not in text
