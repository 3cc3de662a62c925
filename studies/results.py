"""Results of a study as JSON lines: one line per training, small enough to be kept in the repository."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from geonorm.html.whole import write_whole
from geonorm.lab.devices import CPU
from geonorm.lab.seals import checksum
from geonorm.lab.store import Store

from .recipe import StudyRecipe

Pair = tuple[int, int | None]  # seed and fold: runs that share both are compared with each other
_DIGITS = 5  # digits of curves: more than a figure or a table shows
_SMOKE = "-smoke"
_CHECK = "crc32"


class Record(NamedTuple):
    """One training.

    Attributes:
        key: of the run in a store.
        part: its part of the study.
        choices: norm, loss, corruption, seed and fold.
        figures: by evaluation.
        curve: by figure, epoch after epoch.
        seconds: how long it took.
    """

    key: str
    part: str
    choices: dict[str, Any]
    figures: dict[str, Any]
    curve: dict[str, list[Any]]
    seconds: float

    @property
    def pair(self) -> Pair:
        """Seed and fold, which runs that are compared have in common."""
        return self.choices["seed"], self.choices["fold"]


class Results(NamedTuple):
    """All finished trainings of a study, their preset, whether they are a smoke of it, and their device."""

    preset: str
    records: tuple[Record, ...]
    smoke: bool = False
    device: str = CPU

    def of(self, part: str, **choices: Any) -> list[Record]:
        """The trainings of a part with these choices."""
        return [
            record
            for record in self.records
            if record.part == part and all(record.choices[name] == value for name, value in choices.items())
        ]

    def values(self, figure: Callable[[Record], float], part: str, **choices: Any) -> dict[Pair, float]:
        """A figure of each of these trainings, by seed and fold."""
        return {record.pair: figure(record) for record in self.of(part, **choices)}


def accuracy(evaluation: str = "clean", figure: str = "accuracy") -> Callable[[Record], float]:
    """The final accuracy under an evaluation, in per cent."""
    return lambda record: 100 * float(record.figures[evaluation][figure])


def collect(
    parts: Mapping[str, StudyRecipe], store: Store, curves: Sequence[str], before: Results, ends: Sequence[str] = ()
) -> Results:
    """The finished trainings of a plan, from a store or from earlier results.

    Earlier results with other seeds are kept.
    """
    done, known = {one.key: one for one in store.finished()}, {record.key: record for record in before.records}
    records = []
    for part, recipe in parts.items():
        others = {record.choices["seed"] for record in before.records if record.part == part} - set(recipe.seeds)
        for run in replace(recipe, seeds=(*recipe.seeds, *sorted(others))).runs():
            if run.key in known:
                records.append(known[run.key]._replace(part=part))
            elif run.key in done:
                one = done[run.key]
                choices = {name: run[name] for name in ("norm", "loss", "corruption", "seed", "fold")}
                epochs = store.curve(run.key)
                curve = {name: [_short(epoch[name]) for epoch in epochs if name in epoch] for name in curves}
                curve |= {name: [_short(epoch[name]) for epoch in epochs[-1:] if name in epoch] for name in ends}
                kept = {name: values for name, values in curve.items() if values}
                records.append(Record(run.key, part, choices, _short(one.figures), kept, round(one.seconds, 2)))
    return before._replace(records=tuple(records))


def write(results: Results, path: Path) -> None:
    """Write results as JSON lines, in the order of the plan."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [_line(record._asdict()) for record in results.records]
    write_whole(path, "".join(f"{line}\n" for line in lines))


def path_in(folder: Path, name: str, preset: str, *, smoke: bool = False, device: str = CPU) -> Path:
    """The file for the results of a study; a smoke has its own, and so has every device other than the CPU."""
    return folder / name / f"{preset}{'' if device == CPU else f'-{device}'}{_SMOKE if smoke else ''}.jsonl"


def read(path: Path) -> Results:
    """Read results, empty if there is no file; the name of the file tells preset, device and smoke."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    records: list[Record] = []
    first: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            continue  # behind the last end of a line
        try:
            record = _record(line)
            before = first.setdefault((record.part, record.key), number)
            if before != number:
                raise ValueError(f"it is about the same training as line {before}")
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"expected the results of a training in line {number} of {path} (got one that is damaged: {error}); "
                "delete this line: its training is taken from the store in the folder, or run again"
            ) from error
        records.append(record)
    preset, _, device = path.stem.removesuffix(_SMOKE).partition("-")
    return Results(preset, tuple(records), path.stem.endswith(_SMOKE), device or CPU)


def _line(record: dict[str, Any]) -> str:
    """A record as JSON, with a checksum of the rest as its last entry."""
    text = _json(record)
    return f'{text[:-1]},"{_CHECK}":"{checksum(text)}"}}'


def _record(line: bytes) -> Record:
    """The record in a line; raises for one that is not as it was written. Older lines have no checksum."""
    found = json.loads(line.decode())
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    check = found.pop(_CHECK, None)
    if check is not None and check != checksum(_json(found)):
        raise ValueError("its checksum does not fit")
    return Record(**found)


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _short(value: Any) -> Any:
    """Numbers rounded to a readable number of digits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value
