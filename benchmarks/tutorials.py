"""The notebooks of the docs: executed with their outputs stored, and shown as pages of the site.

``python -m benchmarks.tutorials`` executes them and writes their outputs. As a hook of mkdocs this makes a page of each
when the site is built.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of a fresh kernel; raises if a cell does."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    # Sums in one order, and no progress bars, which a slow machine would show.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, coalesce_streams=True, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    nbformat.validate(notebook)
    found: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return found


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def text_of(lines: str | list[str]) -> str:
    """Text of a notebook, which may be stored as a list of lines."""
    return lines if isinstance(lines, str) else "".join(lines)


def markdown(notebook: dict[str, Any], name: str) -> str:
    """The notebook as a page, with a link to the file below its title."""
    parts = []
    for cell in notebook["cells"]:
        source = text_of(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```py\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\nThis page is a [notebook]({name}).\n{rest}\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{text_of(output['text']).rstrip()}\n```"
    data = output["data"]
    if "text/html" in data:
        return re.sub(r"\n\s*", " ", text_of(data["text/html"]))  # an empty line would end the block of HTML
    return f"```text\n{text_of(data['text/plain'])}\n```"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by mkdocs with the files of the site: adds a page for each notebook."""
    from mkdocs.structure.files import File

    for path in TUTORIALS:
        page = markdown(read(path), path.name)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=page))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of every page: a link to a notebook leads to its page, but not the page's own."""
    own = f"({Path(page.file.src_uri).stem}.ipynb)"
    kept = text.replace(own, "\0") if page.file.src_uri.startswith("tutorials/") else text
    return re.sub(r"(\((?:[\w./]*/)?\w+)\.ipynb\)", r"\1.md)", kept).replace("\0", own)


def main() -> None:
    for path in TUTORIALS:
        path.write_text(json.dumps(executed(path), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
