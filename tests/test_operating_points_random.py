"""Random tables: the answers equal a plain reading of the definition, and nothing is ever NaN."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

from study.analysis.analyse import analyse, to_json

SCORES = st.one_of(st.floats(-1, 1), st.sampled_from([0.0, 0.81, 0.9, 1.0, float("nan")]))
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
    """The definition, read off row by row; runs of a cell and seed with the same score are one."""
    lost = data[(data["state"] == "COMPLETE") & data["score"].isna()]
    runs = data[(data["state"] == "COMPLETE") & data["score"].notna()].drop_duplicates()
    cells = runs.groupby(["frozen_layers", "learning_rate"])["score"].agg(["mean", "size"]).reset_index()
    place = ["frozen_layers", "learning_rate"]
    saved = set(map(tuple, runs[[*place, "seed"]].to_numpy().tolist()))
    diverged = {
        cell[:2] for cell in map(tuple, lost[[*place, "seed"]].to_numpy().tolist()) if cell not in saved
    }
    best: dict[int, float] = {}
    for depth, rates in cells.groupby("frozen_layers"):
        enough = rates[2 * rates["size"] >= rates["size"].max()]
        whole = enough[[(depth, rate) not in diverged for rate in enough["learning_rate"]]]
        best[int(depth)] = (whole if len(whole) else enough)["mean"].max()
    if best.get(0, 0.0) <= 0:
        return None, None, False
    passing = [depth for depth, score in best.items() if score >= threshold * best[0] - 1e-9 * best[0]]
    answer = max(passing)
    sustained = all(depth in passing for depth in best if depth < answer)
    return answer, best[answer], sustained


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 1.0]))
def test_random_tables_give_the_plain_answer(found: list[dict[str, Any]], threshold: float) -> None:
    data = table([FIXED | row for row in found])
    analysis = analyse(data, thresholds=[threshold], draws=50)
    (point,) = analysis.points
    answer, score, sustained = plain(data, threshold)
    if analysis.curves[0].undefined is not None and "not clearly" in analysis.curves[0].undefined:
        assert (data[data["frozen_layers"] == 0]["score"] <= 0).any()
        answer, score, sustained = None, None, False
    assert (point.frozen_layers, point.sustained) == (answer, sustained)
    assert point.score == (None if score is None else pytest.approx(score))
    drawn = answer is not None and bool(point.probability)
    assert point.probability == {} or point.full_trials > 1
    assert sum(point.probability.values()) + point.probability_undefined == pytest.approx(float(drawn))
    assert analysis.counts.failed == (data.drop_duplicates()["state"] == "FAIL").sum()
    json.dumps(to_json(analysis), allow_nan=False)
    for select, outliers, pairing in (
        ("full-model", "paper", "paired"),
        ("per-depth", "paper", "independent"),
    ):
        other = analyse(data, select=select, outliers=outliers, pairing=pairing, draws=20)  # type: ignore[arg-type]
        json.dumps(to_json(other), allow_nan=False)
