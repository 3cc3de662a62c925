"""The user's own models, data and batches, named as ``file.py:function`` or ``module:function``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from .bars import say
from .one_line_error import one_line_error


def named_object(spec: str, option: str) -> Any:
    """The object named by ``module:name`` or ``path/to/file.py:name``; modules in the current folder are found too.

    Loading runs the code there, which is said on stderr first: a recipe may name what its reader has not read.
    """
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise ValueError(f"expected {option} as module:function or file.py:function (got {spec!r})")
    is_file, path = where.endswith(".py"), Path(where)
    if is_file and not path.is_file():
        raise ValueError(f"expected a file for {option} (got {where!r}, which does not exist)")
    try:
        found: Any = _file(path.resolve(), path.stat().st_mtime_ns) if is_file else _module(where)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where} cannot be loaded for {option}: {one_line_error(error)}{_cure(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(
                f"expected the name {part!r} in {where} for {option} (it is not defined there){_others(found)}"
            )
        found = getattr(found, part)
    return found


@lru_cache
def _file(path: Path, changed: int) -> ModuleType:
    """A file as a module, run once unless it changes; as for a script, modules in its folder are found."""
    _announce(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    _find_modules_in(str(path.parent))
    located = importlib.util.spec_from_file_location(path.stem, path)
    assert located is not None
    assert located.loader is not None
    module = importlib.util.module_from_spec(located)
    sys.modules.setdefault(path.stem, module)
    located.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    _find_modules_in("")
    package = name.partition(".")[0]  # looking for the module itself would run its package
    if name not in sys.modules and importlib.util.find_spec(package) is not None:
        _announce(name)
    return importlib.import_module(name)


def _announce(what: str | Path) -> None:
    if multiprocessing.parent_process() is None:  # the first process has said it
        say(f"running the code in {what}")


def _others(found: Any) -> str:
    """For a message: the functions that are defined in a module."""
    home = getattr(found, "__name__", None)
    names = [
        name
        for name, value in getattr(found, "__dict__", {}).items()
        if inspect.isfunction(value) and value.__module__ == home
    ]
    return f"; it has {', '.join(names)}" if names else ""


def _find_modules_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _cure(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "; move the code that the file runs as a program below if __name__ == '__main__':"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "; name a module of a package as package.module:function"
    return ""


def load_model(spec: str, state: Path | None = None) -> nn.Module:
    """The model that a function returns, with the tensors of a state_dict file; no code in that file is run."""
    found = named_object(spec, "--model")
    model = found if isinstance(found, nn.Module) else _made_by(found, spec)
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected --model {spec} to return a torch.nn.Module (got {type(model).__name__})")
    if state is not None:
        try:
            model.load_state_dict(_state_dict(state))
        except RuntimeError as error:
            raise ValueError(f"{state} does not fit the model: {error}") from error
    return model


def _state_dict(path: Path) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # for a broken file the unpickler can raise anything
        if would_run_code(error):
            raise ValueError(
                f"expected {path} to hold tensors only (got something that would run code); save model.state_dict()"
            ) from error
        raise ValueError(f"expected a state_dict in {path} (got a file that is corrupt or of another kind)") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(wrapper), dict):
            found = found[wrapper]
    if not isinstance(found, dict):
        raise ValueError(f"expected a state_dict in {path} (got {type(found).__name__})")
    return found


def would_run_code(error: Exception) -> bool:
    """Whether ``torch.load`` refused a file because it holds more than tensors and plain values."""
    return "GLOBAL" in str(error) or "Unsupported class" in str(error)


def load_batches(spec: str) -> Iterable[Any]:
    """The batches that a function returns, or a list or DataLoader of that name."""
    found = named_object(spec, "--data")
    batches = _made_by(found, spec) if callable(found) else found
    if _is_data_set(batches) or (isinstance(batches, tuple | list) and any(map(_is_data_set, batches))):
        got = "a data set" if _is_data_set(batches) else "data sets, as compare wants them"
        raise ValueError(
            f"expected --data {spec} to return batches (got {got}); name a function that returns "
            "torch.utils.data.DataLoader(train, batch_size=64), with the data set of your training as train"
        )
    if not isinstance(batches, Iterable):
        raise ValueError(f"expected --data {spec} to return an iterable of batches (got {type(batches).__name__})")
    return batches


def _is_data_set(value: Any) -> bool:
    """Whether this is a data set of single samples, in a type that says so."""
    return isinstance(value, Dataset) and not isinstance(value, IterableDataset)


def _made_by(function: Callable[[], Any], spec: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise ValueError(f"{spec} raised {one_line_error(error)}") from error


def random_batches(model: nn.Module, shape: tuple[int, ...], batch_size: int, number: int = 2) -> list[Tensor]:
    """Batches of normal random numbers, to examine a model without its data. ``shape``: of one sample."""
    home = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(batch_size, *shape, generator=generator).to(home) for _ in range(number)]
