"""A diagnosis as one self-contained page: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...html.charts import bars, histogram, shares
from ...html.document import Cell, document, read, sortable
from ...html.result import Result, shown
from ..behaviour import percent
from ..sphere import SphereLayer
from .diagnosis import Diagnosis
from .finding import Finding, layer_list


def page(diagnosis: Diagnosis) -> str:
    """The page as HTML."""
    title = f"{diagnosis.model}: normalization"
    return document(title, _parts(diagnosis, title), script=read("geonorm.analysis.diagnose", "page.js"))


def _parts(diagnosis: Diagnosis, title: str) -> list[str]:
    spheres = {layer.name: layer for layer in diagnosis.sphere.layers} if diagnosis.sphere else {}
    names = [layer.name for layer in diagnosis.layers]
    places = {layer.operation: i for i, layer in enumerate(diagnosis.layers) if layer.operation}
    places |= {name: i for i, name in enumerate(names)}
    geometry = [part for part in (_spheres(diagnosis), _widths(diagnosis), _activation_effect(diagnosis)) if part]
    return [
        f"<h1>{escape(title)}</h1>",
        _verdict(diagnosis),
        _facts(diagnosis),
        _fixed(diagnosis),
        *[_card(finding, places) for finding in diagnosis.findings],
        _noticed(diagnosis),
        "<h2>Norms</h2>" + _overview(diagnosis, names) if names else "",
        "<h2>Layer by layer</h2>" if names else "",
        *[_layer(diagnosis, i, name, spheres.get(name)) for i, name in enumerate(names)],
        f"<h2>Geometry</h2><details><summary>The mathematics: spheres, batch size against width, and the effect of "
        f"activations</summary>{''.join(geometry)}</details>"
        if geometry
        else "",
        *[f'<p class="soft">{escape(n)} failed: {escape(why)}</p>' for n, why in diagnosis.missing.items()],
    ]


def _verdict(diagnosis: Diagnosis) -> str:
    """The verdict at the top of the page."""
    alarms = diagnosis.alarms()
    if not diagnosis.layers and not alarms:
        return '<div class="card note"><p>The model has no norms; no fault was found elsewhere.</p></div>'
    if not alarms:
        return '<div class="card good"><p><span class="tag good">Healthy</span>: no fault was found.</p></div>'
    number = len(alarms)
    worst = alarms[0].severity
    return (
        f'<div class="card {worst}"><p><span class="tag {worst}">{number} fault{"s" * (number != 1)} to fix.</span> '
        f"The most harmful: {escape(_sentence(alarms[0].what))}</p></div>"
    )


def _facts(diagnosis: Diagnosis) -> str:
    number = len(diagnosis.layers)
    facts = [f"{number} norm{'s' * (number != 1)}", f"{diagnosis.samples} samples"]
    facts += [f"{number} {severity}{'s' * (number != 1)}" for severity, number in diagnosis.counts().items()]
    chips = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    agreement = diagnosis.agreement()
    made_up = (
        '<p class="soft">The inputs were random numbers: checks that depend on the data (stale statistics, dead '
        "channels, outliers) were skipped.</p>"
        if diagnosis.synthetic
        else ""
    )
    sentence = f"<p>{escape(agreement)}</p>" if agreement else ""
    return f'{sentence}<ul class="chips">{chips}</ul>{made_up}'


def _fixed(diagnosis: Diagnosis) -> str:
    if diagnosis.after is None:
        return ""
    if not diagnosis.done:
        return '<div class="card note"><p>None of these faults can be fixed safely without your decision.</p></div>'
    now, then = diagnosis.evaluation.now, diagnosis.after.evaluation.now
    gained = (
        "" if now is None or then is None else f" Accuracy in evaluation: {percent(now.share)} → {percent(then.share)}."
    )
    left = diagnosis.after.alarms()
    rest = (
        "No errors or warnings remain."
        if not left
        else "Remaining: " + ", ".join(f"{f.kind} at {f.layer}" for f in left) + "."
    )
    text = f"Fixed in a copy: {'; '.join(diagnosis.done)}.{gained} {rest}"
    return f'<div class="card good"><p>{escape(text)}</p></div>'


def _noticed(diagnosis: Diagnosis) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in diagnosis.noticed)
    title = "What was checked, and how small a fault would have been noticed"
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def _card(finding: Finding, places: Mapping[str, int]) -> str:
    name = escape(finding.layer)
    if finding.layer in places:
        name = f'<a href="#layer-{places[finding.layer]}">{name}</a>'
    others = [layer for layer in finding.layers if layer != finding.layer]
    also = f'<p class="soft">Also in {escape(layer_list(others, 8))}.</p>' if others else ""
    follows = "".join(
        f'<li><span class="name">{escape(f.layer)}</span>: {escape(f.kind)}. {escape(_sentence(f.what))}</li>'
        for f in finding.consequences
    )
    return (
        f'<div class="card {finding.severity}"><h3><span class="tag {finding.severity}">{finding.severity}</span> '
        f'<span class="name">{name}</span>: {escape(finding.kind)}</h3><p>{escape(_sentence(finding.what))}</p>'
        f"<p>What to do: {escape(finding.advice)}.</p>"
        f'<p class="soft">Evidence: {escape(finding.evidence)}.</p>{_channels(finding)}{also}'
        + (f"<details><summary>It also explains</summary><ul>{follows}</ul></details>" if follows else "")
        + "</div>"
    )


def _channels(finding: Finding) -> str:
    if len(finding.channels) <= 6:
        return ""
    listed = ", ".join(map(str, finding.channels))
    return f"<details><summary>all {len(finding.channels)} channels</summary>{listed}</details>"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], links: Sequence[str] = ()) -> str:
    """A sortable table; ``links`` are the anchors that the first cells link to."""
    numeric = [all(_is_number(row[c]) for row in rows) for c in range(len(head))]
    lines = []
    for r, row in enumerate(rows):
        cells = []
        for c, value in enumerate(row):
            said = shown(value)
            text = escape(said)
            if c == 0 and r < len(links):
                text = f'<a href="#{links[r]}">{text}</a>'
            kind = "number" if numeric[c] else "name" if c == 0 else "long" if len(said) > 40 else ""
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
    return f"<h3>{title}</h3><p>{words}</p>{charts}{_table(result.head(), result.rows())}"


def _spheres(diagnosis: Diagnosis) -> str:
    if diagnosis.sphere is None or not diagnosis.sphere.layers:
        return ""
    words = (
        "A norm subtracts the mean of n values and divides by their spread: as one vector, they then lie on a sphere "
        "of radius √n. radius/√n is 1 without eps; ⟨ŷ,e⟩, the component along (1, …, 1), is 0 if the mean was "
        "subtracted; energy in e comes from β; eps is its share of the divisor. Weights and norm together form an "
        "ellipsoid: the column 'ellipsoid' gives the distance of W′ΣW′ᵗ from γ²."
    )
    return _section("Spheres", words, diagnosis.sphere)


def _widths(diagnosis: Diagnosis) -> str:
    widths = diagnosis.batch_width
    if widths is None or not widths.layers:
        return ""
    words = (
        "How many directions of an operation's input one batch covers: the rank of its covariance, against the width "
        "n. The batch does not constrain the other directions; no channel collapses because of that."
    )
    picture = shares("rank / n", [w.name for w in widths.layers], [w.outside for w in widths.layers])
    return _section("Batch size against width", words, widths, picture)


def _activation_effect(diagnosis: Diagnosis) -> str:
    effect = diagnosis.activation_effect
    if effect is None or not effect.operations:
        return ""
    words = (
        "How much of a norm's effect survives the activation and reaches the next operation: mean²/rms² is 0 if the "
        "mean is still removed; division passed on is 1 if the division survives."
    )
    names = [a.name for a in effect.operations]
    picture = shares("mean² / rms² at the operation's input", names, [a.mean_share for a in effect.operations])
    return _section("Effect of the activation", words, effect, picture)


def _layer(diagnosis: Diagnosis, number: int, name: str, sphere: SphereLayer | None) -> str:
    overview = diagnosis.layers[number]
    own = [f for f in diagnosis.findings if {name, overview.operation} & {f.layer, *f.layers}]
    mark = f' <span class="tag {overview.worst}">{overview.worst}</span>' if overview.worst else ""
    body = [_card(finding, {}) for finding in own]
    flagged = {channel for finding in own for channel in finding.channels}
    if sphere is None:
        why = diagnosis.sphere.skipped.get(name, "") if diagnosis.sphere else ""
        body.append(f'<p class="soft">Not measured: {escape(why or "its axes are unknown")}.</p>')
    shapes = [
        histogram(title, found.low, found.high, found.counts)
        for title, found in (("its input", overview.input), ("γ", overview.gamma))
        if found is not None
    ]
    body.append(f'<div class="charts">{"".join(shapes)}</div>' if shapes else "")
    if sphere is not None:
        pictures = [
            bars(title, values.tolist(), flagged)
            for title, values in (
                ("γ of each channel", sphere.gamma),
                ("β of each channel", sphere.beta),
                ("σ of its input, by channel", sphere.sigma),
                ("effective weight norm of each channel, ‖W′‖", sphere.effective),
            )
            if values is not None
        ]
        body.append(f'<div class="charts">{"".join(pictures)}</div>' if pictures else "")
        if not pictures:
            body.append(f'<p class="soft">It normalizes each {escape(sphere.unit)}: {sphere.dimension} values.</p>')
    return (
        f'<details id="layer-{number}"><summary><span class="name">{escape(name)}</span> '
        f'<span class="soft">{escape(overview.kind)}</span>{mark}</summary>{"".join(body)}</details>'
    )
