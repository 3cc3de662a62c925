"""Measured ratios: how they are taken, stored, and shown."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import speed
from benchmarks.speed import machine as machine_name
from benchmarks.speed.cases import CALL, NATIVE, SMALL_MAPS, few
from benchmarks.speed.clocks import CLOCKS
from benchmarks.speed.results import Result, code_date, slope
from benchmarks.speed.roofline import Machine, bandwidth, shares
from benchmarks.speed.timing import compare, saved_bytes
from helpers.pretend_cuda import pretend_cuda
from helpers.slow_cases import slow_except

ABOUT = ("a machine, 2 threads, avx512", "versions", "2026-01-02")


def results() -> list[Result]:
    about = (*ABOUT, 2, "short")
    small = str(SMALL_MAPS)
    return [
        Result(*about, "row", "(1, 2)", "torch", 10.0, 1.0, 1.0, 1.0, moved=4000),
        Result(*about, "row", "(1, 2)", "geonorm", 20.0, 2.0, 1.9, 2.1, 8, 4000),
        Result(*about, "row", "(1, 2)", CALL, 5.0, 0.5, 0.5, 0.5, moved=4000),
        Result(*about, "row", small, "torch", 10.0, 1.0, 1.0, 1.0, moved=2000),
        Result(*about, "row", small, "geonorm", 5.0, 0.5, 0.4, 0.6, 8, 2000),
        Result(*about, "row", small, CALL, 3.0, 0.3, 0.3, 0.3, moved=2000),
    ]


def machine() -> list[Result]:
    """A copy of 1000 bytes per microsecond, 500 with one thread; arithmetic gains half from the second thread."""
    return [
        Result(*ABOUT, 2, "short", "machine", "copy", "1 MB", 1000.0, 1, 1, 1, moved=1_000_000),
        Result(*ABOUT, 1, "short", "machine", "copy", "1 MB", 2000.0, 1, 1, 1, moved=1_000_000),
        Result(*ABOUT, 2, "short", "machine", "arithmetic, threads over one", "speed-up", 0, 1.5, 1.4, 1.6),
    ]


def test_table_csv_and_picture(tmp_path: Path) -> None:
    alone = [Result(*ABOUT, 1, "short", "row", "(1, 2)", "geonorm", 20.0, 1.7, 1.6, 1.8)]
    assert speed.table(results()).splitlines()[2:] == [
        "| row | 1.00 (0.87–1.12) |",
        "| row, small maps | 0.50 (0.40–0.60) |",  # a view of the same measurement
    ]
    assert "| row | 1.00 (0.87–1.12) | 1.70 (1.60–1.80) |" in speed.table(results() + alone)
    assert "machine" not in speed.table(results() + machine()).splitlines()[2]
    file = tmp_path / "new" / "results.csv"
    for _ in range(2):
        speed.append(results(), file)
    assert speed.read(file) == results() * 2  # earlier results stay
    speed.picture(results(), tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes()[:4] == b"\x89PNG"


def test_peers_are_compared_where_they_were_measured() -> None:
    peers = [replace(results()[1], provider="clone", ratio=0.2, low=0.1, high=0.3)]
    assert speed.table_of_peers(results() + peers).splitlines() == [
        "| images (1, 2) | over BatchNorm2d |",
        "| --- | --- |",
        "| geonorm | 2.00 (1.90–2.10) |",
        "| clone | 0.20 (0.10–0.30) |",
    ]


def test_what_bounds_a_row() -> None:
    """4000 of 20 µs are 4 µs at 1000 bytes per µs, and a call takes 5; the small maps: 2 and 3 of 5."""
    assert bandwidth(machine(), 2) == 1000
    found = shares(results(), bandwidth(machine(), 2))
    assert found == pytest.approx({"call": (0.25 + 0.6) / 2, "memory": (0.2 + 0.4) / 2, "arithmetic": 0.55 / 2})
    assert shares([result for result in results() if result.provider != CALL], 1000) is None  # a network
    written = speed.table_of_limits(results() + machine())
    assert "| row | 0.0028 | 3 µs | 10 µs | 42 % | 30 % | 28 % | call |" in written
    said = speed.about_machine(results() + machine())
    assert "1.0 GB/s" in said
    assert "1.50 times as fast with 2 threads as with one (quartiles over the run 1.40–1.60)" in said


def test_the_machine_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.speed.roofline.COPIED", 1 << 20)
    threads = torch.get_num_threads()
    here = Machine()
    here.sample()
    here.sample()
    assert torch.get_num_threads() == threads
    found = here.results(*ABOUT, "short")
    assert {result.threads for result in found} == {1, threads}
    assert all(result.low <= result.ratio <= result.high for result in found)
    assert bandwidth(found, 1) > 0


@pytest.mark.parametrize("case", list(speed.cases(full=False)), ids=lambda case: f"{case.row} {case.name}")
def test_every_case_starts_on_a_few_values(case: speed.Case) -> None:
    """Its own layers run; only the values are fewer than when it is timed."""
    inputs = case.inputs()
    small = inputs if case.row.startswith("ResNet") else few(inputs)
    calls, kept = case._replace(inputs=lambda: small).only([NATIVE, CALL]).work()
    for call in calls.values():
        call()
    assert set(calls) - {CALL} == {NATIVE}
    assert set(kept) <= {NATIVE}


ON_GPU = [case for case in speed.cases(full=False) if not case.row.startswith("ResNet")]


QUICK = [case for case in ON_GPU if case.row in ("BatchNorm2d, guard", "PopNorm2d", "evaluation, φ=1.5")]


@pytest.mark.parametrize("case", slow_except(QUICK, ON_GPU), ids=lambda case: f"{case.row} {case.name}")
def test_every_case_starts_on_a_gpu(case: speed.Case) -> None:
    """All of its providers but compiled ones; operations on two devices would raise."""
    small = few(case.inputs())
    plain = [name for name, provider in case.providers.items() if not provider.compiled]
    with pretend_cuda() as log:
        calls, kept = case._replace(inputs=lambda: small).only(plain).work("cuda")
        sent = len(log.sent)
        for call in calls.values():
            call()
    assert sent
    assert len(log.sent) == sent, "nothing is sent while it is timed"
    assert list(calls) == plain
    assert all(kept.values())  # empty in evaluation


def test_a_run_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed by events, after the device has warmed up; stored and shown like a run on the CPU."""
    case = next(case for case in speed.cases(full=False) if case.row == "BatchNorm2d, guard")
    small = few(case.inputs())
    monkeypatch.setattr(speed, "cases", lambda full: [case._replace(inputs=lambda: small)])
    monkeypatch.setattr(speed, "growth", lambda full, device: [])
    monkeypatch.setattr("benchmarks.speed.roofline.COPIED", 1 << 20)
    said: list[str] = []
    with pretend_cuda() as log:
        found = speed.run(say=said.append, seconds=0.01, device="cuda")
        assert {result.machine for result in found} == {machine_name("cuda")}
    assert log.calls.count(("event",)) == log.calls.count(("synchronize",))  # two of each at a time
    assert log.calls.count(("synchronize",)) > 20
    assert {result.threads for result in found} == {torch.get_num_threads()}
    assert all(result.microseconds <= 1000 for result in found)  # an event of the pretended GPU takes a millisecond
    copy = next(result for result in found if result.row == "machine")
    assert copy.microseconds == pytest.approx(100)
    speed.append(found, tmp_path / "results-cuda.csv")
    again = speed.read(tmp_path / "results-cuda.csv")
    assert again[0].machine == "a pretended GPU, geonorm's layers on torch"
    assert "| BatchNorm2d, guard | 1.00" in speed.table(again)
    assert "GB/s" in speed.about_machine(again)
    assert len(said) == 1


def test_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each divides by the number of calls; that of an Apple GPU waits for its queue before and after."""
    called: list[str] = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: called.append("wait"))
    assert CLOCKS["mps"](lambda: called.append("call"), 3) > 0
    assert called == ["wait", "call", "call", "call", "wait"]
    with pretend_cuda() as log:
        assert CLOCKS["cuda"](lambda: called.append("call"), 4) == pytest.approx(0.00025)
    assert log.calls == [("synchronize",), ("event",), ("event",), ("synchronize",)]
    assert set(CLOCKS) == {"cpu", "cuda", "mps"}


def test_bytes_that_move() -> None:
    """Five passes over the tensor for forward and backward, six with a guard, two in evaluation, half for bfloat16."""
    found = {case.row: case.moved for case in speed.cases(full=True) if case.name == str(SMALL_MAPS)}
    size = 4 * 128 * 512 * 4 * 4
    assert found["BatchNorm2d, φ=1.5"] == found["GroupNorm, φ=1.5"] == 5 * size
    assert found["BatchNorm2d, guard"] == 6 * size
    assert found["evaluation, φ=1.5"] == 2 * size
    assert found["bfloat16, φ=1.5"] == 5 * size / 2


def test_the_date_of_the_code() -> None:
    assert code_date() == "" or len(code_date().split("-")) == 3


def test_ratios_and_memory() -> None:
    x = torch.randn(1000, requires_grad=True)
    found = compare({"once": lambda: x.exp(), "many": lambda: [x.exp() for _ in range(200)]}, 0.1)
    assert found["once"].ratio == 1
    assert found["many"].ratio > 4
    assert saved_bytes(lambda x: x * x.exp(), x) == 2 * 4000
    assert slope([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1)
