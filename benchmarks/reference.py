"""The names that each page of the reference documents: a hook of mkdocs, which fills them in when the site is built."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import types
from pathlib import PurePosixPath
from typing import Any

# Page of docs/reference, and the modules whose names it has.
REFERENCE_PAGES = {
    "nn": ["geonorm.nn"],
    "functional": ["geonorm.functional"],
    "verbs": ["geonorm.surgery"],
    "analysis": ["geonorm.analysis"],
    "robust": ["geonorm.robust"],
    "optim": ["geonorm.optim"],
    "integrations": ["geonorm.integrations"],
    "lab": ["geonorm.lab", "geonorm.lab.report"],
    "data": ["geonorm.lab.data"],
    "models": ["geonorm.lab.models"],
}


def public_names(module: str) -> dict[str, str]:
    """The public names of a module, each with the path that its documentation is found by; torch's own left out."""
    found = {}
    public = importlib.import_module(module)
    for name in public.__all__:
        thing = getattr(public, name)
        home = getattr(thing, "__module__", None) or module
        if isinstance(thing, types.ModuleType) or not home.startswith("geonorm"):
            continue
        # A function named like its file, or imported when it is first asked for, is found at home alone.
        hidden = module == "geonorm.lab" or importlib.util.find_spec(f"{module}.{name}")
        found[name] = f"{home}.{name}" if hidden and hasattr(thing, "__module__") else f"{module}.{name}"
    return found


def reference_directives(page: str) -> str:
    """What stands in the page: a directive for each name by the alphabet, functions first; of the layers, classes."""
    lines = []
    for module in REFERENCE_PAGES[page]:
        if len(REFERENCE_PAGES[page]) > 1:
            lines.append(f"## {module}\n")
        public = importlib.import_module(module)
        found = public_names(module)
        order = sorted(found, key=lambda name: (inspect.isclass(getattr(public, name)) != (page == "nn"), name.lower()))
        lines += [f"::: {found[name]}\n" for name in order]
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    path = PurePosixPath(page.file.src_uri)
    if path.parent.name != "reference" or path.stem not in REFERENCE_PAGES:
        return markdown
    return markdown.replace("<!-- names -->", reference_directives(path.stem))
