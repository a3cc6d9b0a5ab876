"""The report as one HTML file that needs nothing else: style, script, Plotly and figures are inside it."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from study.cli.wording import counted
from study.reporting import theme
from study.reporting.document import Document, Key

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def page(document: Document) -> str:
    panels = [panel for chart in document.charts for panel in chart.panels]
    data = {
        "figures": {panel.name: rounded(panel.figure) for panel in panels},
        "themes": theme.THEMES,
        "scales": theme.SCALES,
    }
    # Whatever a study is called, it must not end the script element early.
    figures = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    template = _environment().from_string(_asset("report.html"))
    return template.render(
        document=document,
        figures=figures,
        plotly=plotly_script(),
        style=_asset("report.css"),
        script=_asset("report.js"),
    ).lstrip()


@cache
def plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def rounded(part: Any) -> Any:
    """Six digits are more than a pixel can show, and halve the page."""
    if isinstance(part, dict):
        return {name: rounded(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [rounded(value) for value in part]
    if isinstance(part, float):
        return float(f"{part:.6g}") if math.isfinite(part) else None
    return part


def columns(panels: int) -> int:
    """How many panels stand side by side on a wide screen: as few gaps in the last line as possible."""
    return panels if panels <= 4 else min((4, 3), key=lambda count: -panels % count)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # A number and its unit stay on one line.
        finalize=lambda value: value.replace(" %", "\u00a0%") if isinstance(value, str) else value,
    )
    found.filters |= {
        "colour": theme.colour,
        "columns": columns,
        "count": counted,
        "drawn": _drawn,
        "prose": _prose,
    }
    return found


def _asset(name: str) -> str:
    return files("study.reporting").joinpath(name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Flags are set as code and never broken in two."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<!\S)--[a-z][a-z-]*", r"<code>\g<0></code>", str(escape(text))))


_DASHES = {
    "solid": "",
    "dash": "6 3",
    "dot": "1.5 3",
    "dashdot": "6 3 1.5 3",
    "longdash": "9 4",
    "longdashdot": "9 4 1.5 4",
}
_MARKS = {
    "band": '<rect x="3" y="1" width="24" height="12"/>',
    "patch": '<rect x="9" y="1" width="12" height="12"/>',
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
    "frame": '<rect x="9" y="2" width="12" height="10" fill="none" stroke="currentColor" stroke-width="2"/>',
    "dot": '<circle cx="15" cy="7" r="3" style="stroke:var(--ink)" stroke-width="1"/>',
    "bar": '<rect x="6" y="5.8" width="18" height="2.6"/>',
}


def _drawn(key: Key) -> Markup:
    """The sign of a legend's entry: a mark, a line, or a mark on a line."""
    from markupsafe import Markup

    line = ""
    if key.symbol is None or key.symbol in theme.SYMBOLS:
        dash = _DASHES[key.dash]
        line = f'<path d="M1 7H29" stroke="currentColor" stroke-width="2" stroke-dasharray="{dash}"/>'
    return Markup(line + _MARKS.get(key.symbol or "", ""))
