"""A newcomer's walk: a clone, a fresh folder, and nothing but the README.

Commands and code are taken from the README as they stand there, in its order. What a reader does between them is here:
``mine.py`` is saved as the text says, commands of the repository are given in the clone and all others in the reader's
own folder, in an environment of the reader's own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def steps() -> list[tuple[str, str]]:
    """The blocks of the README: kind and text; the kind of one that is to be saved is the name of its file."""
    found = []
    for before, kind, block in re.findall(
        r"([^\n]*\n\n)```(python|sh)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        saved = re.search(r"Save this as `(\w+\.py)`", before)
        found.append((saved[1] if saved else kind, block))
    return found


def test_the_readme_has_the_walk() -> None:
    """How to install, three problems solved in ten lines each, two commands, a file of one's own and its use."""
    kinds = [kind for kind, _ in steps()]
    assert kinds == ["sh", "python", "python", "python", "sh", "mine.py", "sh"]
    blocks = [block for _, block in steps()]
    for block in blocks[1:4]:
        own = [line for line in block.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
        assert len(own) <= 10
    assert [line.split()[:2] for line in blocks[4].splitlines()] == [["make", "run"], ["make", "test"]]


class Reader:
    """Someone with a clone, a folder and an environment."""

    def __init__(self, home: Path) -> None:
        self.clone, self.folder, self.environment = home / "geonorm", home / "project", home / "environment"
        self.folder.mkdir()
        self._call(["git", "clone", "--quiet", str(ROOT), str(self.clone)], home)
        self._call([sys.executable, "-m", "venv", str(self.environment)], home)

    def gives(self, command: str) -> str:
        """What a command of the README prints."""
        words = shlex.split(command, comments=True)
        if words == ["make", "test"]:
            words.insert(1, "--dry-run")  # the tests are running already
        return self._call(words, self.clone if words[0] in ("make", "pip") else self.folder)

    def runs(self, code: str) -> str:
        return self._call(["python", "-c", code], self.folder)

    def _call(self, words: list[str], where: Path) -> str:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GEONORM", "PYTEST"))
        }
        path = f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words, cwd=where, env={**kept, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}"
        return done.stdout


@pytest.mark.slow
def test_a_newcomer_gets_to_a_diagnosed_model_of_their_own(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    said: dict[str, str] = {}
    code = []
    for kind, block in steps():
        if kind == "python":
            code.append(block)
        elif kind == "sh":
            for line in block.splitlines():
                said[" ".join(shlex.split(line, comments=True)[:2])] = reader.gives(line)
        else:
            (reader.folder / kind).write_text(block, encoding="utf-8")
    assert "BatchNorm" in said["make run"]
    assert (reader.clone / "out" / "compare-report" / "report.html").exists()
    assert "robustbn" in said["geonorm compare"]
    assert (reader.folder / "out" / "compare-report" / "report.html").exists()
    assert "1 norm" in said["geonorm diagnose"]
    assert (reader.folder / "diagnose.html").exists()

    survived, found, diagnosed = (reader.runs(block) for block in code)
    assert "guardbn" in survived
    assert "3 of 500 samples look broken" in found
    assert "WARNING  1: momentum" in diagnosed
    mine = reader.runs(
        "import mine, geonorm\n"
        "model = mine.make_model()\n"
        "print(geonorm.convert(model, 'robustbn'))\n"
        "geonorm.recalibrate(model, mine.batches())\n"
        "print(geonorm.diagnose(model, mine.batches()))\n"
    )
    assert "1 module changed, 0 left" in mine
    assert "1 norm" in mine
