"""The first page of all studies: which claims hold, from the results that are stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from . import PRESETS, Study, results, studies, write_page
from .page import markdown
from .results import Results
from .verdicts import FAILS, HOLDS, UNDECIDED, Verdict

_INTRO = """\
# Do the papers hold?

Every table and figure of the papers is a study that `geonorm reproduce NAME` runs: with `--preset laptop` in minutes on
two cores, with `--preset paper` at the published scale. These pages are what came out here, agreeing or not, and are
made from the files in `results/`, one line per training.

A claim *holds* or *does not hold* where a paired test over seeds or folds says so (p < 0.05, each claim by itself: of
twenty without substance one may come out by chance); otherwise it is *undecided at this scale*. At a laptop's scale,
networks are small and trainings short: a claim that fails here may hold at the paper's scale, and the other way round.
"""


def write_all(stored: str | Path, folder: str | Path) -> Path:
    """The pages of all results under ``stored`` and an index of them, into ``folder``; the path of the index."""
    folder = Path(folder)
    rows, claims = [], []
    for study in studies():
        for preset in PRESETS:
            found = results.read(Path(stored) / study.name / f"{preset}.jsonl")
            if not found.records:
                continue
            name = write_page(study.name, found, folder).name
            verdicts = study.page(found).verdicts
            counts = Counter(verdict.verdict for verdict in verdicts)
            link = f"[{study.name}{'' if preset == PRESETS[0] else f', {preset} scale'}]({name})"
            rows.append([link, study.line, *[str(counts[word] or "") for word in (HOLDS, FAILS, UNDECIDED)]])
            claims += [f"\n### {link}\n", f"{_counted(study, found)}\n", *[_line(verdict) for verdict in verdicts]]
    table = markdown(("study", "what it shows", HOLDS, FAILS, "undecided"), rows)
    path = folder / "index.md"
    path.write_text("\n".join([_INTRO, table, "## Claim by claim", *claims, ""]), encoding="utf-8")
    return path


def _counted(study: Study, found: Results) -> str:
    seeds = len({record.choices["seed"] for record in found.records})
    return f"{study.source}. {len(found.records)} trainings, {seeds} seeds."


def _line(verdict: Verdict) -> str:
    return f"- {verdict.claim}: **{verdict.verdict}**"
