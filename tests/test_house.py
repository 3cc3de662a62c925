"""The house: torch is the only import of the core, rooms open one way, and what is public is documented."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "geonorm"
# An import may go to a room further down, never up.
ORDER = [
    "cli", "lab", "integrations", "analysis", "html", "robust", "optim", "surgery", "introspect", "nn", "functional",
    "distributed", "ops",
]  # fmt: skip
SIDE_BY_SIDE = {"integrations", "analysis", "html", "robust", "optim", "surgery"}  # these may use each other


def test_import_needs_torch_and_nothing_else() -> None:
    """A fresh interpreter in which everything but torch's own dependencies is hidden."""
    script = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import geonorm\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "outside = {m for m in new if m not in sys.stdlib_module_names} - {'geonorm', 'torch'}\n"
        "assert not outside, outside\n"
        "assert 'geonorm.analysis' not in sys.modules and geonorm.diagnose is geonorm.analysis.diagnose\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_dir_shows_what_is_public_before_it_is_asked_for() -> None:
    script = (
        "import geonorm\n"
        "assert dir(geonorm) == sorted(geonorm.__all__), set(dir(geonorm)) ^ set(geonorm.__all__)\n"
        "assert all(getattr(geonorm, name) is not None for name in dir(geonorm))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("room", ["nn", "functional", "analysis", "robust", "optim", "surgery", "lab", "lab.data"])
def test_dir_of_a_room_shows_public_names_only(room: str) -> None:
    module = import_module(f"geonorm.{room}")
    assert dir(module) == sorted(module.__all__)


def room_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = room_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            beside = {name.split(".")[0] for name in names} & {"studies", "benchmarks", "tests"}
            assert not beside or getattr(node, "level", 0), f"the package must not import {beside}"
        if not isinstance(node, ast.ImportFrom) or not node.level or here is None:
            continue
        parts = list(path.relative_to(PACKAGE).parts[:-1])
        parts = parts[: len(parts) - node.level + 1] + (node.module.split(".") if node.module else [])
        for there in [parts[0]] if parts else [name.name for name in node.names]:
            if there in ORDER and there != here and not {here, there} <= SIDE_BY_SIDE:
                assert ORDER.index(here) < ORDER.index(there), f"{here} must not import {there}"


# Inside ops: a backend knows what a normalization is, and torch's, which takes what it has no kernel for; no other.
BACKENDS = sorted(path.parent.name for path in (PACKAGE / "ops").glob("*/__init__.py"))
MAY_USE = {backend: {"torch"} for backend in BACKENDS} | {"torch": set(), "joint": {"torch", "cpu"}}


@pytest.mark.parametrize("backend", MAY_USE)
def test_backends_are_peers(backend: str) -> None:
    for path in sorted((PACKAGE / "ops" / backend).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
                there = node.module.split(".")[0]
                assert there not in {*MAY_USE, "schema", "choose", "eager"} - MAY_USE[backend], f"{path}: {there}"


def test_one_file_knows_ctypes() -> None:
    using = [path for path in PACKAGE.rglob("*.py") if "import ctypes" in path.read_text()]
    assert using == [PACKAGE / "ops" / "cpu" / "library.py"]


def test_functional_mutates_nothing() -> None:
    """No method whose name ends in an underscore, but that which makes a leaf of its own."""
    for path in sorted((PACKAGE / "functional").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
                of_ops = isinstance(node.func.value, ast.Name) and node.func.value.id == "ops"
                assert of_ops or node.func.attr in ("requires_grad_", "__init__"), f"{path}:{node.lineno}"


# Tests of one module are in a file of its name, in the folder of its room. These are about several modules.
TESTS_ACROSS_MODULES = {
    "analysis/test_untouched.py",
    "analysis/diagnose/test_planted_faults.py",
    "distributed/test_collectives.py",
    "distributed/test_example.py",
    "distributed/test_failures.py",
    "distributed/test_process_group.py",
    "distributed/test_same_numbers.py",
    "nn/test_harness.py",
    "nn/test_layer_gradients.py",
    "nn/test_like_torch.py",
    "nn/test_module_db.py",
    "nn/test_signatures.py",
    "nn/test_transforms.py",
    "nn/test_twins.py",
    "ops/test_backends.py",
    "ops/test_devices.py",
    "ops/cpu/test_processes.py",
    "ops/cpu/test_threads.py",
    "ops/cpu/test_regressions.py",
    "ops/cpu/test_statistics.py",
    "surgery/test_convert_matrix.py",
    "surgery/test_guarded_norms.py",
    "surgery/test_hard_cases_of_fuse_and_convert.py",
    "surgery/test_hard_cases_of_other_verbs.py",
}
MIRRORED = [room for room in ORDER if room not in ("cli", "lab")]


def test_tests_mirror_the_modules() -> None:
    """``tests/ROOM/test_STEM.py`` is about ``ROOM/STEM.py`` or ``ROOM/_STEM.py``."""
    tests = ROOT / "tests"
    files = {path.relative_to(tests) for room in MIRRORED for path in (tests / room).rglob("test_*.py")}
    assert len(files) > 50
    unmatched = set()
    for file in files:
        stem = file.stem.removeprefix("test_")
        if not any((PACKAGE / file.parent / f"{name}.py").is_file() for name in (stem, f"_{stem}")):
            unmatched.add(file.as_posix())
    assert unmatched == TESTS_ACROSS_MODULES


def public_layers() -> list[str]:
    from geonorm import nn
    from geonorm.nn._base import NormLayer

    things = {name: getattr(nn, name) for name in nn.__all__}
    return [name for name, thing in things.items() if isinstance(thing, type) and issubclass(thing, NormLayer)]


def test_every_layer_goes_through_the_harness() -> None:
    from helpers.layer_cases import CASE_NAMES

    assert sorted(CASE_NAMES) == sorted(public_layers())


@pytest.mark.parametrize("layer", public_layers())
def test_every_layer_has_a_place_in_the_docs(layer: str) -> None:
    stem = layer.removesuffix("1d").removesuffix("2d").removesuffix("3d")
    assert stem in (ROOT / "docs" / "layers" / "index.md").read_text(encoding="utf-8")


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 80


def public_things() -> list[object]:
    """Functions and layers that users import."""
    import torch

    import geonorm

    modules = (geonorm, geonorm.functional, geonorm.nn, geonorm.analysis, geonorm.optim, geonorm.robust)
    things = {getattr(module, name) for module in modules for name in module.__all__}
    ours = [t for t in things if (getattr(t, "__module__", None) or "").startswith("geonorm")]
    layers = [t for t in ours if isinstance(t, type) and issubclass(t, torch.nn.Module)]
    return sorted([*layers, *[t for t in ours if not isinstance(t, type)]], key=lambda t: t.__name__)


@pytest.mark.parametrize("thing", public_things(), ids=lambda t: t.__name__)
def test_docstrings_are_whole(thing) -> None:
    """What it does, its arguments, shapes, and an example that the doctests run."""
    doc = thing.__doc__
    takes_something = isinstance(thing, type) or inspect.signature(thing).parameters
    rooms_on_models = ("geonorm.surgery", "geonorm.analysis", "geonorm.optim", "geonorm.robust")
    on_models = thing.__module__.startswith(rooms_on_models)
    parts = [*(["Args:"] if takes_something else []), *([] if on_models or not takes_something else ["Shape:"])]
    parts += ["Examples:", ">>> "]
    for part in parts:
        assert part in doc, f"{thing.__name__} lacks {part}"


def test_every_name_is_found_when_the_command_imports_the_package() -> None:
    """The process of the command imports nothing at first; what it then asks for is what everyone gets."""
    script = (
        "import sys\n"
        "sys.argv = ['/somewhere/bin/geonorm']\n"
        "import geonorm\n"
        "assert 'torch' not in sys.modules\n"
        "import geonorm.nn\n"
        "for name in {*geonorm.__all__, *geonorm.nn.__all__}:\n"
        "    assert getattr(geonorm, name) is not None\n"
        "assert geonorm.diagnose is geonorm.analysis.diagnose\n"
        "assert not hasattr(geonorm, 'Diagnosis') and not hasattr(geonorm, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
