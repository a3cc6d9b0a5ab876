"""Random tables: the answers equal a plain reading of the definition, and nothing is ever NaN."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

from study.analysis.analyse import analyse, to_json

SCORES = st.one_of(st.floats(0.5, 1), st.sampled_from([0.81, 0.9, 1.0, float("nan")]))
"""So close together that none has collapsed beside another."""
ROW = st.fixed_dictionaries(
    {
        "frozen_layers": st.integers(0, 4),
        "learning_rate": st.sampled_from([1e-5, 2e-5]),
        "seed": st.integers(1, 3),
        "score": SCORES,
        "state": st.sampled_from(["", "", "", "FAIL", "WAITING"]),
    }
)
FIXED = {"task": "rte", "model": "m", "total_layers": 4, "train_size": "", "metric": "quality"}


def plain(data: pd.DataFrame, threshold: float) -> tuple[int | None, float | None, bool]:
    """The definition, read off row by row; runs of a cell and seed with the same score are one.

    A rate is chosen by its mean times its share of runs with a score, beside which the depth's counts ten.
    """
    lost = data[(data["state"] == "COMPLETE") & data["score"].isna()]
    runs = data[(data["state"] == "COMPLETE") & data["score"].notna()].drop_duplicates()
    cells = runs.groupby(["frozen_layers", "learning_rate"])["score"].agg(["mean", "size"]).reset_index()
    place = ["frozen_layers", "learning_rate"]
    saved = set(map(tuple, runs[[*place, "seed"]].to_numpy().tolist()))
    gone = {cell for cell in map(tuple, lost[[*place, "seed"]].to_numpy().tolist()) if cell not in saved}
    diverged = Counter(cell[:2] for cell in gone)
    best: dict[int, float] = {}
    for depth, rates in cells.groupby("frozen_layers"):
        of_rate = [diverged[depth, rate] for rate in rates["learning_rate"]]
        share = rates["size"].sum() / (rates["size"].sum() + sum(of_rate))
        chosen_by = rates["mean"] * (rates["size"] + 10 * share) / (rates["size"] + of_rate + 10)
        enough = 2 * rates["size"] >= rates["size"].max()
        best[int(depth)] = rates["mean"][chosen_by[enough].idxmax()]
    rates_of = {n: set(runs[runs["frozen_layers"] == n]["learning_rate"]) for n in best}
    frozen = set().union(*(found for n, found in rates_of.items() if n != 0))
    full = cells[cells["frozen_layers"] == 0]
    if len(frozen) == 1 and len(full):
        same = full[(full["learning_rate"] == next(iter(frozen))) & (2 * full["size"] >= full["size"].max())]
        best[0] = same["mean"].iloc[0] if len(same) else best[0]
    if 0 not in best or len(best) == 1:
        return None, None, False
    passing = [depth for depth, score in best.items() if score >= threshold * best[0] - 1e-9 * best[0]]
    answer = max(passing)
    sustained = all(depth in passing for depth in best if depth < answer)
    return answer, best[answer], sustained


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(ROW, min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 1.0]))
def test_random_tables_give_the_plain_answer(found: list[dict[str, Any]], threshold: float) -> None:
    data = table([FIXED | row for row in found])
    analysis = analyse(data, thresholds=[threshold], draws=50)
    (point,) = analysis.points
    answer, score, sustained = plain(data, threshold)
    assert (point.frozen_layers, point.sustained) == (answer, sustained)
    assert point.score == (None if score is None else pytest.approx(score))
    assert not point.knows_probability or point.full_trials > 1
    shares = sum(point.probability.values()) + sum(b.probability for b in point.probability_between)
    assert shares + point.probability_undefined == pytest.approx(float(point.knows_probability))
    assert analysis.counts.failed == (data.drop_duplicates()["state"] == "FAIL").sum()
    json.dumps(to_json(analysis), allow_nan=False)
    for select, outliers, pairing in (
        ("full-model", "paper", "paired"),
        ("per-depth", "paper", "independent"),
    ):
        other = analyse(data, select=select, outliers=outliers, pairing=pairing, draws=20)  # type: ignore[arg-type]
        json.dumps(to_json(other), allow_nan=False)
