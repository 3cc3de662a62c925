"""The pages on speed, written from a made-up store in which geonorm takes half the time of torch's layers."""

from pathlib import Path

import pytest

from benchmarks import performance, speed
from benchmarks.speed.cases import CALL, NATIVE, TORCH
from benchmarks.speed.results import Result
from benchmarks.speed.roofline import ARITHMETIC, COPY

MACHINES = ("a processor, 2 threads, avx512", "a processor, 2 threads, avx2")


def made_up() -> tuple[Result, ...]:
    found = []
    for machine in MACHINES:
        about = (machine, "geonorm 1, torch 2", "2026-01-02")
        for threads in (2, 1):
            found.append(Result(*about, threads, "full", "machine", COPY, "", 1.0, 1, 1, 1, moved=1000))
            for case in speed.cases(full=True):
                times = dict.fromkeys(case.providers, 5.0) | {NATIVE: 2.0, CALL: 0.5}
                times = {name: time for name, time in times.items() if name in case.providers}
                if machine == MACHINES[1]:
                    times.pop(TORCH, None)
                for name, time in times.items():
                    timing = (time, time / 4, time / 4 - 0.1, time / 4 + 0.1)
                    found.append(Result(*about, threads, "full", case.row, case.name, name, *timing, moved=case.moved))
        found.append(Result(*about, 2, "full", "machine", ARITHMETIC, "", 0, 1.5, 1.4, 1.6))
        found.append(Result(*about, 2, "full", "center", "(4096, 64)", "mean", 1.0, 1, 1, 1))
    return tuple(found)


def test_every_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "stored", made_up)
    tables = performance.tables()
    assert all((performance.DOCS / page).is_file() for page, _ in tables)
    assert performance.newest()[0].machine == MACHINES[0]  # the other has no figures without the kernels
    main = tables["speed.md", "benchmark: speed"]
    assert main.startswith("Code of 2026-01-02, torch 2, on a processor, 2 threads, avx512. A large copy")
    assert "| BatchNorm2d, φ=1.5 | 0.50 (0.40–0.60) | 0.50 (0.40–0.60) | 1.25 (1.15–1.35) |" in main
    assert "| BatchNorm2d, φ=1.5, small maps | 0.50" in main
    expected = tables["speed.md", "benchmark: expected"]
    assert expected.startswith("| over torch's | φ=1.5 | φ learned |")
    assert "\n| BatchNorm2d | 0.50 | 0.50 |" in expected
    assert "| LayerNorm, φ=1.5 | 0.50 | 0.50 |" in tables["speed.md", "benchmark: machines"]
    assert (
        "| BatchNorm1d, φ=1.5, (128, 64) | 0.16 | 164 µs | 2 µs | 25 % | 75 % | 0 % | memory |"
        in (tables["speed.md", "benchmark: bounds"])
    )
    assert "**0 of " in tables["limits.md", "benchmark: limits"]
    assert "0.50 (φ=1.5), 0.50 (φ learned)" in tables["limits.md", "benchmark: limits"]


def test_gpus_are_shown_beside_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The newest run of each, short or full; without any, the page says so."""
    monkeypatch.setattr(performance, "GPUS", tmp_path / "results_gpu.csv")
    assert performance.by_gpu() == "No measurement has been sent yet.\n"
    for machine, code, took in (
        ("one GPU", "2026-01-01", 9.0),
        ("one GPU", "2026-01-02", 2.0),
        ("two", "2026-01-02", 3.0),
    ):
        about = (machine, "geonorm 1, torch 2", code, 8, "short", "BatchNorm2d, guard", "(1, 2)")
        speed.append(
            [Result(*about, "torch", 1.0, 1.0, 1.0, 1.0), Result(*about, NATIVE, took, took, took, took)],
            performance.GPUS,
        )
    assert (
        performance.by_gpu()
        .splitlines()[0]
        .endswith("| one GPU, torch 2, code of 2026-01-02 | two, torch 2, code of 2026-01-02 |")
    )
    assert performance.by_gpu().splitlines()[2] == "| BatchNorm2d, guard | 2.00 | 3.00 |"
