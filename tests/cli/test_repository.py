"""Commands that need the repository: found from a clone, and one clear sentence from an installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geonorm.lab.repository import OF_STUDIES, find_root

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; from geonorm.cli import main; sys.exit(main())"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package and nothing beside it, as in an environment."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "geonorm").symlink_to(ROOT / "src" / "geonorm")
    return folder


def geonorm(installed: Path, current: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the installed package, from another folder."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(
        command, cwd=current, env={**outside, "PYTHONPATH": str(installed)}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("arguments", "target"),
    [(["reproduce", "--list"], "make reproduce STUDY=NAME"), (["bench"], "make bench")],
    ids=["reproduce", "bench"],
)
def test_an_installed_package_says_what_is_missing(
    arguments: list[str], target: str, installed: Path, tmp_path: Path
) -> None:
    for name in ("studies", "benchmarks"):  # folders of one's own that happen to be called so
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')")
    done = geonorm(installed, tmp_path, *arguments)
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.splitlines()[-1].endswith(
        f"geonorm {arguments[0]} needs the repository, which an installed package does not have: "
        f"clone it with git, then run {target} there"
    )


def test_other_commands_do_without(installed: Path, tmp_path: Path) -> None:
    """So does completion, which then knows no studies."""
    assert geonorm(installed, tmp_path, "norms").returncode == 0
    completion = geonorm(installed, tmp_path, "completion", "bash")
    assert completion.returncode == 0, completion.stderr
    assert "popnorm-kappa" not in completion.stdout


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["data", "check", "celeba"], "data 'celeba' is"),
        (["compare", "--data", "compas"], "data 'compas' is"),
        (["compare", "--data", "cifar10", "--model", "densenet121"], "network 'densenet121' is"),
        (["compare", "--evaluations", "adapted(by=guard, share=0)"], "evaluation 'adapted' is"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_installed_package_says_what_is_of_the_studies(
    arguments: list[str], missing: str, installed: Path, tmp_path: Path
) -> None:
    done = geonorm(installed, tmp_path, *arguments)
    assert done.returncode == 2
    assert not done.stdout
    told = f"{missing} part of the studies, which live in the repository and not in an installed package: git clone it"
    assert told in " ".join(done.stderr.split())


def test_an_installed_package_lists_its_own_data(installed: Path, tmp_path: Path) -> None:
    told = geonorm(installed, tmp_path, "data", "list")
    assert told.returncode == 0, told.stderr
    assert "digits" in told.stdout
    assert not any(name in told.stdout for name in OF_STUDIES["data"])


def test_a_clone_lists_those_of_the_studies(installed: Path) -> None:
    told = geonorm(installed, ROOT, "data", "list")
    assert told.returncode == 0, told.stderr
    assert all(name in told.stdout for name in OF_STUDIES["data"])


def test_an_installed_package_finds_the_studies_in_the_current_folder(installed: Path) -> None:
    done = geonorm(installed, ROOT, "reproduce", "--list")
    assert done.returncode == 0, done.stderr
    assert "popnorm-kappa" in done.stdout


@pytest.mark.parametrize("package", ["studies", "benchmarks.speed"])
def test_a_clone_finds_itself_from_anywhere(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root(package) == ROOT
    assert find_root("no_such_package") is None
