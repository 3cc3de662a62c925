"""The build chooses instruction sets by the compiler's target, not by the machine that it runs on."""

from __future__ import annotations

import platform
from pathlib import Path
from runpy import run_path

import pytest

BUILD = run_path(str(Path(__file__).parents[2] / "src" / "geonorm" / "csrc" / "build.py"))


@pytest.mark.parametrize(
    ("said", "machine"),
    [("aarch64-linux-gnu", "aarch64"), ("x86_64-linux-gnu", "x86_64"), ("arm64-apple-darwin23.1.0", "arm64")],
)
def test_the_target_is_the_compilers(said: str, machine: str, tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\necho {said}\n")
    compiler.chmod(0o755)
    assert BUILD["target_machine"](str(compiler)) == machine


def test_a_compiler_that_does_not_say_is_for_this_machine(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    assert BUILD["target_machine"](str(compiler)) == platform.machine().lower()
