"""Small trial tables for the tests of the analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from study.analysis.analyse import Analysis
from study.reporting.content import telling
from study.reporting.terminal import terminal
from study.trials.provenance import Provenance
from study.trials.trial_table import normalise

Scores = Mapping[int, Sequence[float]]


def rows(scores: Scores, *, seeds: Sequence[int] | None = None, **columns: Any) -> list[dict[str, Any]]:
    """One row per depth and score; the seeds count from 1 unless told."""
    fixed = {
        "task": "rte",
        "model": "m",
        "total_layers": 4,
        "learning_rate": 1e-5,
        "train_size": "",
        "state": "",
        "metric": "quality",
    } | columns
    return [
        fixed | {"frozen_layers": depth, "seed": seed, "score": score}
        for depth, values in scores.items()
        for seed, score in zip(seeds or range(1, len(values) + 1), values, strict=False)
    ]


def numbered(runs: Sequence[Mapping[str, Any]], first: int = 0) -> list[dict[str, Any]]:
    """The rows with a trial number each."""
    return [{**row, "trial": number} for number, row in enumerate(runs, first)]


def table(*parts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return normalise(pd.DataFrame([row for part in parts for row in part]), source="test")


def words(text: str) -> str:
    """Text without the line breaks that a terminal's width puts into it."""
    return " ".join(text.split())


def render(
    analysis: Analysis,
    trials: pd.DataFrame | None = None,
    provenance: Provenance | None = None,
    *,
    width: int = 80,
) -> str:
    """What a terminal shows of an analysis."""
    return terminal(telling(analysis, trials, provenance), width)
