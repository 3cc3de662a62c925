"""Records of a monitor: kept, appended to a file line by line, shown; their curves sent to a logger."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from ...html.result import Result, figure, plain
from .curves import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Send: TypeAlias = Callable[[dict[str, float], int], object]  # of (values, step)

_KEYS = {"step", "loss", "weights", "norms"}
_BEGINNING = '{"step":'
_WEIGHT = ("unit", "norm", "effective_rate", "growth", "predicted", "equilibrium")
_NORM = (
    *("gamma_gap", "gamma_gap_unit", "beta_gap", "beta_gap_unit", "lag_mean", "lag_var", "phi", "alpha"),
    *("pulled", "not_finite", "pull_rate"),
)


@dataclass(repr=False)
class Growth(Result):
    """What a ``Monitor`` recorded.

    Attributes:
        records: one per recorded step, oldest first: ``step``, ``loss``, and numbers by name under ``weights`` and
            ``norms``.
    """

    records: list[dict[str, Any]]

    @classmethod
    def read(cls, file: str | Path) -> Growth:
        """The records of a file; lines cut off when a process was killed are skipped."""
        records = []
        for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                if _BEGINNING.startswith(line[: len(_BEGINNING)]):
                    continue
                record = None
            if not isinstance(record, dict) or not record.keys() >= _KEYS:
                raise ValueError(f"expected records of a Monitor in {file} (got something else in line {number})")
            records.append(record)
        return cls(records)

    def series(self, kind: str, name: str, what: str) -> tuple[list[int], list[float | None]]:
        """Steps and values of one number, such as ``series("weights", "0.weight", "norm")``."""
        found = [(record["step"], record[kind][name].get(what)) for record in self.records if name in record[kind]]
        return [step for step, _ in found], [value for _, value in found]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        weight = ("invariant per", "‖W‖", "η/‖w‖²", "growth", "predicted", "‖W‖ at equilibrium")
        gaps = ("|γ²−σ²|", "|γ²−σ²| at ‖W‖=1", "|β−μ|", "|β−μ| at ‖W‖=1")
        pulls = ("pulled", "not finite", "batches with a pull")
        return ("where", *weight, *gaps, "lag of mean", "lag of variance", "φ", "α", *pulls)

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each weight and each norm, from the last record."""
        if not self.records:
            return []
        last = self.records[-1]
        weights = [
            (name, *[entry.get(key) for key in _WEIGHT], *[None] * len(_NORM))
            for name, entry in last["weights"].items()
        ]
        norms = [
            (name, *[None] * len(_WEIGHT), *[entry.get(key) for key in _NORM]) for name, entry in last["norms"].items()
        ]
        return [*weights, *norms]

    def plot(self) -> Figure:
        """Sizes and their equilibrium, effective rates, gaps, and samples pulled by guards, over the steps."""
        weights, norms = (self.records[-1][kind] if self.records else {} for kind in ("weights", "norms"))
        guarded = [name for name, entry in norms.items() if "pulled" in entry]
        labels = ["‖W‖ (dashed: at equilibrium)", "effective learning rate η/‖w‖²", "|γ²−σ²|/(γ²+σ²) at ‖W‖=1"]
        labels += ["samples pulled in a step"] * bool(guarded)
        drawn = figure(4.0 * len(labels), 4.0)
        panels: Any = drawn.subplots(1, len(labels))
        for name in weights:
            (line,) = panels[0].plot(*self._plotted("weights", name, "norm"), label=name)
            panels[0].plot(*self._plotted("weights", name, "equilibrium"), "--", color=line.get_color())
            panels[1].semilogy(*self._plotted("weights", name, "effective_rate"))
        for name in norms:
            panels[2].plot(*self._plotted("norms", name, "gamma_share_unit"), label=name)
        for name in guarded:
            panels[3].plot(*self._plotted("norms", name, "pulled"), label=name)
        for axes, label in zip(panels, labels, strict=True):
            axes.set_xlabel("step")
            axes.set_ylabel(label)
        for axes, shown in ((panels[0], weights), (panels[-1], guarded)):
            if shown and len(shown) <= 10:
                axes.legend(fontsize="x-small")
        return drawn

    def _plotted(self, kind: str, name: str, what: str) -> tuple[list[int], list[float]]:
        steps, values = self.series(kind, name, what)
        return steps, [float("nan") if value is None else value for value in values]


class Log:
    """Keeps records, writes them to a file, and passes their curves to a function and to TensorBoard."""

    def __init__(self, file: str | Path | None, tensorboard: Any, log: Send | None) -> None:
        if log is not None and not callable(log):
            raise TypeError(f"expected log to be a function of (values, step), such as wandb.log (got {log!r})")
        self.records: list[dict[str, Any]] = []
        self.closed = False
        self._send = log
        self._writer, self._owns_writer = _writer(tensorboard)
        self._file: IO[str] | None = None
        self.next_step = 0
        if file is not None:
            before = Growth.read(file).records if Path(file).exists() else []
            self.next_step = before[-1]["step"] + 1 if before else 0
            is_cut_off = _is_cut_off(Path(file))
            self._file = open(file, "a", encoding="utf-8")  # noqa: SIM115 it stays open until close()
            if is_cut_off:  # the next record must start on its own line
                self._file.write("\n")

    def write(self, record: dict[str, Any]) -> None:
        """Keep a record; the file is flushed, so that the record survives if the process is killed."""
        record = plain(record)
        self.records.append(record)
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        if self._send is None and self._writer is None:
            return
        values = curves(record)
        if self._send is not None:
            self._send(values, record["step"])
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Close the file and the writer."""
        self.closed = True
        if self._file is not None:
            self._file.close()
        if self._writer is not None and self._owns_writer:
            self._writer.close()


def _is_cut_off(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0 and not file.read_bytes().endswith(b"\n")


def _writer(tensorboard: Any) -> tuple[Any, bool]:
    if tensorboard is None or hasattr(tensorboard, "add_scalar"):
        return tensorboard, False
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("expected the tensorboard package for tensorboard=; pip install tensorboard") from error
    return SummaryWriter(str(tensorboard)), True
