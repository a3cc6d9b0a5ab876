"""How figures look: colour-blind-safe colours as tokens, a light and a dark theme that resolve them.

A token is `theme:NAME`, `theme:NAME/PERCENT` (with that opacity) or `theme:~SHARE` (a place on the
sequential scale). The page resolves them in the browser, so that figures follow the reader's theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from study.reporting.document import Key

TOKEN = "theme:"
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', sans-serif"
)

# Okabe and Ito's eight, darkened or lightened where the ground asks for it, the most distinct first.
LIGHT: dict[str, str] = {
    "paper": "#ffffff",
    "ink": "#1d2430",
    "muted": "#5b6472",
    "grid": "#e6e8ec",
    "line": "#b9bfc9",
    "shade": "#eceef1",
    "s0": "#0072b2",
    "s1": "#d55e00",
    "s2": "#009e73",
    "s3": "#4a4a4a",
    "s4": "#bf8300",
    "s5": "#3a9bd9",
    "s6": "#b35c90",
    "s7": "#857b00",
}
DARK: dict[str, str] = {
    "paper": "#14181f",
    "ink": "#eceff4",
    "muted": "#a4adba",
    "grid": "#2a313c",
    "line": "#4a5362",
    "shade": "#1e242d",
    "s0": "#4fb0f0",
    "s1": "#ff8f4d",
    "s2": "#2fcf9f",
    "s3": "#d4d8df",
    "s4": "#f2b632",
    "s5": "#9fd6fa",
    "s6": "#e9a3cb",
    "s7": "#ece26a",
}
# Cividis without its ends, so that every colour stands out from the ground.
SCALES: dict[str, tuple[str, ...]] = {
    "light": ("#0b2a5b", "#2f4a6d", "#5a6374", "#7f7d78", "#a69a6c", "#cdb75a", "#ecd34a"),
    "dark": ("#3f66a8", "#56739c", "#718196", "#8f918b", "#b3a67a", "#d6c063", "#fbe04f"),
}
THEMES = {"light": LIGHT, "dark": DARK}

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down")
COLOURS = 8


@dataclass(frozen=True)
class Style:
    """How one line is told from the others: by colour, and without it by dash and symbol."""

    colour: str
    dash: str
    symbol: str


def line_keys(names: Sequence[str]) -> list[Key]:
    """The legend of lines in the order of their styles."""
    return [
        Key(name, s.colour, s.dash, s.symbol) for name, s in zip(names, map(style, count()), strict=False)
    ]


def style(index: int) -> Style:
    return Style(
        colour=f"{TOKEN}s{index % COLOURS}",
        dash=DASHES[index % len(DASHES)],
        symbol=SYMBOLS[index % len(SYMBOLS)],
    )


def words(text: str) -> str:
    """A name inside a figure, as it is written: Plotly reads some HTML, and fields in braces."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "%\u200b{")


def faded(colour: str, percent: int) -> str:
    return f"{colour}/{percent}"


def sequential(share: float) -> str:
    """A place between the scale's dark (0) and bright (1) end."""
    return f"{TOKEN}~{min(max(share, 0.0), 1.0):.3f}"


def colour_scale(steps: int = 13) -> list[list[float | str]]:
    return [[i / (steps - 1), sequential(i / (steps - 1))] for i in range(steps)]


def spread(position: int, count: int) -> str:
    """The colour of one of `count` ordered things."""
    return sequential(position / (count - 1) if count > 1 else 0.0)


def axis(title: str | None = None, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "fixedrange": True,
        "zeroline": False,
        "showline": True,
        "linecolor": f"{TOKEN}line",
        "gridcolor": f"{TOKEN}grid",
        "tickcolor": f"{TOKEN}line",
        "ticks": "outside",
        "ticklen": 4,
        "tickangle": 0,
        "automargin": True,
    }
    if title:
        found["title"] = {"text": words(title), "standoff": 8, "font": {"size": 12}}
    return found | settings


def layout(height: int, x: dict[str, Any], y: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 46, "r": 12, "t": 8, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": f"{TOKEN}muted"},
        "hoverlabel": {
            "bgcolor": f"{TOKEN}paper",
            "bordercolor": f"{TOKEN}line",
            "font": {"family": FONT, "size": 12, "color": f"{TOKEN}ink"},
            "align": "left",
        },
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "xaxis": x,
        "yaxis": y,
    } | settings


def resolve(part: Any, theme: str = "light") -> Any:
    """A figure with every token replaced by the theme's colour, for a place that has one theme only."""
    if isinstance(part, dict):
        return {name: resolve(value, theme) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [resolve(value, theme) for value in part]
    return colour(part, theme) if isinstance(part, str) and part.startswith(TOKEN) else part


def colour(token: str, theme: str) -> str:
    name = token.removeprefix(TOKEN)
    if name.startswith("~"):
        return _mix(SCALES[theme], float(name[1:]))
    name, _, percent = name.partition("/")
    red, green, blue = _channels(THEMES[theme][name])
    return f"rgba({red},{green},{blue},{int(percent) / 100:g})" if percent else THEMES[theme][name]


def _mix(scale: Sequence[str], share: float) -> str:
    place = share * (len(scale) - 1)
    low = min(int(place), len(scale) - 2)
    mixed = [
        round(a + (b - a) * (place - low))
        for a, b in zip(_channels(scale[low]), _channels(scale[low + 1]), strict=True)
    ]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
