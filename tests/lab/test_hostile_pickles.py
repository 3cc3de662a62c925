"""A pickle that would write a file, in every file that geonorm reads: it is refused, and never executed."""

from __future__ import annotations

import ast
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geonorm.cli import main
from geonorm.lab import Recipe, Store, run
from geonorm.lab.data import DataError, load, plain_pickle
from geonorm.lab.data.arrays import read_array
from geonorm.lab.loading import load_model
from geonorm.lab.runner import checkpoint_of

ROOT = Path(__file__).parents[2]


class Hostile:
    """Writes a file when it is unpickled as pickles are."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What it would write. Also checks that it does write it, in the hands of a careless reader."""
    path = tmp_path / "mark"
    pickle.loads(pickle.dumps(Hostile(path)))
    assert path.exists()
    path.unlink()
    return path


def saved_by_torch(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def saved_by_old_torch(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


FORMS: dict[str, Callable[[Any], bytes]] = {
    "pickle": lambda value: pickle.dumps(value, 2),  # for a later protocol torch warns, and refuses it too
    "torch": saved_by_torch,
    "old torch": saved_by_old_torch,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_state_of_a_model(tmp_path: Path, mark: Path, form: str, wrapped: bool) -> None:
    hostile = Hostile(mark)
    (tmp_path / "model.py").write_text("import torch\nmodel = torch.nn.Linear(4, 2)\n")
    (tmp_path / "state.pt").write_bytes(
        FORMS[form]({"weight": torch.zeros(2, 4), "bias": hostile} if wrapped else hostile)
    )
    with pytest.raises(ValueError, match=r"expected (a state_dict in|.* to hold tensors only)"):
        load_model(f"{tmp_path / 'model.py'}:model", tmp_path / "state.pt")
    assert not mark.exists()


@pytest.mark.parametrize("command", ["diagnose", "summary"])
def test_commands(tmp_path: Path, mark: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text("import torch\nmodel = torch.nn.Linear(4, 2)\n")
    (tmp_path / "state.pt").write_bytes(saved_by_torch({"weight": Hostile(mark)}))
    named = ["--model", f"{tmp_path / 'model.py'}:model", "--state", str(tmp_path / "state.pt")]
    assert main([command, *named, "--input-shape", "4"]) == 1
    assert "tensors only (got something that would run code)" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize("form", FORMS)
def test_checkpoint_of_an_unfinished_run(tmp_path: Path, mark: Path, form: str) -> None:
    """Beside a results file that somebody else has sent: the run starts over."""
    recipe = Recipe(norms=("bn",), seeds=(0,), epochs=1)
    store = Store(tmp_path / "r.sqlite")
    (one,) = recipe.runs()
    store.add(one.choices)
    path = checkpoint_of(store, one)
    path.parent.mkdir()
    path.write_bytes(FORMS[form]({"done": 0, "model": Hostile(mark)}))
    with pytest.warns(UserWarning, match=r"cannot be read \(it holds something that would run code\); its run starts"):
        assert run(recipe, tmp_path / "r.sqlite").finished()
    assert not mark.exists()


@pytest.mark.parametrize("allowed", [True, False])
def test_arrays(tmp_path: Path, mark: Path, allowed: bool) -> None:
    np.save(tmp_path / "a.npy", np.array([Hostile(mark)], dtype=object), allow_pickle=True)
    if not allowed:  # a bare pickle under the name of an array
        (tmp_path / "a.npy").write_bytes(pickle.dumps(Hostile(mark)))
    with pytest.raises(DataError, match=r"not an \.npy file of numbers"):
        read_array(tmp_path / "a.npy", "")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(tmp_path / "a.npy", "a.npy")
    with pytest.raises(DataError):
        read_array(tmp_path / "a.npz", "")
    assert not mark.exists()


def test_cifar(tmp_path: Path, mark: Path) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Hostile(mark)}))
    with pytest.raises(DataError, match=r"Nothing in it was run"):
        plain_pickle.read_plain(tmp_path / "batch")
    assert not mark.exists()


def test_graphs_processed_by_somebody_else(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_geometric would load its own file of processed graphs, if it lay beside the copy that it is given."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path))
    raw, processed = tmp_path / "MUTAG" / "raw", tmp_path / "MUTAG" / "processed"
    for folder in (raw, processed):
        folder.mkdir(parents=True)
    texts = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n", "graph_labels": "1\n-1\n"}
    texts["node_labels"] = "0\n1\n0\n1\n"
    for part, text in texts.items():
        (raw / f"MUTAG_{part}.txt").write_text(text)
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        (processed / name).write_bytes(saved_by_torch(Hostile(mark)))
    with pytest.raises(DataError, match="graphs per class"):
        load("mutag")
    assert not mark.exists()


def calls(name: str) -> list[tuple[Path, ast.Call]]:
    """Calls of a function of that name in everything that is not a test."""
    found = []
    for folder in ("src", "studies", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                    found.append((path, node))
    return found


def option(call: ast.Call, name: str) -> object:
    return next((ast.unparse(word.value) for word in call.keywords if word.arg == name), None)


def test_no_other_reader_unpickles() -> None:
    loads = calls("torch.load")
    assert loads
    for path, call in loads:
        assert option(call, "weights_only") == "True", path
    for name in ("numpy.load", "np.load"):
        for path, call in calls(name):
            assert option(call, "allow_pickle") == "False", path
    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "joblib.load", "shelve.open", "marshal.loads"):
        assert not calls(name), f"{name} runs what a file says"
