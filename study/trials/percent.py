"""Scores written in percent: recognised by values that their metric cannot have, and said, not changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from objectives.tasks.metrics import describe

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 1e-6
ADVICE = (
    "shares of the full quality hold, but chance and the published figures are compared as shares of 1: "
    "divide the column score by 100"
)


def looks_like_percent(metric: str, scores: Iterable[float]) -> bool:
    return _bounded(metric) and any(score > 1 + _ROUNDING for score in scores)


def warning(table: pd.DataFrame) -> str | None:
    """One line on the metrics of a table that look like percent; None where none does."""
    high = table[table["score"] > 1 + _ROUNDING].groupby("metric", sort=False)["score"].max()
    found = [f"{metric} is up to {score:.4g}" for metric, score in high.items() if _bounded(metric)]
    return f"{', '.join(found)}, which looks like percent: {ADVICE}" if found else None


def _bounded(metric: object) -> bool:
    return describe(str(metric)).high == 1
