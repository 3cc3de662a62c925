"""A diagnosis as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .charts import bars, shares
from .diagnose import Diagnosis
from .document import Cell, document, read, sortable
from .finding import Finding
from .result import Result, shown
from .sphere import SphereLayer


def page(diagnosis: Diagnosis) -> str:
    """The page as HTML."""
    title = f"{diagnosis.model}: normalization"
    return document(title, _parts(diagnosis, title), script=read("geonorm.analysis", "page.js"))


def _parts(diagnosis: Diagnosis, title: str) -> list[str]:
    spheres = {layer.name: layer for layer in diagnosis.sphere.layers} if diagnosis.sphere else {}
    names = [layer.name for layer in diagnosis.layers]
    places = {layer.operation: i for i, layer in enumerate(diagnosis.layers) if layer.operation}
    places |= {name: i for i, name in enumerate(names)}
    return [
        f"<h1>{escape(title)}</h1>",
        _summary(diagnosis),
        "<h2>Findings</h2>",
        *([_card(finding, places) for finding in diagnosis.findings] or [_healthy(diagnosis)]),
        "<h2>Norms</h2>" + _overview(diagnosis, names) if names else "",
        _spheres(diagnosis),
        _widths(diagnosis),
        _survival(diagnosis),
        "<h2>Layer by layer</h2>" if names else "",
        *[_layer(diagnosis, i, name, spheres.get(name)) for i, name in enumerate(names)],
        *[f'<p class="soft">{escape(n)} was not taken: {escape(why)}</p>' for n, why in diagnosis.missing.items()],
    ]


def _summary(diagnosis: Diagnosis) -> str:
    number = len(diagnosis.layers)
    facts = [f"{number} norm{'s' * (number != 1)}", f"{diagnosis.samples} samples"]
    facts += [f"{number} {severity}{'s' * (number != 1)}" for severity, number in diagnosis.counts().items()]
    chips = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    made_up = (
        '<p class="soft">The inputs were random numbers: what depends on the data (stale statistics, dead channels, '
        "outliers) was left out.</p>"
        if diagnosis.synthetic
        else ""
    )
    return f'<ul class="chips">{chips}</ul>{made_up}'


def _healthy(diagnosis: Diagnosis) -> str:
    if not diagnosis.layers:
        return '<div class="card note"><p>The model has no norms that are known here; nothing else was found.</p></div>'
    return '<div class="card good"><p><span class="tag good">Healthy</span> nothing was found.</p></div>'


def _card(finding: Finding, places: Mapping[str, int]) -> str:
    name = escape(finding.layer)
    if finding.layer in places:
        name = f'<a href="#layer-{places[finding.layer]}">{name}</a>'
    channels = _channels(finding)
    return (
        f'<div class="card {finding.severity}"><h3><span class="tag {finding.severity}">{finding.severity}</span> '
        f'<span class="name">{name}</span>: {escape(finding.kind)}</h3><p>{escape(_sentence(finding.what))}</p>'
        f'<p class="soft">Seen by: {escape(finding.evidence)}.</p>{channels}'
        f"<p>What to do: {escape(finding.advice)}.</p></div>"
    )


def _channels(finding: Finding) -> str:
    if len(finding.channels) <= 6:
        return ""
    listed = ", ".join(map(str, finding.channels))
    return f"<details><summary>all {len(finding.channels)} channels</summary>{listed}</details>"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], links: Sequence[str] = ()) -> str:
    """A table that sorts; ``links`` are places on the page that the first cells lead to."""
    numeric = [all(_is_number(row[c]) for row in rows) for c in range(len(head))]
    lines = []
    for r, row in enumerate(rows):
        cells = []
        for c, value in enumerate(row):
            text = escape(shown(value))
            if c == 0 and r < len(links):
                text = f'<a href="#{links[r]}">{text}</a>'
            kind = "number" if numeric[c] else "name" if c == 0 else "long" if len(text) > 40 else ""
            key = "" if value is None else str(float(value)) if numeric[c] else str(value)
            cells.append(Cell(text, key, kind))
        lines.append(cells)
    return sortable(head, lines)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _overview(diagnosis: Diagnosis, names: Sequence[str]) -> str:
    rows = [
        (o.name, o.kind, o.channels, o.operation, o.calls, o.tracked, o.findings, o.worst or "none")
        for o in diagnosis.layers
    ]
    head = ("norm", "kind", "channels", "operation before it", "calls", "keeps statistics", "findings", "worst")
    return _table(head, rows, [f"layer-{i}" for i in range(len(names))])


def _section(title: str, words: str, result: Result, picture: str = "") -> str:
    charts = f'<div class="charts">{picture}</div>' if picture else ""
    return f"<h2>{title}</h2><p>{words}</p>{charts}{_table(result.head(), result.rows())}"


def _spheres(diagnosis: Diagnosis) -> str:
    if diagnosis.sphere is None or not diagnosis.sphere.layers:
        return ""
    words = (
        "Each norm puts its values onto spheres: radius/√n is 1 without eps, ⟨ŷ,e⟩ is 0 when the mean is what is "
        "removed; energy in e is what β adds; eps is its share of the divisor; ellipsoid is how far W′ΣW′ᵗ is from γ²."
    )
    return _section("Spheres", words, diagnosis.sphere)


def _widths(diagnosis: Diagnosis) -> str:
    widths = diagnosis.batch_width
    if widths is None or not widths.layers:
        return ""
    words = (
        "How many directions of an operation's input one batch shows: the rank of its covariance, against the width n. "
        "Directions that are not seen are left free by this batch; no channel collapses for that."
    )
    picture = shares("rank / n", [w.name for w in widths.layers], [w.outside for w in widths.layers])
    return _section("Batch against width", words, widths, picture)


def _survival(diagnosis: Diagnosis) -> str:
    lasting = diagnosis.survival
    if lasting is None or not lasting.operations:
        return ""
    words = (
        "What the activation leaves of a norm at the next operation: mean²/rms² is 0 where the mean removal survives; "
        "division passed on is 1 where the division does."
    )
    names = [a.name for a in lasting.operations]
    picture = shares("mean² / rms² at the operation's input", names, [a.mean_share for a in lasting.operations])
    return _section("What survives the activation", words, lasting, picture)


def _layer(diagnosis: Diagnosis, number: int, name: str, sphere: SphereLayer | None) -> str:
    overview = diagnosis.layers[number]
    own = [finding for finding in diagnosis.findings if finding.layer in (name, overview.operation)]
    mark = f' <span class="tag {overview.worst}">{overview.worst}</span>' if overview.worst else ""
    body = [_card(finding, {}) for finding in own]
    flagged = {channel for finding in own for channel in finding.channels}
    if sphere is None:
        why = diagnosis.sphere.skipped.get(name, "") if diagnosis.sphere else ""
        body.append(f'<p class="soft">Not measured: {escape(why or "it has no spheres")}.</p>')
    else:
        pictures = [
            bars(title, values.tolist(), flagged)
            for title, values in (
                ("γ, the radius of each channel", sphere.gamma),
                ("β, its center", sphere.beta),
                ("σ of its input", sphere.sigma),
                ("‖W′‖, the effective weight", sphere.effective),
            )
            if values is not None
        ]
        body.append(f'<div class="charts">{"".join(pictures)}</div>')
        if not pictures:
            body.append(f'<p class="soft">One sphere per {escape(sphere.unit)}, of {sphere.dimension} values.</p>')
    return (
        f'<details id="layer-{number}"><summary><span class="name">{escape(name)}</span> '
        f'<span class="soft">{escape(overview.kind)}</span>{mark}</summary>{"".join(body)}</details>'
    )
