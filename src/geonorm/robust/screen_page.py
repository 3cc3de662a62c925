"""The result of ``screen`` as one self-contained page: no network, no other file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..html.document import Cell, document, read, sortable
from ..html.result import shown
from .score_counts import Bin, score_counts
from .screening import Broken, Screening
from .thumbnails import Thumbnail, thumbnails

_MOST_ROWS = 1000
_MOST_PICTURES = 24  # for each reason
_USUAL = 12
_MEANING = {
    "not finite": "NaN or Inf among the values, in magenta: a division by 0, a missing value, an overflow.",
    "too large": "Values vary far more than usual: never scaled, or in another unit.",
    "offset": "Values vary as usual around a mean that is far off: a saturated sensor, a missing subtraction.",
    "constant": "Values do not vary, or hardly, in all channels or in one: an empty frame, a dead channel.",
    "noise": "Neighbouring values have little in common: noise, or a file that was decoded wrongly.",
    "unusual": "The values are ordinary, but a layer's response to them is not: look at these yourself.",
}
_WIDTH, _HEIGHT, _LEFT, _FOOT = 720, 200, 54, 34


def page(found: Screening, batches: Any = None) -> str:
    """The page as HTML; with the batches, and if they are images, with pictures of the samples."""
    title = f"{found.model}: broken samples"
    return document(title, _parts(found, batches, title), style=read("geonorm.robust", "screen_page.css"))


def _parts(found: Screening, batches: Any, title: str) -> list[str]:
    by_reason = {why: [one for one in found.broken if one.why == why] for why in found.reasons()}
    usual, highest = _usual(found), _highest(found)
    wanted = [one.index for some in by_reason.values() for one in some[:_MOST_PICTURES]] + usual + highest
    pictures = {} if batches is None else thumbnails(batches, wanted, found.kept)
    return [
        f"<h1>{escape(title)}</h1>",
        _summary(found),
        "<h2>Scores</h2>" + _histogram(found),
        *[_gallery(why, some, pictures) for why, some in by_reason.items() if pictures],
        _others(
            found, highest, pictures, "Not broken, with the highest scores", "The next ones if the cut were lower."
        ),
        _others(found, usual, pictures, "Usual, for comparison", "In the middle of the data, on the same scale."),
        _table(found),
        _remarks(found),
    ]


def _summary(found: Screening) -> str:
    kind = "warning" if found.broken else "good"
    where = ", ".join(f'<span class="name">{escape(name)}</span>' for name in found.layers)
    looked = f"Looked at {where}." if found.layers else "Nothing could be looked at."
    return (
        f'<div class="card {kind}"><p><strong>{escape(found.headline())}</strong></p>'
        f'<p class="soft">{looked} A score above {found.cut:g} looks broken.</p></div>'
    )


def _gallery(why: str, some: Sequence[Broken], pictures: Mapping[int, Thumbnail]) -> str:
    drawn = [one for one in some[:_MOST_PICTURES] if one.index in pictures]
    tiles = [_tile(pictures[one.index], one.index, one.score, one.evidence) for one in drawn]
    words = [f"{len(some):,} sample{'s' * (len(some) != 1)}.", _MEANING[why]]
    words += [f"The {len(drawn)} highest scores are shown."] if len(drawn) < len(some) else []
    words += ["On the right each is on its own scale."] if any(pictures[one.index].own for one in drawn) else []
    return _tiles(why.capitalize(), " ".join(words), tiles)


def _others(found: Screening, numbers: Sequence[int], pictures: Mapping[int, Thumbnail], title: str, words: str) -> str:
    tiles = [_tile(pictures[i], i, float(found.scores[i]), "") for i in numbers if i in pictures]
    return _tiles(title, words, tiles) if tiles else ""


def _tiles(title: str, words: str, tiles: Sequence[str]) -> str:
    return f'<h2>{escape(title)}</h2><p class="soft">{escape(words)}</p><div class="tiles">{"".join(tiles)}</div>'


def _tile(picture: Thumbnail, index: int, score: float, line: str) -> str:
    images = "".join(
        f'<img src="{address}" alt="sample {index}{what}">'
        for address, what in ((picture.common, ""), (picture.own, " on its own scale"))
        if address
    )
    more = f'<br><span class="soft">{escape(line)}</span>' if line else ""
    kind = ' class="two"' if picture.own else ""
    return (
        f"<figure{kind}><div>{images}</div><figcaption><strong>{index}</strong> score {_score(score)}{more}"
        "</figcaption></figure>"
    )


def _usual(found: Screening) -> list[int]:
    """Samples whose scores are nearest to the median, in order of index."""
    kept = found.kept
    if not kept:
        return []
    scores = found.scores[kept]
    nearest = (scores - scores.median()).abs().argsort(stable=True)[:_USUAL]
    return sorted(kept[i] for i in nearest.tolist())


def _highest(found: Screening) -> list[int]:
    """The samples with the highest scores among those that are not broken."""
    order = found.scores.argsort(descending=True, stable=True)[len(found.broken) :]
    return order[:_USUAL].tolist()


def _score(score: float) -> str:
    return "∞" if score == math.inf else f"{score:,.0f}" if score >= 100 else f"{score:.3g}"


def _histogram(found: Screening) -> str:
    bins = score_counts(found.scores, found.cut)
    most = max(one.count for one in bins)
    step = (_WIDTH - _LEFT) / len(bins)
    bars = "".join(_bar(one, k, step, most, found.cut) for k, one in enumerate(bins))
    at = _LEFT + step * next(k for k, one in enumerate([*bins, Bin(bins[-1].high, 0.0, 0)]) if one.low >= found.cut)
    floor = _HEIGHT - _FOOT
    every = max(1, len(bins) // 8)
    below = f'y="{floor + 14}" text-anchor="middle"'
    marks = "".join(
        f'<text x="{_LEFT + k * step:.1f}" {below}>{shown(float(f"{one.low:.2g}"))}</text>'
        for k, one in enumerate(bins)
        if k % every == 0 and abs(_LEFT + k * step - at) > 40
    )
    cut = (
        f'<line class="cut" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{floor}"/>'
        f'<text class="cut" x="{at:.1f}" {below}>cut {found.cut:g}</text>'
    )
    label = f"histogram of the scores of {found.samples} samples"
    return (
        f'<figure class="scores"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{bars}'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{floor}" y2="{floor}"/>{marks}{cut}'
        f'<text x="{_LEFT - 6}" y="14" text-anchor="end">{most:,}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">score, logarithmic</text></svg>'
        "<figcaption>Samples by score, on a logarithmic scale. Samples that are not finite "
        "count in the last bar.</figcaption></figure>"
    )


def _bar(one: Bin, k: int, step: float, most: int, cut: float) -> str:
    if not one.count:
        return ""
    # Logarithmic, so that one sample is visible next to ten thousand.
    height = (_HEIGHT - _FOOT - 8) * math.log1p(one.count) / math.log1p(most)
    kind = "flag" if one.low >= cut else "bar"
    return (
        f'<rect class="{kind}" x="{_LEFT + k * step + 0.5:.1f}" y="{_HEIGHT - _FOOT - height:.1f}" '
        f'width="{max(step - 1, 1):.1f}" height="{height:.1f}"><title>{one.low:.3g} to {one.high:.3g}: '
        f"{one.count:,}</title></rect>"
    )


def _table(found: Screening) -> str:
    if not found.broken:
        return ""
    rows = [
        [
            Cell(f"{one.index}", f"{one.index}", "number"),
            Cell(_score(one.score), str(min(one.score, 1e300)), "number"),
            Cell(escape(one.layer), one.layer),
            Cell(escape(one.why), one.why),
            Cell(escape(one.evidence), one.evidence),
        ]
        for one in found.broken[:_MOST_ROWS]
    ]
    rest = len(found.broken) - len(rows)
    more = f'<p class="soft">{rest:,} more have lower scores.</p>' if rest else ""
    return "<h2>All broken samples</h2>" + sortable(found.head(), rows) + more


def _remarks(found: Screening) -> str:
    lines = [*found.notes, *[f"{name} was not looked at: {why}" for name, why in found.skipped.items()]]
    return "<h2>Notes</h2>" + "".join(f"<p>{escape(line)}.</p>" for line in lines) if lines else ""
