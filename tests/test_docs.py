"""README and pages: their code runs and prints what they show, their commands parse, their links lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.reference import REFERENCE_PAGES, on_page_markdown, public_names
from helpers.chromium import PROGRAM, browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# A block of code, and the block of text right below it, which is what it prints; "..." stands for anything.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```(?:text|{ \.text \.wrap })\n(.*?)```)?", re.DOTALL)

SLOW = (
    "docs/analysis/diagnose.md:0",
    "docs/analysis/curvature.md:0",
    "docs/analysis/robustness.md:0",
    "docs/analysis/robustness.md:1",
)  # they train


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_blocks() -> list[Any]:
    found = [
        (f"{named(page)}:{i}", code, printed)
        for page in WRITTEN
        for i, (code, printed) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    ]
    return [pytest.param(*one, id=one[0], marks=[pytest.mark.slow] * (one[0] in SLOW)) for one in found]


@pytest.mark.parametrize(("name", "code", "printed"), code_blocks())
def test_code_runs_and_prints_what_is_shown(name, code, printed, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    if printed:
        trimmed = "\n".join(line.rstrip() for line in said.getvalue().rstrip().splitlines()) + "\n"
        assert doctest.OutputChecker().check_output(printed, trimmed, doctest.ELLIPSIS), trimmed


def commands() -> list[tuple[str, str]]:
    found = []
    for page in WRITTEN:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            found += [(named(page), line) for line in block.splitlines() if line.strip()]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_are_there(page: str, line: str) -> None:
    """Commands of geonorm have these options; targets of make exist; nothing else stands in the pages unknown."""
    from geonorm.cli import make_parser

    words = shlex.split(line, comments=True)
    if words[0] == "geonorm":
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        with pytest.raises(SystemExit, match=r"^0$") if "--help" in words else contextlib.nullcontext():
            make_parser().parse_args(words)
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets), line
    else:
        assert words[0] in ("pip", "git", "cd", "python", "torchrun"), line


def anchors(page: Path) -> set[str]:
    """Those of headings, as the site makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = [re.sub(r"[`*]|\[(.*?)\]\(.*?\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    ascii_only = [unicodedata.normalize("NFKD", head).encode("ascii", "ignore").decode() for head in plain]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in ascii_only}


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]+)?\)", text):
        if "://" in target:
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{named(page)} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor[1:] in anchors(there), f"{named(page)} links to {target}{anchor}"


def test_every_page_and_picture_is_reached() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    written = "".join(page.read_text(encoding="utf-8") for page in WRITTEN)
    for page in DOCS.rglob("*.md"):
        if page.parent.name != "reproduce":
            assert str(page.relative_to(DOCS)) in menu, f"{page.name} is not in the menu"
    for picture in (DOCS / "images").iterdir():
        assert picture.name in written, f"no page shows {picture.name}"


@pytest.mark.parametrize("page", sorted((DOCS / "start").iterdir()), ids=named)
def test_a_step_of_the_start_is_read_in_a_minute(page: Path) -> None:
    """250 words, those of code included."""
    text = re.sub(r"https?://\S+|[|`#*()\[\]-]", " ", page.read_text(encoding="utf-8"))
    assert len(text.split()) <= 250


def test_figures_of_the_pages_are_the_stored_ones() -> None:
    stored = json.loads((ROOT / "benchmarks" / "pages.json").read_text(encoding="utf-8"))
    for name, kept in stored.items():
        page = (DOCS / kept["page"]).read_text(encoding="utf-8")
        assert f"<!-- benchmark: {name} -->\n{kept['table']}<!-- end -->" in page, name


def test_pages_on_speed_are_what_the_store_has() -> None:
    performance = made_by("performance")
    for (page, mark), text in performance.tables().items():
        assert between(DOCS / page, mark)[1] == text, f"{page}, {mark}: python -m benchmarks.run pages writes it"


def test_all_of_a_run_is_on_the_page() -> None:
    """Every row with quartiles, with one thread too, of one state of the code."""
    performance = made_by("performance")
    results = performance.newest()
    assert all(result.low <= result.ratio <= result.high for result in results if result.row != "growth")
    assert {result.threads for result in results} == {1, max(result.threads for result in results)}
    assert len({result.code for result in results}) == 1


def test_words_on_speed_are_true_of_the_table() -> None:
    """What the README, docs/speed.md, docs/choosing.md and docs/layers/layer.md say of the order of layers."""
    found = made_by("performance").ratios(made_by("performance").newest())
    images, dense = ({row: found[f"{of}, {row}"] for row in ROWS} for of in ("BatchNorm2d", "BatchNorm1d"))
    least = max(found["PopNorm2d"], images["φ=1.5"], images["guard"])
    assert least < min(1, images["φ learned"], images["robust spread"])
    assert max(images, key=images.__getitem__) == "median"
    assert least < min(dense["φ=1.5"], found["LayerNorm, φ=1.5"])
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "dense layers, transformers or bfloat16.** Torch's own layers are faster there" in said
    for row in ("BatchNorm1d", "LayerNorm", "bfloat16"):
        assert found[f"{row}, φ=1.5"] > 1, row
    steps = [value for row, value in found.items() if row.startswith("ResNet-20 step, ")]
    layers = [value for row, value in images.items() if row != "median"]
    assert max(steps) - min(steps) < (max(layers) - min(layers)) / 2


ROWS = ("φ=1.5", "φ learned", "robust spread", "guard", "median")


def test_the_table_of_gradients_is_what_the_store_has(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = made_by("gradients")
    outcomes = gradients.stored()
    assert between(DOCS / "limits.md", "gradients")[1] == gradients.table(outcomes)
    assert {o.norm for o in outcomes} == set(gradients.NORMS)
    worst = {norm: max(o.rounding for o in outcomes if o.norm == norm) for norm in gradients.NORMS}
    moved = {norm: max(o.one_ulp for o in outcomes if o.norm == norm) for norm in gradients.NORMS}
    for norm in ("augbn(phi=1.5)", "robustbn"):  # what the page says of it
        assert worst[norm] > 10 * worst["bn"]
        assert worst[norm] / 2 < moved[norm] < worst[norm]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_gradients_are_measured_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them, to its order of magnitude: the rest is rounding, and another machine rounds otherwise."""
    gradients = made_by("gradients")
    found = gradients.measure("robustbn", 0)
    assert 1e-3 < found.rounding < 0.3
    assert 1e-3 < found.one_ulp < 0.3


def test_the_version_is_one() -> None:
    import geonorm

    assert f"\nversion: {geonorm.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {geonorm.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def between(page: Path, mark: str) -> tuple[str, str, str]:
    """What is written before, between and after the marks of a page."""
    head, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    written, end, tail = rest.partition("<!-- end -->\n")
    assert start
    assert end
    return head + start, written, end + tail


def test_the_table_of_specs_is_the_registry() -> None:
    import geonorm

    rows = "".join(f"| `{name}` | {line} |\n" for name, line in geonorm.norms().items())
    is_written(DOCS / "layers" / "index.md", "specs", "| name | what it is |\n| --- | --- |\n" + rows)


@pytest.mark.parametrize("page", REFERENCE_PAGES)
def test_the_reference_has_every_public_name(page: str) -> None:
    of_mkdocs = SimpleNamespace(file=SimpleNamespace(src_uri=f"reference/{page}.md"))
    shown = on_page_markdown((DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8"), of_mkdocs)
    for module in REFERENCE_PAGES[page]:
        for path in public_names(module).values():
            assert f"::: {path}\n" in shown, path


def is_written(page: Path, mark: str, expected: str) -> None:
    """Written by hand nowhere: `UPDATE_DOCS=1 pytest tests/test_docs.py` writes it."""
    head, written, tail = between(page, mark)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(head + expected + tail, encoding="utf-8")
        return
    assert written == expected


def test_names_of_the_package_are_in_the_reference() -> None:
    """What ``geonorm`` itself offers is documented where it comes from."""
    import geonorm

    known = {name for modules in REFERENCE_PAGES.values() for module in modules for name in public_names(module)}
    rooms = {"__version__", "analysis", "functional", "nn", "optim", "robust"}
    assert set(geonorm.__all__) - rooms <= known


def made_by(script: str):
    """A script of benchmarks/, as a module."""
    return importlib.import_module(f"benchmarks.{script}")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the scripts draw and measure: sums in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name",
    [
        "broken_samples",
        "one_outlier",
        "spreads",
        "guard",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("sphere", "placement", "norm_growth")),
    ],
)
def test_pictures_are_drawn_the_same_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = re.search(r"^matplotlib==([\d.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None or pinned[1] != version("matplotlib"):
        pytest.skip("drawn with another matplotlib")
    pictures = made_by("pictures")
    assert pictures.draw(name, tmp_path).read_bytes() == (DOCS / "images" / f"{name}.svg").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_gallery_is_what_diagnose_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures aside, whose last digits depend on the machine; and every fix removes its finding."""
    gallery = made_by("gallery")
    written = gallery.PAGE.read_text(encoding="utf-8")
    by_name = {fault.what: fault for fault in gallery.faults.FAULTS}
    for fixes in gallery.SECTIONS.values():
        for what, fix in fixes.items():
            shown = gallery.entry(gallery.show(by_name[what], fix))
            assert without_figures(shown) in without_figures(written), what
    shown_or_missed = {what for fixes in gallery.SECTIONS.values() for what in fixes}
    missed = {outcome.fault for outcome in gallery.faults.stored() if outcome.layer and not outcome.found}
    assert shown_or_missed | missed == set(by_name)


def without_figures(text: str) -> str:
    return re.sub(r"\d[\d.]*(e[-+]?\d+)?", "0", text)


def test_the_results_in_the_readme_are_the_stored_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    readme = made_by("readme")
    assert between(ROOT / "README.md", "results")[1] == readme.table()


def test_the_findings_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = made_by("findings")
    for paper in findings.MAIN:
        assert between(DOCS / "findings.md", paper)[1] == findings.table(paper)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: links, anchors and references to names are checked."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.mark.slow
def test_the_site_has_every_name_and_loads_nothing_from_elsewhere(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes()
    known = zlib.decompress(inventory.split(b"\n", 4)[4]).decode()
    for modules in REFERENCE_PAGES.values():
        for module in modules:
            for path in public_names(module).values():
                assert f"{path} " in known, path
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\"\s>]+)|<link[^>]*\shref=\"?([^\"\s>]+)", text)
        assert not [a or b for a, b in loaded if "://" in (a or b)], page


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; apt-get install chromium")
@pytest.mark.parametrize("width", [1280, 375])
def test_pages_fit_the_screen(width: int, site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        for page in sorted(site.rglob("index.html")):
            tab.open(page, width=width)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), page
        assert not tab.complaints
        assert not [address for address in tab.requests if not address.startswith(("file:", "data:"))]
