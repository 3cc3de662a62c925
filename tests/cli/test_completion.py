"""``geonorm completion``: scripts that the shells accept and that know the names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from geonorm.cli import main


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
