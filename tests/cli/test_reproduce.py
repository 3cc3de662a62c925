"""``geonorm reproduce``: the list, mistakes, data that are not there, a smoke."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geonorm.cli import main
from studies import estimated_hours, studies
from studies.hours import PATIENCE


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    text = capsys.readouterr().out
    for study in studies():
        assert study.name in text
        assert study.line in text
    assert "needs GPUs" not in text
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == [study.name for study in studies()]
    for one in listed:
        assert ("paper" in one["minutes"]) != ("gpu" in one["estimated_hours"]), "measured, or estimated"


def test_a_gpu_is_named_only_where_it_is_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    """Small networks on digits take longer there: a step is shorter than the start of its kernels."""
    main(["reproduce", "--list"])
    times = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "on a GPU" not in times["guard-digits"]
    assert "h on a GPU" in times["augnorm-cifar"]
    for name, hours in estimated_hours().items():
        assert ("on a GPU" in times[name]) == (hours["cores"] > PATIENCE)
        assert hours["gpu"] < hours["cores"] or hours["cores"] <= PATIENCE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "expected the NAME of a study"),
        (["augnorm-graph"], "did you mean 'augnorm-graphs'"),
        (["augnorm-graphs", "--preset", "labtop"], "did you mean laptop"),
        (["augnorm-graphs", "--sed", "3"], "did you mean --seeds"),
        (["augnorm-graphs", "--seeds", "0"], "expected --seeds to be a number from 1"),
        (["augnorm-graphs", "--workers", "0"], "expected a number from 1"),
    ],
)
def test_mistakes(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *given])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_data_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What to get and where to put it, before anything runs."""
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    assert main(["reproduce", "augnorm-graphs", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "mutag is not at hand" in error
    assert "Fetch MUTAG of the TU graph collection" in error


def test_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Needs no data, and leaves results and page apart from real ones."""
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path))
    out = tmp_path / "out"
    given = ["reproduce", "popnorm-imagenet", "--preset", "paper", "--smoke", "--workers", "1", "--out", str(out)]
    assert main([*given, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(out / "popnorm-imagenet-paper-smoke.md")
    assert told["runs"] == 2
    assert (out / "popnorm-imagenet" / "paper-smoke.jsonl").exists()
