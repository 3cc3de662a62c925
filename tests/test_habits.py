"""Workflows, hooks, templates and the release checklist say what the Makefile and the package say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")]
HOOKS = ROOT / ".pre-commit-config.yaml"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
# What a workflow is there for.
CALLS = {"lint": {"lint"}, "tests": {"test"}, "docs": {"docs"}, "wheels": {"dist"}}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


def targets_of(commands: str) -> set[str]:
    """Targets of make in lines of a shell; ``NAME=value`` is none."""
    called: set[str] = set()
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "make":
            called |= {word for word in words[1:] if "=" not in word}
    return called


def recipe(target: str) -> list[str]:
    """The commands of a target, with the folder of the environment written out."""
    (body,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in body.splitlines()]


def test_all_workflows_are_known() -> None:
    assert {path.stem for path in WORKFLOWS} == set(CALLS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
class TestWorkflow:
    def test_calls_targets_that_exist(self, path: Path) -> None:
        called = set().union(*(targets_of(step.get("run", "")) for step in steps(path)))
        assert called == CALLS[path.stem]
        assert called <= TARGETS

    def test_may_read_and_nothing_else(self, path: Path) -> None:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}
        assert not [job for job in workflow["jobs"].values() if "permissions" in job]
        assert workflow["concurrency"]["group"]

    def test_actions_have_a_major_version(self, path: Path) -> None:
        used = [step["uses"] for step in steps(path) if "uses" in step]
        assert used
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used), used

    def test_python_is_a_text_and_packages_are_cached(self, path: Path) -> None:
        """Unquoted, 3.10 would be the number 3.1."""
        (job,) = read(path)["jobs"].values()
        (asked,) = [step["with"] for step in steps(path) if step.get("uses", "").startswith("actions/setup-python@")]
        versions = job.get("strategy", {}).get("matrix", {}).get("python", [asked["python-version"]])
        assert all(isinstance(version, str) for version in versions)
        assert asked["cache"] == "pip"
        assert all((ROOT / name).is_file() for name in asked["cache-dependency-path"].split())


def test_the_matrix_is_what_the_page_of_limits_vouches_for() -> None:
    (job,) = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"].values()
    limits = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    torch, python = re.findall(r"\*\*torch ([\d.]+), Python ([\d.]+), Linux", limits)[0]
    assert job["strategy"]["matrix"] == {"os": ["ubuntu-latest"], "python": [python]}
    assert f"torch=={torch}." in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_hooks_are_the_commands_of_lint() -> None:
    hooks = [hook for repository in read(HOOKS)["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    for hook in hooks:
        assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_of_issues(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names)
    assert {"example", "info"} <= set(names)
    assert any("geonorm info" in field["attributes"]["label"] for field in fields)


def test_a_bug_is_told_by_example_expected_and_actual() -> None:
    required = {field.get("id") for field in read(FORMS[0])["body"] if field.get("validations", {}).get("required")}
    assert required == {"example", "expected", "actual", "info"}


def test_config_of_issues_is_read() -> None:
    assert "blank_issues_enabled" in read(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")


@pytest.mark.parametrize("name", ["RELEASING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_targets_and_files_in_words_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert targets_of("\n".join([blocks, *inline])) <= TARGETS
    for word in inline:
        if re.fullmatch(r"[\w./-]+\.(py|md|txt|cff|yml)", word) and word != "own.py":
            assert (ROOT / word).exists(), f"{name} names {word}"


def test_a_release_runs_every_check() -> None:
    text = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    called = targets_of("\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)))
    assert {name for name in TARGETS if name.startswith("test")} | {"lint", "bench", "docs", "dist"} <= called


def test_the_version_is_the_same_everywhere() -> None:
    (version,) = re.findall(r'__version__ = "(.+)"', (ROOT / "src/geonorm/_version.py").read_text(encoding="utf-8"))
    assert str(read(ROOT / "CITATION.cff")["version"]) == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    line = ".".join(version.split(".")[:2])
    assert f"| {line}.x | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
