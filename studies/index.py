"""The index page of all studies: which claims hold, from the stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from geonorm.html.whole import write_whole

from . import PRESETS, Study, results, studies, write_page
from .page import markdown
from .results import Results
from .verdicts import EXPLORATORY, FAILS, HOLDS, OWN, PENDING, UNDECIDED, UNTESTED, Verdict

_WORDS = (HOLDS, FAILS, UNDECIDED, UNTESTED, PENDING)

_INTRO = """\
# Do the papers hold?

Every table and figure of the papers that has results is a study that `geonorm reproduce NAME` runs: with
`--preset laptop` in minutes on two cores, with `--preset paper` at the published scale, where there is one. These pages
show our results, whether they agree or not, and are generated from the files in `results/`, one line per run.

A claim *holds* if a paired test over seeds or splits says so, and *does not hold* if another test shows that its effect
is smaller than the least one of interest, which each study states with its reason; for a claim that two norms are
equal, that is the margin. The chance that any claim of a page is judged wrongly is at most 5 %. A claim is
*undecided* if the effect is too small to be seen in these runs, and *cannot be tested here* if its protocol is out of
reach. Where trainings are missing, there are *not enough runs yet*.

At the scale of two cores networks are small and runs short: a claim that fails there may hold at the paper's scale, and
vice versa. What no paper claims is *our question*; the studies of the guard have no others.
"""


class Counts(NamedTuple):
    """How many of the papers' claims hold. Each is counted once, at the paper's scale if it was run there."""

    holds: int
    fails: int
    undecided: int
    untested: int
    pending: int


def count(stored: str | Path, preset: str | None = None) -> Counts:
    """The counts over all studies; with a preset, of the claims that are counted at its scale."""
    claims: dict[tuple[str, str], tuple[str, str]] = {}
    for study, found in all_stored(stored):  # the paper's preset comes last
        for one in study.page(found).verdicts:
            if not one.is_own and one.verdict != EXPLORATORY:
                claims[study.name, one.claim] = found.preset, one.verdict
    counted = Counter(verdict for scale, verdict in claims.values() if preset in (None, scale))
    return Counts(*[counted[word] for word in _WORDS])


def write_all(stored: str | Path, folder: str | Path) -> Path:
    """Write the pages of all results under ``stored`` and an index into ``folder``; returns the path of the index."""
    folder = Path(folder)
    rows: dict[bool, list[list[str]]] = {False: [], True: []}
    claims = []
    for study, found in all_stored(stored):
        name = write_page(study.name, found, folder).name
        verdicts = [one for one in study.page(found).verdicts if one.verdict != EXPLORATORY]
        link = f"[{study.name}{'' if found.preset == PRESETS[0] else f', {found.preset} scale'}]({name})"
        for is_own, table in rows.items():
            counts = Counter(one.verdict for one in verdicts if one.is_own == is_own)
            if counts:
                table.append([link, *[str(counts[word] or "") for word in _WORDS], study.line])
        claims += [f"### {link}\n", f"{_counted(study, found)}\n", *_claims(verdicts)]
    parts = [
        _INTRO,
        "## Claims of the papers\n",
        f"{_counts(stored)}\n",
        markdown(("study", *_WORDS, "what it shows"), rows[False]),
    ]
    parts += ["## Our questions\n", markdown(("study", *_WORDS, "what it shows"), rows[True])]
    path = folder / "index.md"
    write_whole(path, "\n".join([*parts, "## Claim by claim\n", *claims]))
    return path


def _counts(stored: str | Path) -> str:
    """The counts in a sentence for each scale."""
    scales = {"At the scale of two cores": PRESETS[0], "At the paper's scale": PRESETS[1]}
    said = [f"{scale} {sentence(count(stored, preset))}." for scale, preset in scales.items()]
    return "Each claim is counted once, at the paper's scale if it was run there. " + " ".join(said)


def sentence(counts: Counts) -> str:
    """Counts in words.

    Examples:
        >>> from studies.index import Counts, sentence
        >>> sentence(Counts(3, 2, 1, 0, 0))
        '3 hold, 2 do not hold and 1 is undecided because the effect is too small to be seen'
    """
    said = [f"{counts.holds} hold" if counts.holds != 1 else "1 holds"]
    said.append(f"{counts.fails} do not hold" if counts.fails != 1 else "1 does not hold")
    if counts.undecided:
        because = "is undecided because the effect is" if counts.undecided == 1 else "are undecided because effects are"
        said.append(f"{counts.undecided} {because} too small to be seen")
    more = f"; {counts.untested} cannot be tested here" if counts.untested else ""
    more += f"; {counts.pending} wait{'s' * (counts.pending == 1)} for more runs" if counts.pending else ""
    return f"{', '.join(said[:-1])} and {said[-1]}{more}"


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
    decided = [one for one in verdicts if one.verdict in (HOLDS, FAILS)]
    if decided:
        yield "".join(f"- {_claim(one)}: **{one.verdict}** ({one.ours})\n" for one in decided)
    for word in (UNDECIDED, UNTESTED, PENDING):
        others = [one for one in verdicts if one.verdict == word]
        if others:
            listed = "".join(f"- {_claim(one)}\n" for one in others)
            yield f"<details markdown><summary>{len(others)} {word}</summary>\n\n{listed}\n</details>\n"


def _claim(verdict: Verdict) -> str:
    return f"{verdict.claim} *({OWN})*" if verdict.is_own else verdict.claim
