"""The index page of all studies: which claims hold, from the stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import PRESETS, Study, results, studies, write_page
from .page import markdown
from .results import Results
from .verdicts import FAILS, HOLDS, OWN, UNDECIDED, Verdict

_INTRO = """\
# Do the papers hold?

Every table and figure of the papers that has results is a study that `geonorm reproduce NAME` runs: with
`--preset laptop` in minutes on two cores, with `--preset paper` at the published scale, where there is one. These pages
show our results, whether they agree or not, and are generated from the files in `results/`, one line per run.

A claim *holds* or *does not hold* if a paired test over seeds or folds says so, at 5 % for all claims of a page
together; for a claim that two norms are equal, if the interval of their difference lies within a margin or outside it;
and where there is nothing to test, as the page says. Otherwise it is *undecided at this scale*. At a laptop's scale,
networks are small and runs short: a claim that fails here may hold at the paper's scale, and vice versa.
Most presets have three or five seeds, which left most claims undecided; the pages here have eight or ten, and all
claims of a page are judged by all of its seeds. Claims marked *(our question)* are in no paper; the studies whose names
begin with `guard` have no others.
"""


def write_all(stored: str | Path, folder: str | Path) -> Path:
    """Write the pages of all results under ``stored`` and an index into ``folder``; returns the path of the index."""
    folder = Path(folder)
    rows, claims = [], []
    for study, found in all_stored(stored):
        name = write_page(study.name, found, folder).name
        verdicts = study.page(found).verdicts
        counts = Counter(verdict.verdict for verdict in verdicts)
        link = f"[{study.name}{'' if found.preset == PRESETS[0] else f', {found.preset} scale'}]({name})"
        rows.append([link, study.line, *[str(counts[word] or "") for word in (HOLDS, FAILS, UNDECIDED)]])
        claims += [f"### {link}\n", f"{_counted(study, found)}\n", *_claims(verdicts)]
    table = markdown(("study", "what it shows", HOLDS, FAILS, "undecided"), rows)
    path = folder / "index.md"
    path.write_text("\n".join([_INTRO, table, "## Claim by claim\n", *claims]), encoding="utf-8")
    return path


def all_stored(stored: str | Path) -> Iterator[tuple[Study, Results]]:
    """Every study with its stored results, preset by preset."""
    for study in studies():
        for preset in PRESETS:
            found = results.read(results.path_in(Path(stored), study.name, preset))
            if found.records:
                yield study, found


def _counted(study: Study, found: Results) -> str:
    """The number of trainings and seeds; parts may have different numbers of seeds."""
    seeds: dict[str, set[int]] = {}
    for record in found.records:
        seeds.setdefault(record.part, set()).add(record.choices["seed"])
    numbers = sorted({len(of) for of in seeds.values()})
    number = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"{study.source}. {len(found.records)} runs, {number} {'seed' if numbers == [1] else 'seeds'}."


def _claims(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The decided claims with their figures, and the undecided ones folded away."""
    decided = [one for one in verdicts if one.verdict != UNDECIDED]
    if decided:
        yield "".join(f"- {_claim(one)}: **{one.verdict}** ({one.ours})\n" for one in decided)
    undecided = [one for one in verdicts if one.verdict == UNDECIDED]
    if undecided:
        listed = "".join(f"- {_claim(one)}\n" for one in undecided)
        yield f"<details markdown><summary>{len(undecided)} undecided</summary>\n\n{listed}\n</details>\n"


def _claim(verdict: Verdict) -> str:
    return f"{verdict.claim} *({OWN})*" if verdict.published == OWN else verdict.claim
