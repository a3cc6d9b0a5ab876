"""A chart's panels as one Plotly figure with title and legend, for places that show a single figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from study.reporting import theme
from study.reporting.document import Chart, Figure, Key

WIDTH = 1120
DASHBOARD_WIDTH = 480
NUMBER_WIDTH = 32
"""Of a square in pixels, so that a number fits into it; report.js knows it, too."""
_TITLE, _BOTTOM, _GAP_X, _GAP_Y, _LEFT, _RIGHT = 44, 56, 78, 92, 70, 24
_LEGEND_ROW, _HEADING = 20, 26


def composite(chart: Chart, *, badges: Sequence[str] = (), colours: str = "light") -> Figure:
    """All panels in a grid, in one theme; sizes are fixed, so that labels keep their room."""
    columns = min(len(chart.panels), 2 if len(chart.panels) <= 4 else 3)
    lines = -(-len(chart.panels) // columns)
    inner = max(panel.figure["layout"]["height"] for panel in chart.panels) - 60
    top_margin = _TITLE + _LEGEND_ROW * _legend_rows(chart.legend) + _HEADING
    height = top_margin + _BOTTOM + lines * inner + (lines - 1) * _GAP_Y
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, height - top_margin - _BOTTOM
    panel_width = (plot_width - (columns - 1) * _GAP_X) / columns
    data: list[dict[str, Any]] = []
    layout = _frame(_titled(chart.title, badges), height)
    layout["margin"] = {"l": _LEFT, "r": _RIGHT, "t": top_margin, "b": _BOTTOM}
    for i, panel in enumerate(chart.panels):
        line, column = divmod(i, columns)
        left = column * (panel_width + _GAP_X) / plot_width
        top = 1 - line * (inner + _GAP_Y) / plot_height
        suffix = "" if i == 0 else str(i + 1)
        own = panel.figure["layout"]
        layout[f"xaxis{suffix}"] = own["xaxis"] | {
            "domain": [left, min(1.0, left + panel_width / plot_width)],
            "anchor": f"y{suffix}",
        }
        layout[f"yaxis{suffix}"] = own["yaxis"] | {
            "domain": [max(0.0, top - inner / plot_height), top],
            "anchor": f"x{suffix}",
        }
        data += [
            _fitting(trace, panel_width) | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": False}
            for trace in panel.figure["data"]
        ]
        layout["shapes"] += [_moved(shape, suffix) for shape in own.get("shapes", ())]
        layout["annotations"].append(_heading(panel.label, left, top))
    data += [_legend(key) for key in chart.legend]
    return theme.resolve({"data": data, "layout": layout}, colours)


def single(chart: Chart, index: int, *, badges: Sequence[str] = (), colours: str = "light") -> Figure:
    """One panel with its title and legend, as large as the place that shows it."""
    panel = chart.panels[index]
    frame = _frame(_titled(f"{chart.title}: {panel.label}", badges), 450)
    own = panel.figure["layout"]
    layout = frame | {
        "xaxis": own["xaxis"],
        "yaxis": own["yaxis"],
        "shapes": list(own.get("shapes", ())),
        "margin": {"l": 60, "r": 20, "t": 48, "b": 110},
        "autosize": True,
    }
    layout["title"] = frame["title"] | {"font": {"size": 15, "color": f"{theme.TOKEN}ink"}}
    layout["legend"] = frame["legend"] | {"y": -0.2, "yref": "paper"}
    del layout["width"]
    data = [_fitting(trace, DASHBOARD_WIDTH) | {"showlegend": False} for trace in panel.figure["data"]]
    data += [_legend(key) for key in chart.legend]
    return theme.resolve({"data": data, "layout": layout}, colours)


def _titled(title: str, badges: Sequence[str]) -> str:
    return " · ".join((*(badge.upper() for badge in badges), title))


def _frame(title: str, height: int) -> dict[str, Any]:
    frame = theme.layout(height, {}, {})
    return frame | {
        "width": WIDTH,
        "paper_bgcolor": f"{theme.TOKEN}paper",
        "plot_bgcolor": f"{theme.TOKEN}paper",
        "title": {
            "text": theme.words(title),
            "x": 0,
            "xref": "paper",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 14},
            "font": {"size": 17, "color": f"{theme.TOKEN}ink"},
        },
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1 - (_TITLE - 8) / height,
            "yanchor": "top",
            "yref": "container",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "shapes": [],
        "annotations": [],
    }


def _fitting(trace: dict[str, Any], width: float) -> dict[str, Any]:
    """Without the numbers in a heat map's squares where these are too narrow for them."""
    narrow = "texttemplate" in trace and width / len(trace["x"]) < NUMBER_WIDTH
    return {name: value for name, value in trace.items() if not (narrow and name == "texttemplate")}


def _moved(shape: dict[str, Any], suffix: str) -> dict[str, Any]:
    x_reference = f"x{suffix} domain" if "domain" in str(shape.get("xref", "")) else f"x{suffix}"
    return shape | {"xref": x_reference, "yref": f"y{suffix}"}


def _heading(label: str, left: float, top: float) -> dict[str, Any]:
    return {
        "text": f"<b>{theme.words(label)}</b>",
        "x": left,
        "xref": "paper",
        "xanchor": "left",
        "y": top,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": 4,
        "showarrow": False,
        "font": {"size": 13, "color": f"{theme.TOKEN}ink"},
    }


_LEGEND_SYMBOLS = {
    "ring": "circle-open",
    "full": "circle",
    "hollow": "circle-open",
    "bar": "line-ew",
    "band": "square",
    "patch": "square",
    "frame": "square-open",
    "dot": "circle",
}


def _legend_rows(legend: Sequence[Key]) -> int:
    """Plotly sets entries in columns as wide as the widest."""
    widest = max((60 + 7.5 * len(key.label) for key in legend), default=0.0)
    per_row = max(1, int((WIDTH - _LEFT - _RIGHT) // widest)) if widest else 1
    return -(-len(legend) // per_row)


def _legend(key: Key) -> dict[str, Any]:
    """An entry without points: panels share their series, and each is named once."""
    shown: dict[str, Any] = {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "name": theme.words(key.label),
        "showlegend": True,
    }
    marker = {
        "symbol": _LEGEND_SYMBOLS.get(key.symbol or "", key.symbol or "circle"),
        "size": 12 if key.symbol in ("band", "patch", "frame") else 8,
        "color": key.colour,
        "line": {"width": 2 if key.symbol in ("bar", "frame") else 1, "color": key.colour},
    }
    if key.symbol in _LEGEND_SYMBOLS:
        return shown | {"mode": "markers", "marker": marker}
    line = {"color": key.colour, "dash": key.dash, "width": 2}
    return shown | {"mode": "lines+markers" if key.symbol else "lines", "line": line, "marker": marker}
