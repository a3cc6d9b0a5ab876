"""What figures are drawn of: points, lines, levels and frames, as Plotly takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from study.reporting import theme

Mark = dict[str, Any]
INK = f"{theme.TOKEN}ink"
MUTED = f"{theme.TOKEN}muted"
PAPER = f"{theme.TOKEN}paper"
SHADE = f"{theme.TOKEN}shade"


def points(x: Sequence[float], y: Sequence[float | None], mode: str = "markers", **details: Any) -> Mark:
    """Points, or with "lines" in the mode a line; what has no hover text of its own has none."""
    silent = {} if "hovertemplate" in details else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y)} | silent | details


def marker(symbol: str, size: float, colour: str, width: float = 0, edge: str | None = None) -> Mark:
    line = {"width": width, "color": edge or colour}
    return {"symbol": symbol, "size": size, "color": colour, "line": line}


def level(y: float, dash: str = "dot", width: float = 1.2) -> Mark:
    """A line across the whole panel, under everything else."""
    line = {"color": MUTED, "width": width, "dash": dash}
    return {
        "type": "line",
        "xref": "x domain",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "layer": "below",
        "line": line,
    }


def floor(bottom: float, top: float) -> Mark:
    """The panel's ground, shaded up to a level."""
    place = {"xref": "x domain", "x0": 0, "x1": 1, "y0": bottom, "y1": top}
    return {"type": "rect", "layer": "below", "fillcolor": SHADE, "line": {"width": 0}} | place


def bar(x: float, y: float, colour: str) -> Mark:
    """A short line at one height."""
    line = {"color": colour, "width": 2.4}
    return {"type": "line", "x0": x - 0.36, "x1": x + 0.36, "y0": y, "y1": y, "line": line}


def frame(x: float, y: float) -> Mark:
    """Around one square of a heat map."""
    place = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
    return {"type": "rect", "xref": "x", "yref": "y", "line": {"color": INK, "width": 2}} | place
