"""``geonorm`` itself: its help, its versions, its mistakes, its exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from geonorm import __version__
from geonorm.cli import main, make_parser

COMMANDS = ["compare", "report", "reproduce", "data", "norms", "diagnose", "screen", "demo", "bench", "info"]
COMMANDS += ["completion"]


def code_of(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(["--help"]) == 0
    told = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n    {name}" in told
    for line in ("0   success", "1   the command failed", "2   the command line", "130 stopped by Ctrl-C"):
        assert line in told


@pytest.mark.parametrize(
    "command", [[name] for name in COMMANDS] + [["data", "list"], ["data", "fetch"], ["data", "check"]], ids=" ".join
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of([*command, "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: geonorm {' '.join(command)}")
    if command in (["compare"], ["report"], ["reproduce"], ["data"], ["diagnose"], ["screen"], ["bench"], ["demo"]):
        assert "example" in told
        assert f"  geonorm {command[0]}" in told


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["dmo"], "unknown 'dmo'; did you mean demo? known: compare, report"),
        (["zzz"], "unknown 'zzz'; known: compare, report"),
        (["compare", "--sed", "3"], "unexpected --sed; --sed: did you mean --seeds?"),
        (["compare", "--seed=3"], "--seed: did you mean --seeds?"),
        (["compare", "--epochs", "many"], "invalid int value: 'many'"),
        (["compare", "--workers", "0"], "expected a number from 1"),
        (["compare", "--workers", "two"], "expected a number from 1"),
        (["diagnose", "--modl", "a.py:b", "--input-shape", "3"], "--modl: did you mean --model?"),
        (["report"], "STORE"),
        (["data"], "ACTION"),
        (["data", "chek"], "unknown 'chek'; did you mean check?"),
        (["norms", "--jsn"], "--jsn: did you mean --json?"),
        (["completion", "bsh"], "unknown 'bsh'; did you mean bash?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_with_what_is_right(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("geonorm.lab.info.facts", interrupted)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "\ngeonorm: stopped\n"


def test_the_lab_waits_until_it_is_needed_and_a_closed_pipe_is_no_error() -> None:
    """One interpreter for both, as each costs seconds: help without the lab, then a reader that leaves."""
    script = (
        "import sys, geonorm.cli\n"
        "geonorm.cli.make_parser().format_help()\n"
        "assert 'geonorm.lab' not in sys.modules\n"
        "sys.exit(geonorm.cli.main(['norms']))\n"
    )
    started = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert (started.stderr.read(), started.wait()) == (b"", 0)
    started.stderr.close()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compare", "--help"], ["--version"], ["completion", "bash"], ["compar"]], ids=" ".join
)
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    """Importing it takes many times as long as all the rest."""
    script = (
        "import sys\n"
        f"sys.argv = ['/somewhere/bin/geonorm', *{arguments!r}]\n"  # as in the script that pip writes
        "from geonorm.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "slow = {'torch', 'numpy', 'scipy', 'rich', 'matplotlib'} & sys.modules.keys()\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_of_users_may_import_all(tmp_path: Path) -> None:
    """In the process of the command, where nothing is imported before it is used."""
    lines = [
        "from geonorm import *",
        "def make_model():",
        "    convert, screen, functional",
        "    return AugBatchNorm1d(8)",
    ]
    (tmp_path / "mine.py").write_text("\n".join(lines) + "\n")
    script = (
        "import sys\n"
        "sys.argv = ['/somewhere/bin/geonorm', 'summary', '--model', 'mine.py:make_model', '--input-shape', '8']\n"
        "from geonorm.cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AugBatchNorm1d" in done.stdout


def test_letters_that_the_output_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.setattr("geonorm.lab.info.facts", lambda: {"φ": "1 ± 0"})
    assert main(["info"]) == 0
    assert main(["info", "--json"]) == 0
    plain, as_json = written.buffer.getvalue().decode("ascii").splitlines()  # type: ignore[attr-defined]
    assert plain.split() == ["?:", "1", "?", "0"]
    assert json.loads(as_json) == {"φ": "1 ± 0"}


def test_a_stdout_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert main(["norms"]) == 0


def test_all_paths_of_the_parser_lead_to_a_function() -> None:
    for name in ("info", "norms", "bench", "demo"):
        assert callable(make_parser().parse_args([name]).run)


@pytest.mark.parametrize("module", ["geonorm.cli", "argparse", "torch"])
def test_an_interrupt_while_modules_are_imported_is_no_traceback(module: str) -> None:
    """A finder that comes before all others presses Ctrl-C when the module is imported."""
    script = (
        "import signal, sys\n"
        "sys.argv = ['/somewhere/bin/geonorm', 'norms']\n"
        "class Impatient:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from geonorm.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ngeonorm: stopped\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--model", "mine.py"], "name one of mine.py:make_model, mine.py:make_data"),
        (["compare", "--data", "mine.py"], "name one of mine.py:make_model, mine.py:make_data"),
        (["diagnose", "--model", "mine.py", "--input-shape", "3"], "name one of mine.py:make_model, mine.py:make_data"),
        (["screen", "--model", "mine.py:make_model", "--data", "nowhere.py"], "nowhere.py does not exist"),
        (["summary", "--model", "empty.py", "--input-shape", "3"], "empty.py defines no function"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_file_without_a_function_named(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is not run for this: it would import torch."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("raise SystemExit\ndef make_model(): ...\ndef make_data(): ...\n")
    Path("empty.py").write_text("SIZE = 3\n")
    assert code_of(arguments) == 2
    assert words in capsys.readouterr().err
