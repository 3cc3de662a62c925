"""``geonorm compare``: recipes by options and by file, one's own model and data, what is kept, what goes wrong."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from geonorm.cli import main

pytestmark = pytest.mark.usefixtures("quick_reports")


def test_table_answer_and_page_then_nothing_is_repeated(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *tiny]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split()[0] for line in (lines[0], *lines[2:4])] == ["norm", "bn", "ln"]
    assert lines[-1] == "Page: out/compare-report/report.html"
    assert lines[-3].endswith(".")
    assert said.err.splitlines()[0] == "2 runs, 1 at a time; results go to out/compare.sqlite"
    assert [line for line in said.err.splitlines() if line.startswith("[2/2] ")]
    assert main(["compare", *tiny, "--seeds", "2"]) == 0
    said = capsys.readouterr()
    assert "2 of 4 runs were already done" in said.err
    assert said.err.count(" % in ") == 2, "a line for each of the two new runs"


def test_json_is_alone_on_stdout(here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *tiny, "--json", "--store", "my.sqlite"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["already"], found["store"]) == (2, 0, "my.sqlite")
    assert [run["norm"] for run in found["finished"]] == ["bn", "ln"]
    assert 0 < found["finished"][0]["figures"]["clean"]["accuracy"] <= 1
    assert found["page"] == "my-report/report.html"


def test_a_file_and_options_over_it(
    here: Path, capsys: pytest.CaptureFixture[str], quick_reports: list[tuple[Path, str | None]]
) -> None:
    Path("recipe.toml").write_text('norms = ["ln", "none"]\nepochs = 50\nseeds = [7]\n[model_options]\nhidden = 8\n')
    arguments = ["recipe.toml", "--epochs", "1", "--workers", "1", "--out", "there", "--baseline", "ln", "--json"]
    assert main(["compare", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["norm"], run["seed"]) for run in found["finished"]] == [("ln", 7), ("none", 7)]
    assert quick_reports == [(Path("there"), "ln")]


def test_own_model_and_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--model", "own.py:make_model", "--data", "own.py:make_data", "--seeds", "1", "--epochs", "1"]
    assert main(["compare", *own, "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["norm"] for run in found["finished"]] == ["own", "aug(phi=1.5)", "aug(spread=robust)"]
    assert main(["compare", *own, "--workers", "1"]) == 0
    assert "3 of 3 runs were already done" in capsys.readouterr().err
    Path("own.py").write_text(Path("own.py").read_text().replace("Linear(2, 8)", "Linear(2, 16)").replace("(8", "(16"))
    assert main(["compare", *own, "--workers", "1"]) == 0
    assert "already" not in capsys.readouterr().err, "another function is another comparison"


TALKING = """
print("loaded")
from beside_own import make_data, make_model as model

def make_model():
    print("made")
    return model()
"""


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_own_functions_that_print_and_import(
    here: Path, workers: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that is not the current one, beside a module that they need; read once in each process."""
    monkeypatch.setattr("sys.path", [*sys.path])
    folder = here / "a folder"
    folder.mkdir()
    (here / "own.py").rename(folder / "beside_own.py")
    (folder / "talking.py").write_text(TALKING)
    own = ["--model", "a folder/talking.py:make_model", "--data", "a folder/talking.py:make_data"]
    arguments = ["--norms", "own", "median", "--epochs", "1", "--seeds", "1", "--workers", workers, "--json"]
    assert main(["compare", *own, *arguments]) == 0
    said = capfd.readouterr()
    assert len(json.loads(said.out)["finished"]) == 2
    assert said.err.count("made") == 2
    # Here, and once in every process that had a run: under load one may have had both.
    assert said.err.count("loaded") in ({1} if workers == "1" else {2, 3})


def test_a_reader_of_the_progress_that_leaves(
    here: Path, tiny: list[str], quick_reports: list[tuple[Path, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``geonorm compare 2>&1 | head -1``: the work is done all the same, and the page is written."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for stream in ("sys.stdout", "sys.stderr"):
        monkeypatch.setattr(stream, Gone())
    monkeypatch.setattr("os.dup2", lambda *_: None)  # fd 1 is not gone here, and stays as it is
    Gone.fileno = lambda self: 1  # type: ignore[method-assign]
    assert main(["compare", *tiny]) == 0
    assert len(quick_reports) == 1


def test_what_the_report_needs_is_asked_for_before_the_training(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["compare", *tiny]) == 1
    assert "matplotlib is needed here but not installed: pip install 'geonorm[lab,plots]'" in capsys.readouterr().err
    assert not Path("out").exists(), "nothing was begun"


def test_the_built_in_comparison(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight norms, clean and broken samples; one of its five seeds, an epoch each."""
    assert main(["compare", "--seeds", "1", "--epochs", "1", "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["finished"]) == 8 * 2
    assert {run["corruption"] for run in found["finished"]} == {"clean", "offset(share=0.1, strength=50)"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--norms", "bn", "augbm"], "unknown normalization 'augbm'; did you mean 'augbn'?"),
        (["--losses", "cvarr(alpha=0.1)"], "did you mean 'cvar'?"),
        (["--corruptions", "ofset"], "did you mean 'offset'?"),
        (["--evaluations", "nois"], "did you mean 'noise'?"),
        (["--data", "digts"], "did you mean 'digits'?"),
        (["--norms", "newton"], "the norm 'newton' is of a study"),
        (["--model", "resnet19"], "did you mean 'resnet18'?"),
        (["--model", "resnet20", "--norms", "ln"], "'ln' is over layer"),
        (["--norms", "own"], "'own' leaves the norms of a model of your own"),
        (["--optimizer", "sdg"], "did you mean 'sgd'?"),
        (["--decay", "cosin"], "did you mean 'cosine'?"),
        (["--epochs", "0"], "expected epochs to be a whole number from 1"),
        (["--seeds", "0"], "at least one of seeds"),
        (["--norms", "bn", "robustbn", "--baseline", "robustbm"], "did you mean 'robustbn'?"),
        (["typo.toml"], "unknown field of a recipe 'epochz'; did you mean 'epochs'?"),
        (["broken.toml"], "is not valid TOML"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    Path("typo.toml").write_text("epochz = 3")
    Path("broken.toml").write_text("epochs = = 3")
    with pytest.raises(SystemExit) as stop:
        main(["compare", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
    assert not Path("out").exists(), "nothing was begun"


WRONG = {
    "typo.py": "def make(:",
    "program.py": "import sys\nsys.exit(2)\n",
    "relative.py": "from .own import make_model as make\n",
    "raises.py": "def make():\n    return {}['width']\n",
    "loader.py": "import torch\ndef batches():\n    return torch.utils.data.DataLoader(torch.zeros(4, 2), 2)\n",
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml"], "nothing.toml"),
        (["--data", "mutag"], "mutag is not at hand: looked for tu_graphs/MUTAG"),
        (["--model", "nowhere.py:make", "--data", "own.py:make_data"], "does not exist"),
        (["--model", "own.py:nothing", "--data", "own.py:make_data"], "expected the name 'nothing' in own.py"),
        (["--model", "own.py:nothing", "--data", "own.py:make_data"], "; it has "),
        (
            ["--model", "own.py:make_model", "--data", "loader.py:batches", "--norms", "own", "aug"],
            "2 of 2 runs failed; the first: own, erm, clean, seed 0 and 1 more: expected loader.py:batches to return "
            "(train, test) or a Task (got DataLoader)",
        ),
        (["--model", "own.py:make_model", "--data", "own.py:OWN.x"], "it is not defined there"),
        (
            ["--model", "own.py:plain_model", "--data", "own.py:make_data", "--norms", "ln"],
            "a model with norms",
        ),
        (
            ["--model", "own.py:make_model", "--data", "own.py:make_data", "--norms", "ln"],
            "cannot convert the model to 'ln'",
        ),
        (["--store", "own.py"], "damaged or not a results file"),
        (["--model", "typo.py:make"], "typo.py cannot be loaded for model: invalid syntax (typo.py, line 1)"),
        (
            ["--model", "program.py:make"],
            "move the code that the file runs as a program below if __name__",
        ),
        (["--model", "relative.py:make"], "name a module of a package as package.module:function"),
        (["--model", "raises.py:make"], ": KeyError: 'width' (raises.py, line 2)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_work_that_fails(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    for name, text in WRONG.items():
        Path(name).write_text(text)
    monkeypatch.setenv("GEONORM_DATA", str(here))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here))
    assert main(["compare", *arguments, "--workers", "1", "--epochs", "1", "--seeds", "1"]) == 1
    said = capsys.readouterr()
    assert words in said.err.splitlines()[-1]
    assert said.err.splitlines()[-1].startswith("geonorm: ")
    assert not said.out


def test_what_did_not_fail_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LayerNorm cannot replace BatchNorm by itself; the other norm can."""
    own = ["--model", "own.py:make_model", "--data", "own.py:make_data", "--seeds", "1", "--epochs", "1"]
    assert main(["compare", *own, "--norms", "own", "ln", "--workers", "1"]) == 1
    said = capsys.readouterr()
    assert "own" in said.out
    assert "Page: " in said.out
    assert "1 of 2 runs failed" in said.err


def test_runs_of_another_process_are_not_waited_for(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from geonorm.lab import Store

    monkeypatch.setattr(Store, "claim", lambda store, key: False)
    assert main(["compare", *tiny]) == 1
    assert "2 of 2 runs are being executed by another process" in capsys.readouterr().err
