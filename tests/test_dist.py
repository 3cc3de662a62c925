"""Wheel and sdist work where nothing but torch is, with a compiler and without one.

Each is installed by pip into an environment of its own. torch is installed once, beside them, into a folder that all of
them can see: nothing else is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from geonorm import __version__ as VERSION

ROOT = Path(__file__).parents[1]
NO_COMPILER = {"CXX": "/nowhere/c++"}
QUIET = ["-W", "error", "-W", "ignore:Failed to initialize NumPy"]  # torch itself says so, where there is none
SMOKE = """
import torch, geonorm
from pathlib import Path
assert Path(geonorm.__file__).is_relative_to(Path({environment!r})), geonorm.__file__
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
geonorm.convert(model, "robustbn")
x = torch.randn(16, 3, 8, 8)
x[0] += 50
output = model(x)
output.square().mean().backward()
assert output.isfinite().all() and model[0].weight.grad.isfinite().all()
assert "1 norm" in str(geonorm.diagnose(model, x))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without anything built."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def packages(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` makes of it."""
    out = tmp_path_factory.mktemp("dist")
    said = call([sys.executable, "-m", "build", "--outdir", out, source], {"GEONORM_REQUIRE_NATIVE": "1"})
    assert "Successfully built" in said
    return out


@pytest.fixture(scope="module")
def torch_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment that has torch, and what torch needs."""
    folder = tmp_path_factory.mktemp("torch")
    call([sys.executable, "-m", "venv", folder])
    call([folder / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", "torch"])
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


@pytest.mark.slow
def test_files_inside(source: Path, packages: Path) -> None:
    (wheel,), (sdist,) = packages.glob("*.whl"), packages.glob("*.tar.gz")
    assert wheel.name.startswith(f"geonorm-{VERSION}-py3-none-")
    assert sdist.name == f"geonorm-{VERSION}.tar.gz"
    built = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert "geonorm/ops/cpu/libgeonorm.so" in built
    assert not [name for name in packed if name.endswith(".so")]
    listed = subprocess.run(["git", "ls-files", "src/geonorm"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {name.removeprefix("src/") for name in listed.stdout.splitlines() if (source / name).exists()}
    assert wanted <= built
    beside = [name for name in built if not name.startswith(("geonorm/", f"geonorm-{VERSION}.dist-info/"))]
    assert not beside, "studies, benchmarks and tests stay in the repository"
    assert {f"src/{name}" for name in wanted} | {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= packed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "compiler", "backend"),
    [("*.whl", False, "native"), ("*.tar.gz", True, "native"), ("*.tar.gz", False, "torch")],
    ids=["wheel", "sdist with a compiler", "sdist without a compiler"],
)
def test_clean_environment(what, compiler, backend, packages: Path, torch_alone: Path, tmp_path: Path) -> None:
    (package,) = packages.glob(what)
    environment = tmp_path / "environment"
    call([sys.executable, "-m", "venv", environment])
    (own,) = environment.glob("lib/python*/site-packages")
    (own / "torch_alone.pth").write_text(f"{torch_alone}\n")
    settings = {} if compiler else NO_COMPILER
    said = call([environment / "bin" / "pip", "install", "--verbose", package], settings, errors=True)
    assert ("native kernels were not built" in said) == (backend == "torch")

    python, geonorm = environment / "bin" / "python", environment / "bin" / "geonorm"
    call([python, *QUIET, "-c", SMOKE.format(environment=str(environment))], cwd=tmp_path)
    about = json.loads(call([geonorm, "info", "--json"], cwd=tmp_path))
    assert (about["geonorm"], about["backend"]) == (VERSION, backend)
    assert "robustbn" in call([geonorm, "norms"], cwd=tmp_path)
    alone = subprocess.run([geonorm, "reproduce", "--list"], cwd=tmp_path, capture_output=True, text=True, env=plain())
    assert alone.returncode == 2
    assert "geonorm reproduce needs the repository" in alone.stderr
    lacking = subprocess.run([geonorm, "compare"], cwd=tmp_path, capture_output=True, text=True, env=plain())
    assert lacking.returncode == 1
    assert "pip install" in lacking.stderr
    assert "Traceback" not in lacking.stderr


def plain(settings: dict[str, str] | None = None) -> dict[str, str]:
    """The environment variables without those that would let this tree be imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GEONORM", "PYTEST"))}
    return {**kept, **(settings or {})}


def call(
    command: list[object], settings: dict[str, str] | None = None, cwd: Path | None = None, errors: bool = False
) -> str:
    """What a command prints, with ``errors`` to stderr as well; it must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=plain(settings), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr if errors else done.stdout
