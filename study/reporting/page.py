"""The report as one HTML file that needs nothing else: style, script, Plotly and figures are inside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import cache
from html import escape as escape_html
from importlib.resources import files
from typing import Any

from study.reporting import theme
from study.reporting.document import Block, Bullets, Chart, Document, Key, Panel, Row, Section, Table, Words

FEW = 4
"""Up to this many panels are drawn large."""


def page(document: Document) -> str:
    panels = [panel for chart in document.charts for panel in chart.panels]
    data = {
        "figures": {panel.name: rounded(panel.figure) for panel in panels},
        "themes": theme.THEMES,
        "scales": theme.SCALES,
    }
    said = " · ".join((*(b.upper() for b in document.badges), f"Layer freezing: {document.title}"))
    # Whatever a study is called, it must not end the script element early.
    embedded = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(said)}</title>
<style>
{_asset("report.css")}</style>
</head>
<body>
{_header(document)}
<main>
{"".join(_section(section) for section in document.sections)}</main>
<footer><p>{escape(said)}. Everything here was computed from the trial table; the tables lie beside this
page as CSV.</p></footer>
<script>{plotly_script()}</script>
<script type="application/json" id="figures">{embedded}</script>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


@cache
def plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def escape(text: str) -> str:
    """For HTML; a number and its unit stay on one line."""
    return escape_html(text).replace(" %", "\u00a0%")


def _prose(text: str) -> str:
    """Flags are set as code and never broken in two."""
    return re.sub(r"(?<!\S)--[a-z][a-z-]*", r"<code>\g<0></code>", escape(text))


def _asset(name: str) -> str:
    return files("study.reporting").joinpath(name).read_text(encoding="utf-8")


def rounded(part: Any) -> Any:
    """Six digits are more than a pixel can show, and halve the page."""
    if isinstance(part, dict):
        return {name: rounded(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [rounded(value) for value in part]
    if isinstance(part, float):
        return float(f"{part:.6g}") if math.isfinite(part) else None
    return part


def _header(document: Document) -> str:
    badges = "".join(f'<span class="badge">{escape(badge)}</span>' for badge in document.badges)
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in document.warnings)
    facts = "".join(f"<div><dt>{escape(v)}</dt><dd>{escape(label)}</dd></div>" for v, label in document.facts)
    links = " ".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in document.sections)
    return f"""<header>
<p class="kicker">{badges}Layer freezing: {escape(document.title)}</p>
{_answers(document.answers)}
{warnings}
<dl class="facts">{facts}</dl>
<nav aria-label="Contents">{links}</nav>
</header>"""


def _answers(answers: tuple[str, ...]) -> str:
    if len(answers) == 1:
        answer, stop, remarks = answers[0].partition(". ")
        aside = f'\n<p class="remark">{escape(remarks)}</p>' if remarks else ""
        return f"<h1>{escape(answer + stop.strip())}</h1>{aside}"
    items = []
    for answer in answers:
        model, _, rest = answer.partition(": ")
        items.append(f"<li><b>{escape(model)}</b>: {escape(rest)}</li>")
    return f'<h1>How many layers need fine-tuning?</h1>\n<ul class="answers">{"".join(items)}</ul>'


def _section(section: Section) -> str:
    blocks = "".join(_block(block) for block in section.blocks)
    return f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n{blocks}</section>\n'


def _block(block: Block) -> str:
    match block:
        case Words():
            return f"<p>{_prose(block.text)}</p>\n"
        case Bullets():
            return f"<ul>{''.join(f'<li>{_prose(item)}</li>' for item in block.items)}</ul>\n"
        case Table():
            link = f'<a class="csv" href="tables/{escape(block.file)}">CSV</a>'
            return _folding(block.title, _table(block), f"{len(block.rows)} rows", link, folded=block.folded)
        case Chart():
            return _folding(
                block.title, _chart(block), f"{len(block.panels)} panels", "", folded=block.folded
            )


def _folding(title: str, body: str, size: str, link: str, *, folded: bool) -> str:
    if folded:
        return (
            f'<details class="block"><summary><h3>{escape(title)}</h3><span class="size">{size}</span>{link}'
            f"</summary>{body}</details>\n"
        )
    return f'<div class="block"><h3>{escape(title)}{link}</h3>{body}</div>\n'


def _chart(chart: Chart) -> str:
    count = len(chart.panels)
    kind = " one" if count == 1 else " few" if count <= FEW else ""
    legend = "".join(_key(key) for key in chart.legend)
    panels = "".join(_panel(panel) for panel in chart.panels)
    return (
        f'<p class="caption">{escape(chart.caption)}</p><div class="legend">{legend}</div>'
        f'<div class="panels{kind}">{panels}</div>'
    )


def _panel(panel: Panel) -> str:
    height = panel.figure["layout"]["height"]
    return (
        f'<div class="panel"><h4>{escape(panel.label)}</h4><div class="plot" role="img" '
        f'data-figure="{escape(panel.name)}" aria-label="{escape(panel.alt)}" style="height:{height}px">'
        "</div></div>"
    )


_DASHES = {
    "solid": "",
    "dash": "6 3",
    "dot": "1.5 3",
    "dashdot": "6 3 1.5 3",
    "longdash": "9 4",
    "longdashdot": "9 4 1.5 4",
}
_MARKS = {
    "circle": '<circle cx="15" cy="7" r="3.2"/>',
    "square": '<rect x="12" y="4" width="6" height="6"/>',
    "diamond": '<path d="M15 2.6 19 7 15 11.4 11 7Z"/>',
    "triangle-up": '<path d="M15 3 19 10 11 10Z"/>',
    "triangle-down": '<path d="M15 11 19 4 11 4Z"/>',
    "x": '<path d="M12 4 18 10M18 4 12 10" stroke="currentColor" stroke-width="2.4"/>',
    "cross": '<path d="M15 3V11M11 7H19" stroke="currentColor" stroke-width="2.4"/>',
    "star": '<path d="M15 2.4 16.4 5.8 20 6 17.2 8.3 18.1 11.8 15 9.9 11.9 11.8 12.8 8.3 10 6 13.6 5.8Z"/>',
    "full": '<circle cx="15" cy="7" r="4"/>',
    "hollow": '<circle cx="15" cy="7" r="3.6" fill="none" stroke="currentColor" stroke-width="1.6"/>',
    "ring": '<circle cx="15" cy="7" r="5" fill="none" stroke="currentColor" stroke-width="1.6"/>',
    "dot": '<circle cx="15" cy="7" r="3" style="stroke:var(--ink)" stroke-width="1"/>',
    "bar": '<rect x="6" y="5.8" width="18" height="2.6"/>',
}


def _key(key: Key) -> str:
    if key.dash == "band":
        drawn = '<rect x="3" y="1" width="24" height="12"/>'
    elif key.dash == "square":
        drawn = '<rect x="9" y="1" width="12" height="12"/>'
    else:
        drawn = _MARKS.get(key.symbol or "", "")
        if key.symbol is None or key.symbol in theme.SYMBOLS:
            dash = _DASHES[key.dash]
            drawn = (
                f'<path d="M1 7H29" stroke="currentColor" stroke-width="2" stroke-dasharray="{dash}"/>{drawn}'
            )
    light, dark = theme.colour(key.colour, "light"), theme.colour(key.colour, "dark")
    return (
        f'<span class="key"><svg width="30" height="14" fill="currentColor" aria-hidden="true" '
        f'style="--light:{light};--dark:{dark}">{drawn}</svg>{escape(key.label)}</span>'
    )


def _table(table: Table) -> str:
    shown = table.shown
    head = "".join(
        f'<th scope="col"{" class=number" if column.number else ""}>{escape(column.title)}</th>'
        for _, column in shown
    )
    body = []
    group = None
    for row in table.rows:
        if row.group is not None and row.group != group:
            group = row.group
            heading = f"<span>{escape(group)}</span>"
            body.append(f'<tr class="group"><th colspan="{len(shown)}" scope="rowgroup">{heading}</th></tr>')
        body.append(_row(table, row))
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    inner = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inner}</table></div>{note}'


def _row(table: Table, row: Row) -> str:
    cells = []
    for i, column in table.shown:
        text = column.show(row.values[i]) if row.values[i] is not None else column.show(None)
        kinds = [*(["number"] if column.number else []), *([table.mark] if i in row.marked else [])]
        kinds += ["words"] if not column.number and len(text) > 28 else []
        inner = escape(text)
        if table.verdicts and column.name == "verdict":
            inner = f'<span class="verdict {escape(text.split()[0])}">{inner}</span>'
        cells.append(f"<td{_classes(kinds)}>{inner}</td>")
    states = [name for name in ("strong", "quiet") if getattr(row, name)]
    return f"<tr{_classes(states)}>{''.join(cells)}</tr>"


def _classes(names: Iterable[str]) -> str:
    joined = " ".join(names)
    return f' class="{joined}"' if joined else ""
