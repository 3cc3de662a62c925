"""``geonorm completion``: scripts that the shells accept and that know the names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import geonorm
import geonorm.cli
import studies
from geonorm.cli import completion, main
from geonorm.lab.data import sources
from geonorm.lab.models import models

NAMES = Path(geonorm.cli.__file__).with_name("names.json")


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = folder / "_geonorm"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("bash", tmp_path, capsys)

    def completed(*words: str) -> set[str]:
        typed = " ".join(f"'{word}'" for word in words)
        ask = f"source {path}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_geonorm"
        done = subprocess.run(
            ["bash", "-c", f'{ask}; echo "${{COMPREPLY[@]}}"'], capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    assert completed("geonorm", "comp") == {"compare", "completion"}
    assert "--baseline" in completed("geonorm", "compare", "--b")
    assert "augbn" in completed("geonorm", "compare", "--norms", "aug")
    assert completed("geonorm", "compare", "--model", "resnet1") == {"resnet18", "resnet101"}
    assert completed("geonorm", "data", "fetch", "cifar100") == {"cifar100", "cifar100_subset"}
    assert completed("geonorm", "reproduce", "popnorm-k") == {"popnorm-kappa"}


def test_zsh_has_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script("zsh", tmp_path, capsys).read_text()
    assert text.startswith("#compdef geonorm")
    assert "--baseline" in text
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", str(tmp_path / "_geonorm")], check=True)


def test_the_names_are_those_of_the_registries() -> None:
    """In a file, because importing the registries takes longer than a person waits; UPDATE_DOCS=1 writes it."""
    known = {
        "norm": list(geonorm.norms()),
        "network": [name for name, _ in models()],
        "data": [source.name for source in sources()],
        "study": [study.name for study in studies.studies()],
    }
    if os.environ.get("UPDATE_DOCS"):
        NAMES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    assert {kind: sorted(names) for kind, names in completion.known_names().items()} == {
        kind: sorted(names) for kind, names in known.items()
    }


def test_an_installed_package_completes_no_names_of_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geonorm.lab.repository.find_root", lambda package: None)
    names = completion.known_names()
    assert names["study"] == []
    assert "digits" in names["data"]
    assert "celeba" not in names["data"]
    assert "mobilenetv2" not in names["network"]
