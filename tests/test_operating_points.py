"""Operating points recomputed by hand on small tables, and the JSON contract."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tables import numbered, rows, table

from objectives.contract import UsageError
from study import operating_points, trial_table
from study.analysis.analyse import Analysis, to_json
from study.analysis.claims import claims
from study.analysis.points import OperatingPoint
from study.analysis.runs import lower_is_better, paper_keeps
from study.operating_points import analyse, main, render

CONTRACT = {
    "model", "task", "train_size", "metric", "threshold", "total_layers", "full_score", "frozen_layers",
    "tuned_layers", "score", "relative", "learning_rate", "trials", "confident_frozen_layers",
    "probability", "sustained",
}  # fmt: skip


def only(analysis: Analysis, threshold: float = 0.9) -> OperatingPoint:
    (point,) = [p for p in analysis.points if p.threshold == threshold]
    return point


def test_the_deepest_freeze_that_reaches_the_threshold_is_the_answer() -> None:
    # full 0.80; 90 % is 0.72, 95 % is 0.76, 99 % is 0.792
    scores = {0: [0.79, 0.81], 1: [0.80, 0.80], 2: [0.77, 0.77], 3: [0.73, 0.73], 4: [0.5, 0.5]}
    analysis = analyse(table(rows(scores)))
    answers = [(p.threshold, p.frozen_layers, p.tuned_layers, p.sustained) for p in analysis.points]
    assert answers == [(0.90, 3, 1, True), (0.95, 2, 2, True), (0.99, 1, 3, True)]
    point = only(analysis)
    assert point.full_score == pytest.approx(0.80)
    assert point.score == pytest.approx(0.73)
    assert point.relative == pytest.approx(0.9125)
    assert (point.learning_rate, point.trials, point.full_trials) == (1e-5, 2, 2)


def test_paired_probabilities_by_hand() -> None:
    # Seeds 1 and 2 drawn twice: (1,1) 1/4, both 1/2, (2,2) 1/4. Ratios of depth 2 to full:
    # (1,1): .70/.80 = .875 fails; both: .73/.80 = .9125 passes; (2,2): .76/.80 passes.
    scores = {0: [0.8, 0.8], 2: [0.70, 0.76], 4: [0.1, 0.1]}
    point = only(analyse(table(rows(scores)), draws=40_000))
    assert point.frozen_layers == 2
    assert point.probability == {0: pytest.approx(0.25, abs=0.01), 2: pytest.approx(0.75, abs=0.01)}
    assert point.confident_frozen_layers == 0


def test_pairing_uses_what_a_seed_does_to_both_arms() -> None:
    # Each run keeps exactly 92 % of the full run with its seed: certain when paired, a toss-up otherwise.
    full = [0.50, 0.60, 0.70, 0.80]
    data = table(rows({0: full, 2: [0.92 * s for s in full]}))
    paired = only(analyse(data))
    assert paired.probability == {2: 1.0}
    assert paired.confident_frozen_layers == 2
    assert paired.relative_low == pytest.approx(0.92)
    assert paired.relative_high == pytest.approx(0.92)
    apart = only(analyse(data, pairing="independent"))
    assert apart.probability[2] < 0.8
    assert apart.confident_frozen_layers == 0


def test_confidence_asks_students_test_too() -> None:
    # In every draw depth 2 keeps more than 90 % (0.72), but 0.728 - 2.92 x 0.00451 (three runs) is 0.7148.
    scores = {0: [0.8, 0.8, 0.8], 2: [0.721, 0.727, 0.736]}
    point = only(analyse(table(rows(scores))))
    assert point.probability == {2: 1.0}
    assert point.confident_frozen_layers == 0
    sure = only(analyse(table(rows(scores | {2: [0.727, 0.728, 0.729]}))))  # 0.728 - 2.92 x 0.00058
    assert sure.confident_frozen_layers == 2


def test_intervals_by_hand() -> None:
    # Mean 0.75, error 0.01/sqrt(3), t(.975, 2) = 4.30265; the full model has no spread: a share of 0.8.
    analysis = analyse(table(rows({0: [0.8, 0.8, 0.8], 2: [0.74, 0.75, 0.76]})))
    full, deep = analysis.curves[0].depths
    half = 4.30265 * 0.01 / 3**0.5
    assert (deep.score_low, deep.score_high) == (pytest.approx(0.75 - half), pytest.approx(0.75 + half))
    assert deep.relative_low == pytest.approx((0.75 - half) / 0.8)
    assert deep.relative_high == pytest.approx((0.75 + half) / 0.8)
    assert (full.relative_low, full.relative_high) == (1.0, 1.0)
    filtered = analyse(table(rows({0: [0.8, 0.8, 0.8], 2: [0.74, 0.75, 0.0]})), outliers="paper")
    assert filtered.curves[0].depths[1].score == pytest.approx(0.745)
    assert (filtered.curves[0].depths[1].score_low or 0.0) < 0  # over all three runs


def test_the_draws_keep_the_rate_where_the_full_model_alone_has_several() -> None:
    # Each rate of the full model has a good seed; the best of them in every draw would be 0.9 too often.
    search = rows({0: [0.7, 0.9]}, learning_rate=2e-5) + rows({0: [0.89, 0.7]}, learning_rate=3e-5)
    runs = rows({0: [0.8, 0.805], 2: [0.73, 0.73]}, learning_rate=1e-5)
    point = only(analyse(table(search, runs)))
    assert (point.full_score, point.frozen_layers) == (pytest.approx(0.8025), 2)
    assert point.probability == {2: 1.0}  # 0.73 is above 0.9 x 0.805
    chooses = analyse(table(search, runs, rows({2: [0.5, 0.5]}, learning_rate=2e-5)))
    assert only(chooses).probability[2] < 0.7
    assert "flatters it alone" in render(analyse(table(search, runs)))
    assert "flatters every depth" in render(chooses)
    assert "flatters" not in render(analyse(table(runs)))


def test_a_rate_with_diverged_runs_is_the_last_choice() -> None:
    nan = float("nan")
    full = rows({0: [0.9, 0.9, 0.9]}, learning_rate=3e-5)
    steady = rows({2: [0.79, 0.80, 0.795]}, learning_rate=3e-5)
    diverged = rows({2: [nan, 0.83, 0.84]}, learning_rate=5e-5)
    failed = rows({2: [nan]}, learning_rate=5e-5, state="FAIL", reason="loss is nan")
    for fast in (diverged, failed + diverged[1:]):
        analysis = analyse(table(full, steady, fast))
        assert (only(analysis).frozen_layers, only(analysis).probability) == (0, {0: 1.0})
        notes = analysis.curves[0].notes
        assert "frozen 2: rate 5e-05 was not chosen: 1 of 3 runs diverged" in notes
        assert "1 diverged runs (not in the means)" in notes
    retried = analyse(table(full, steady, failed, rows({2: [0.82, 0.83, 0.84]}, learning_rate=5e-5)))
    assert (only(retried).frozen_layers, only(retried).learning_rate) == (2, 5e-5)
    alone = analyse(table(full, steady[:1], diverged))
    assert only(alone).learning_rate == 3e-5
    alone = analyse(table(full, diverged))
    assert (only(alone).frozen_layers, only(alone).trials) == (2, 2)
    assert any("1 of 3 runs at rate 5e-05 diverged" in note for note in alone.curves[0].notes)


def test_seeds_that_contradict_themselves_are_not_paired() -> None:
    full = [0.50, 0.60, 0.70, 0.80]
    again = rows({0: [0.55]}, protocol="paper-search", learning_rate=1e-5)
    runs = rows({0: full, 2: [0.92 * s for s in full]}, protocol="paper")
    analysis = analyse(table(runs, again))
    assert not analysis.curves[0].paired
    assert only(analysis).probability == only(analyse(table(runs), pairing="independent")).probability
    assert any("resampled independently" in note for note in analysis.curves[0].notes)
    same = analyse(table(runs, rows({0: [0.50]}, protocol="paper-search")))
    assert same.curves[0].paired


def test_independent_probability_by_hand() -> None:
    # full is 1.0 or 0.8 (mean 1.0, 0.9, 0.8 with 1/4, 1/2, 1/4); depth 2 is always 0.85.
    # 90 % of it: 0.9 fails, 0.81 and 0.72 pass.
    data = table(rows({0: [1.0, 0.8], 2: [0.85, 0.85]}, seeds=[1, 2]))
    point = only(analyse(data, draws=40_000, pairing="independent"))
    assert point.probability == {0: pytest.approx(0.25, abs=0.01), 2: pytest.approx(0.75, abs=0.01)}


def test_a_tie_reaches_the_threshold_and_equal_rates_take_the_lower() -> None:
    scores = {0: [0.9, 0.9, 0.9], 3: [0.81, 0.81, 0.81]}
    data = table(rows(scores, learning_rate=2e-5), rows(scores, learning_rate=1e-5))
    point = only(analyse(data))
    assert (point.frozen_layers, point.learning_rate) == (3, 1e-5)
    assert point.probability == {3: 1.0}
    assert point.confident_frozen_layers == 3


def test_not_sustained_where_a_smaller_freeze_fails() -> None:
    point = only(analyse(table(rows({0: [0.8], 1: [0.6], 2: [0.78], 3: [0.5]}))))
    assert (point.frozen_layers, point.sustained) == (2, False)
    assert "2 to 4*" in render(analyse(table(rows({0: [0.8], 1: [0.6], 2: [0.78]}))))


def test_one_seed_claims_no_uncertainty() -> None:
    point = only(analyse(table(rows({0: [0.8], 2: [0.79], 4: [0.3]}))))
    assert point.frozen_layers == 2
    assert point.confident_frozen_layers is None
    assert point.probability == {}
    assert (point.relative_low, point.relative_high) == (None, None)
    assert any("no uncertainty" in note and "no probability" in note for note in point.notes)


def test_one_run_at_a_depth_is_never_confident() -> None:
    point = only(analyse(table(rows({0: [0.8, 0.8], 1: [0.79, 0.79], 2: [0.79]}))))
    assert (point.frozen_layers, point.confident_frozen_layers) == (2, 1)
    assert any("one run only at frozen 2" in note for note in point.notes)


def test_one_run_of_the_full_model_makes_no_depth_confident() -> None:
    point = only(analyse(table(rows({0: [0.8], 2: [0.79, 0.78, 0.79]}))))
    assert (point.frozen_layers, point.confident_frozen_layers, point.relative_low) == (2, None, None)
    assert any("one run of the full model" in note for note in point.notes)


def test_a_missing_full_model_is_said_not_invented() -> None:
    analysis = analyse(table(rows({1: [0.8, 0.8], 2: [0.7, 0.7]})))
    point = only(analysis)
    assert (point.full_score, point.frozen_layers, point.relative, point.probability) == (
        None,
        None,
        None,
        {},
    )
    assert not point.sustained
    assert "frozen_layers 0" in point.notes[0]
    assert [d.score for d in analysis.curves[0].depths] == pytest.approx([0.8, 0.7])
    assert analysis.models[0].tuned_layers is None
    assert "rte" in analysis.models[0].left_out
    assert "not in the table" in render(analysis)


@pytest.mark.parametrize("full", [[0.0, 0.0], [-0.1, 0.05]])
def test_a_full_score_of_zero_or_less_has_no_ratio(full: list[float]) -> None:
    analysis = analyse(table(rows({0: full, 2: [0.3, 0.3]}, task="stsb")))
    point = only(analysis)
    assert point.full_score == pytest.approx(np.mean(full))
    assert (point.frozen_layers, point.relative, point.confident_frozen_layers) == (None, None, None)
    assert "a ratio to it means nothing" in point.notes[0]
    json.dumps(to_json(analysis), allow_nan=False)


def test_negative_scores_fail_and_draws_without_a_ratio_are_counted() -> None:
    # The full mean is below zero where all four draws are of seed 1 (1/256), although -0.3 is above it.
    scores = {0: [-0.4, 0.8, 0.8, 0.9], 2: [-0.3, -0.4, -0.4, -0.4]}
    point = only(analyse(table(rows(scores)), draws=40_000))
    assert (point.frozen_layers, point.relative) == (None, None)  # Student: 0.525 - 2.353 x 0.309 < 0
    scores[0] = [-0.1, 0.8, 0.8, 0.9]  # 0.6 - 2.353 x 0.235 > 0
    point = only(analyse(table(rows(scores)), draws=40_000))
    assert (point.frozen_layers, point.relative) == (0, 1.0)
    assert point.probability_undefined == pytest.approx(1 / 256, abs=0.002)
    assert point.probability == {0: pytest.approx(255 / 256, abs=0.002)}


@pytest.mark.parametrize(
    "full",
    [
        [0.0, -0.01, 0.06],  # in three draws of ten the mean is not above zero
        [0.005, 0.01, 0.06],  # never in a draw, but Student's bound is below: 0.025 - 2.92 x 0.0176
    ],
)
def test_a_full_score_not_clearly_above_zero_has_no_ratio(full: list[float]) -> None:
    data = table(rows({0: full, 2: [0.02, 0.01, 0.02]}, task="cola", metric="matthews_correlation"))
    analysis = analyse(data)
    point = only(analysis)
    assert (point.frozen_layers, point.relative, point.probability) == (None, None, {})
    assert "not clearly above zero" in point.notes[0]
    assert analysis.curves[0].depths[1].relative is None


def test_a_ratio_without_bounds_is_an_answer_without_interval() -> None:
    # 0.7 +- 12.706 x 0.2 reaches below zero, where no accuracy goes
    analysis = analyse(table(rows({0: [0.5, 0.9], 2: [0.6, 0.85]}, metric="accuracy")))
    point = only(analysis)
    assert (point.frozen_layers, point.relative) == (2, pytest.approx(0.725 / 0.7))
    assert (point.relative_low, point.relative_high, point.confident_frozen_layers) == (None, None, 0)
    assert any("no interval" in note and "frozen 2" in note for note in analysis.curves[0].notes)


def test_all_failed_says_so() -> None:
    failed = rows({0: [0.0], 2: [0.0]}, state="FAIL", reason="out of memory")
    for row in failed:
        row["score"] = None
    analysis = analyse(table(failed))
    point = only(analysis)
    assert (point.frozen_layers, point.full_score, point.trials) == (None, None, 0)
    assert "no complete run" in point.notes[0]
    assert (analysis.counts.failed, analysis.counts.failed_cells, analysis.counts.complete) == (2, 2, 0)
    assert "2 failed" in render(analysis)


def test_a_single_depth_is_its_own_answer_and_says_what_it_cannot_know() -> None:
    point = only(analyse(table(rows({0: [0.8, 0.82]}))))
    assert (point.frozen_layers, point.tuned_layers, point.relative) == (0, 4, 1.0)
    assert "frozen 1 to 4 was not measured" in point.notes[-1]
    assert point.deepest_frozen_layers == 4


def test_embeddings_alone_freeze_less_than_any_layer_and_tune_every_layer() -> None:
    analysis = analyse(table(rows({-1: [0.79, 0.79], 0: [0.8, 0.8], 1: [0.5, 0.5]})))
    point = only(analysis)
    assert (point.frozen_layers, point.tuned_layers, point.sustained) == (-1, 4, True)
    assert [d.frozen_layers for d in analysis.curves[0].depths] == [0, -1, 1]


def test_per_depth_and_full_model_rates() -> None:
    slow = rows({0: [0.80, 0.80], 2: [0.60, 0.60]}, learning_rate=1e-5)
    fast = rows({0: [0.78, 0.78], 2: [0.74, 0.74]}, learning_rate=5e-5)
    per_depth = only(analyse(table(slow, fast)))
    assert (per_depth.frozen_layers, per_depth.learning_rate) == (2, 5e-5)
    assert per_depth.relative == pytest.approx(0.74 / 0.80)
    full_model = only(analyse(table(slow, fast), select="full-model"))
    assert (full_model.frozen_layers, full_model.learning_rate) == (0, 1e-5)


def test_the_full_models_rate_is_one_that_other_depths_have() -> None:
    search = rows({0: [0.85, 0.85]}, learning_rate=2e-5, protocol="paper-search")
    best = rows({0: [0.80, 0.80], 2: [0.73, 0.73]}, learning_rate=3e-5, protocol="paper")
    analysis = analyse(table(search, best), select="full-model")
    point = only(analysis)
    assert (point.full_score, point.frozen_layers) == (pytest.approx(0.80), 2)
    assert any("2e-05, was not run at other depths" in note for note in analysis.curves[0].notes)


def test_search_runs_choose_the_rate_and_stay_out_of_the_score() -> None:
    search = rows({0: [0.90, 0.90]}, learning_rate=1e-5, protocol="paper-search")
    search += rows({0: [0.70, 0.70]}, learning_rate=2e-5, protocol="paper-search")
    runs = rows({0: [0.80, 0.80], 2: [0.75, 0.75]}, learning_rate=1e-5, protocol="paper")
    runs += rows({0: [0.86, 0.86]}, learning_rate=2e-5, protocol="paper")
    analysis = analyse(table(search, runs))
    assert analysis.curves[0].selected_by == "learning-rate search"
    assert only(analysis).full_score == pytest.approx(0.80)


def test_selection_scores_choose_where_the_table_has_them() -> None:
    low = rows({0: [0.80, 0.80], 2: [0.70, 0.70]}, learning_rate=1e-5, selection_score=0.9)
    high = rows({0: [0.90, 0.90], 2: [0.71, 0.71]}, learning_rate=2e-5, selection_score=0.5)
    analysis = analyse(table(low, high))
    assert analysis.curves[0].selected_by == "selection score"
    assert only(analysis).full_score == pytest.approx(0.80)
    assert "flatters" not in render(analysis)
    half = [dict(row, selection_score=None) for row in high]
    without = analyse(table(low, half))
    assert only(without).full_score == pytest.approx(0.90)
    assert any("incomplete" in note for note in without.curves[0].notes)
    assert "flatters" in render(without)


def test_one_lucky_seed_of_a_race_does_not_choose_the_rate() -> None:
    raced = rows({0: [0.95]}, learning_rate=1e-5)
    kept = rows({0: [0.80, 0.80, 0.80, 0.80], 2: [0.75] * 4}, learning_rate=2e-5)
    analysis = analyse(table(raced, kept))
    assert only(analysis).full_score == pytest.approx(0.80)
    assert any("1e-05 was not chosen" in note for note in analysis.curves[0].notes)


def test_rates_at_the_edge_of_the_grid_are_flagged() -> None:
    parts = [
        rows({0: [full], 1: [one], 2: [two]}, learning_rate=rate)
        for rate, full, one, two in ((1e-5, 0.9, 0.7, 0.7), (2e-5, 0.8, 0.8, 0.7), (3e-5, 0.7, 0.7, 0.75))
    ]
    analysis = analyse(table(*parts, rows({3: [0.6]}, learning_rate=1e-5)))
    edges = {d.frozen_layers: d.rate_edge for d in analysis.curves[0].depths}
    assert edges == {0: "lowest", 1: None, 2: "highest", 3: None}
    assert "edge of the grid at frozen 0 (lowest), 2 (highest)" in render(analysis)


def test_rates_that_differ_by_dust_are_one() -> None:
    data = table(
        rows({0: [0.8]}, learning_rate=3e-5), rows({0: [0.9]}, seeds=[2], learning_rate=3e-5 + 1e-20)
    )
    (curve,) = analyse(data).curves
    assert curve.depths[0].scores == (0.8, 0.9)


def test_the_papers_filter_changes_means_and_is_counted_but_not_the_draws() -> None:
    # full: 0.50 <= 0.9 x 0.80 goes, mean 0.80 instead of 0.70. 90 %: 0.72 and 0.63.
    # depth 2: zero goes, mean 0.70; depth 3: all zero stays zero.
    scores = {0: [0.8, 0.8, 0.5], 2: [0.7, 0.7, 0.0], 3: [0.0, 0.0, 0.0], 1: [0.75, 0.76, 0.77]}
    plain, filtered = analyse(table(rows(scores))), analyse(table(rows(scores)), outliers="paper")
    assert only(plain).full_score == pytest.approx(0.70)
    assert only(filtered).full_score == pytest.approx(0.80)
    curve = filtered.curves[0]
    assert [d.score for d in curve.depths] == pytest.approx([0.80, 0.76, 0.70, 0.0])
    assert [d.counts.removed for d in curve.depths] == [1, 0, 1, 0]
    assert (plain.counts.removed, filtered.counts.removed) == (0, 2)
    assert only(filtered).trials == 3
    assert filtered.curves[0].full_runs == 2
    assert only(plain).probability == only(filtered).probability
    assert "those the filter removed included" in render(filtered)


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([1.0, 0.9, 0.901, 0.0], [True, False, True, False]),
        ([-0.1, -0.5, 0.0], [True, True, False]),
        ([0.0, 0.0], [True, True]),
        ([0.4], [True]),
    ],
)
def test_what_the_papers_filter_keeps(scores: list[float], kept: list[bool]) -> None:
    assert paper_keeps(np.array(scores)).tolist() == kept


def test_failed_diverged_and_unfinished_are_counted() -> None:
    good = rows({0: [0.9, 0.9], 2: [0.88, 0.527]}, metric="accuracy")
    diverged = rows({0: [float("nan")]}, seeds=[3], metric="accuracy")
    failed = rows({0: [float("nan")]}, seeds=[4], state="FAIL", reason="loss is nan", metric="")
    retried = rows({0: [float("nan")]}, seeds=[1], state="FAIL", reason="worker lost", metric="")
    waiting = rows({2: [float("nan")]}, seeds=[3], state="WAITING", metric="")
    analysis = analyse(table(good, diverged, failed, retried, waiting))
    counts = analysis.counts
    assert (counts.complete, counts.failed, counts.failed_cells) == (5, 2, 1)
    assert (counts.diverged, counts.unfinished) == (2, 1)
    assert counts.collapsed == 1  # 0.527 is RTE's majority class
    assert only(analysis).full_trials == 2
    assert len(analysis.curves) == 1


def test_identical_rows_count_once() -> None:
    runs = rows({0: [0.8, 0.9], 2: [0.7, 0.7]})
    analysis = analyse(table(runs, runs))
    assert only(analysis).full_trials == 2
    assert any("4 rows repeat" in note for note in analysis.curves[0].notes)


def test_a_study_and_its_own_export_are_the_same_runs() -> None:
    stored = numbered(rows({0: [0.8, 0.9], 2: [0.8, 0.85]}, study="a", protocol="grid"))
    failed = numbered(rows({2: [float("nan")] * 2}, seeds=[3, 3], study="a", state="FAIL"), first=10)
    going = numbered(rows({2: [float("nan")]}, seeds=[4], study="a", state="RUNNING"), first=20)
    ended = numbered(rows({2: [0.81]}, seeds=[4], study="a", protocol="grid"), first=20)
    export = [dict(row, host="elsewhere") for row in (*stored, *failed, *going)]
    analysis = analyse(table(stored, failed, ended, export))
    counts = analysis.counts
    assert (only(analysis).full_trials, only(analysis).trials) == (2, 3)
    assert (counts.complete, counts.failed, counts.unfinished) == (5, 2, 0)
    for trial in (None, 99):
        other = [dict(row, trial=trial) for row in export[:4]]
        assert analyse(table(stored, other)).counts.complete == 4
    assert analyse(table(stored, [dict(row, study="b") for row in export])).counts.complete == 8


def test_one_seed_under_two_trial_numbers_claims_no_uncertainty() -> None:
    runs = rows({0: [0.9], 2: [0.82]})
    point = only(analyse(table(numbered(runs), numbered(runs, first=7))))
    assert (point.trials, point.relative_low, point.confident_frozen_layers) == (1, None, None)


def test_where_seeds_contradict_themselves_equal_scores_are_two_runs() -> None:
    # The seed was not recorded: every run says 1, and two of three score alike.
    runs = rows({0: [0.8, 0.8, 0.9], 2: [0.75, 0.75, 0.8]}, seeds=[1, 1, 1])
    stored = numbered(runs)
    assert only(analyse(table(stored))).full_trials == 3
    assert only(analyse(table(stored, [dict(row, host="b") for row in stored]))).full_trials == 3
    search = [dict(row, protocol="x-search") for row in runs]
    assert analyse(table(numbered(runs), numbered(search))).counts.complete == 12
    forced = only(analyse(table(stored), pairing="paired"))
    assert (forced.probability, forced.confident_frozen_layers) == ({}, None)


def test_chance_corrected_by_hand_and_from_the_table() -> None:
    # MRPC F1: majority 558/687 = 0.81223. (0.85 - c) / (0.90 - c) = 0.430; raw 0.944
    mrpc = analyse(table(rows({0: [0.9], 2: [0.85]}, task="mrpc", metric="f1")))
    c = 558 / 687
    assert mrpc.curves[0].depths[1].chance_corrected == pytest.approx((0.85 - c) / (0.9 - c))
    point = only(mrpc)
    assert (point.frozen_layers, point.chance) == (2, pytest.approx(c))
    assert point.chance_corrected is not None
    assert point.chance_corrected.frozen_layers == 0
    qqp = only(analyse(table(rows({0: [0.9]}, task="qqp", metric="f1"))))
    assert qqp.chance == pytest.approx(0.5382, abs=1e-4)  # precision 0.3682 (14885 of 40430), recall 1
    own = only(analyse(table(rows({0: [0.9], 2: [0.85]}, task="mrpc", metric="f1", chance=0.4))))
    assert own.chance_corrected is not None
    assert own.chance_corrected.frozen_layers == 2
    assert own.chance_corrected.relative == pytest.approx(0.45 / 0.5)
    unknown = only(analyse(table(rows({0: [0.9], 2: [0.85]}, task="mine"))))
    assert (unknown.chance, unknown.chance_corrected) == (None, None)
    below = only(analyse(table(rows({0: [0.8], 2: [0.79]}, task="mrpc", metric="f1"))))
    assert below.chance_corrected is None
    assert below.frozen_layers == 2


def test_a_models_number_is_the_largest_need_without_cola() -> None:
    data = table(
        rows({0: [0.8, 0.8], 1: [0.3, 0.3]}, task="CoLA"),
        rows({0: [0.5, 0.5], 1: [0.1, 0.1]}, task="wnli"),
        rows({0: [0.8, 0.8], 2: [0.76, 0.76], 3: [0.1, 0.1]}, task="rte"),
        rows({0: [0.8, 0.8], 2: [0.73, 0.73], 3: [0.1, 0.1]}, task="mrpc"),
        rows({0: [0.8, 0.8], 3: [0.73, 0.73]}, task="sst2"),
    )
    model = analyse(data, thresholds=[0.9]).models[0]
    assert (model.tuned_layers, model.limiting_task) == (2, "mrpc")
    assert model.limiting_tasks == ("mrpc", "rte")
    assert (model.excluded, list(model.left_out)) == (("CoLA",), ["wnli"])
    assert model.probability == {2: pytest.approx(1.0)}


def test_a_task_that_was_not_followed_deep_enough_does_not_set_a_models_number() -> None:
    known = rows({0: [0.8, 0.8], 2: [0.79, 0.79], 3: [0.3, 0.3]}, task="rte")
    full_only = rows({0: [0.8, 0.8]}, task="qnli")
    shallow = rows({0: [0.8, 0.8], 1: [0.79, 0.79]}, task="qqp")
    harmless = rows({0: [0.8, 0.8], 3: [0.79, 0.79]}, task="mnli")
    model = analyse(table(known, full_only, shallow, harmless), thresholds=[0.9]).models[0]
    assert (model.tuned_layers, model.limiting_tasks) == (2, ("rte",))
    assert model.left_out == {
        "qnli": "only the full model was measured",
        "qqp": "it needs 3 tuned layers or fewer: nothing deeper was measured",
    }
    assert (model.at_most_tuned_layers, model.at_most_task, model.probability) == (3, "qqp", {})
    said = render(analyse(table(known, full_only, shallow, harmless), thresholds=[0.9]))
    assert "m: tune 2 to 3 of 4 layers, limited by rte (without qnli); qqp may need up to 3" in said
    settled = analyse(table(known, full_only, harmless), thresholds=[0.9]).models[0]
    assert (settled.at_most_tuned_layers, settled.at_most_task) == (None, None)
    alone = analyse(table(shallow), thresholds=[0.9])
    assert (alone.models[0].tuned_layers, alone.points[0].open_ended) == (3, True)
    assert analyse(table(full_only), thresholds=[0.9]).models[0].tuned_layers is None


def test_a_lost_cell_does_not_change_the_full_models_rate() -> None:
    best = rows({0: [0.80, 0.80], 1: [0.79, 0.79], 3: [0.70, 0.70]}, learning_rate=1e-5)
    other = rows({0: [0.70, 0.70], 1: [0.69, 0.69], 2: [0.69, 0.69], 3: [0.69, 0.69]}, learning_rate=2e-5)
    analysis = analyse(table(best, other), select="full-model")
    point = only(analysis)
    assert (point.learning_rate, point.frozen_layers) == (1e-5, 1)
    lost = analysis.curves[0].at(2)
    assert lost is not None
    assert (lost.score, lost.relative) == (None, None)
    assert "frozen 2 was not run at the full model's rate 1e-05" in analysis.curves[0].notes
    assert "frozen 2 was not measured: at 0.9 the answer could be as deep as 2" in point.notes


def test_a_models_probability_is_that_of_the_largest_of_its_tasks() -> None:
    # Each task: 4 - 2 = 2 tuned with 3/4, all 4 with 1/4 (as in the paired test above).
    parts = [rows({0: [0.8, 0.8], 2: [0.70, 0.76]}, task=task) for task in ("rte", "sst2")]
    model = analyse(table(*parts), thresholds=[0.9], draws=40_000).models[0]
    assert model.probability == {2: pytest.approx(9 / 16, abs=0.015), 4: pytest.approx(7 / 16, abs=0.015)}


def test_train_sizes_metrics_and_models_are_kept_apart() -> None:
    data = table(
        rows({0: [0.8], 2: [0.79]}, train_size=100),
        rows({0: [0.9], 2: [0.5]}, train_size=""),
        rows({0: [0.7], 2: [0.69]}, metric="other"),
        rows({0: [0.6], 2: [0.1]}, model="n"),
    )
    analysis = analyse(data, thresholds=[0.9])
    keys = [(p.model, p.train_size, p.metric, p.frozen_layers) for p in analysis.points]
    assert keys == [
        ("m", 100, "quality", 2),
        ("m", None, "other", 2),
        ("m", None, "quality", 0),
        ("n", None, "quality", 0),
    ]
    assert [(m.model, m.train_size, m.tuned_layers) for m in analysis.models] == [
        ("m", 100, 2),
        ("m", None, 4),
        ("n", None, 4),
    ]
    assert "train_size" in render(analysis)


def test_studies_of_the_same_task_are_never_pooled() -> None:
    grid = rows({0: [0.8, 0.8], 2: [0.79, 0.79]}, study="a", protocol="grid", trial=1)
    adaptive = rows({0: [0.6, 0.6], 2: [0.1, 0.1]}, study="b", protocol="adaptive", trial=1)
    analysis = analyse(table(grid, adaptive), thresholds=[0.9])
    assert [(p.study, p.full_score, p.frozen_layers, p.full_trials) for p in analysis.points] == [
        ("a", 0.8, 2, 2),
        ("b", 0.6, 0, 2),
    ]
    assert [(m.protocol, m.tuned_layers) for m in analysis.models] == [("grid", 2), ("adaptive", 4)]
    assert "m (adaptive): tune 3 to 4 of 4" in render(analysis)


def test_a_study_without_answer_does_not_silence_another_of_the_same_task() -> None:
    good = rows({0: [0.8, 0.8], 2: [0.79, 0.79], 3: [0.3, 0.3]}, study="a", protocol="grid")
    bad = rows({2: [0.79, 0.79]}, study="b", protocol="grid")
    analysis = analyse(table(good, bad), thresholds=[0.9])
    (model,) = analysis.models
    assert (model.tuned_layers, model.limiting_task) == (2, "rte")
    assert list(model.left_out) == ["rte (study b)"]
    other = rows({2: [0.79, 0.79]}, study="a", protocol="grid", metric="f1")
    assert list(analyse(table(good, other)).models[0].left_out) == ["rte (f1)"]


@pytest.mark.parametrize("task", ["rte", "sst2"])
def test_two_layer_counts_for_one_model_are_refused(task: str) -> None:
    data = table(rows({0: [0.8]}), rows({2: [0.8]}, total_layers=12, task=task))
    with pytest.raises(UsageError, match="total_layers 4 and 12"):
        analyse(data)


@pytest.mark.parametrize("metric", ["eval_loss", "MSE", "mean_squared_error", "perplexity", "error-rate"])
def test_scores_that_are_better_the_lower_are_refused(metric: str) -> None:
    with pytest.raises(UsageError, match=f"metric '{metric}'.*higher is better"):
        analyse(table(rows({0: [0.3], 2: [0.7]}, metric=metric)))


@pytest.mark.parametrize("metric", ["neg_mean_squared_error", "f1", "closeness"])
def test_other_names_are_not_taken_for_errors(metric: str) -> None:
    assert not lower_is_better(metric)


def test_probabilities_of_few_runs_carry_a_caveat() -> None:
    few, many = ({0: [0.8] * n, 2: [0.79] * n} for n in (9, 10))
    assert "overconfident" in render(analyse(table(rows(few))))
    assert analyse(table(rows(many))).overconfident is None
    assert analyse(table(rows({0: [0.8], 2: [0.79]}))).overconfident is None  # no probability at all


def test_a_demo_says_demo() -> None:
    assert "DEMO" in render(analyse(table(rows({0: [0.8], 2: [0.79]}, demo=True))))
    assert "demo" not in render(analyse(table(rows({0: [0.8], 2: [0.79]}, demo=False)))).lower()


def test_the_json_holds_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "trials.csv", tmp_path / "out.json"
    data = table(rows({0: [0.8, 0.82], 2: [0.79, 0.78], 4: [0.3, 0.4]}), rows({1: [0.5]}, task="sst2"))
    data.drop(columns=[trial_table.ORIGIN]).to_csv(source, index=False)
    assert main([str(source), "--json", str(out), "--thresholds", "0.9,0.5", "--draws", "100"]) == 0
    written = json.loads(out.read_text())
    assert {"points", "models"} <= set(written)
    assert [p["threshold"] for p in written["points"]] == [0.9, 0.5, 0.9, 0.5]
    for point in written["points"]:
        assert set(point) >= CONTRACT
    known, _, unknown, _ = written["points"]
    assert known["probability"] == {"2": 1.0}
    assert (known["train_size"], known["frozen_layers"], known["tuned_layers"]) == (None, 2, 2)
    assert unknown["frozen_layers"] is None
    assert "not in the table" in unknown["note"]
    assert written["models"][0] | {"excluded": []} == written["models"][0]
    assert {"model", "threshold", "tuned_layers", "limiting_task", "excluded"} <= set(written["models"][0])
    assert "m: tune 1 to 2 of 4 layers, limited by rte" in capsys.readouterr().out
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("bad", ["90", "0.9,x", "0", "-0.5"])
def test_a_bad_threshold_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="thresholds"):
        main(["trials.csv", f"--thresholds={bad}"])


def test_an_unwritable_json_path_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "trials.csv"
    table(rows({0: [0.8]})).to_csv(source, index=False)
    with pytest.raises(UsageError, match="cannot be written"):
        main([str(source), "--json", str(tmp_path / "absent" / "out.json")])


def test_help_is_instant_and_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert operating_points.EXAMPLES.strip() in capsys.readouterr().out


REFERENCE = os.environ.get("ELSA_REFERENCE_TABLE")


@pytest.mark.skipif(not REFERENCE, reason="ELSA_REFERENCE_TABLE does not name the paper's released logs")
def test_the_papers_logs_give_the_papers_answers() -> None:
    data = trial_table.load([str(REFERENCE)])
    filtered = analyse(data, select="full-model", outliers="paper", thresholds=[0.9])
    plain = analyse(data, select="full-model", thresholds=[0.9])
    assert {m.model: (m.tuned_layers, m.limiting_task) for m in filtered.models} == {
        "bert-base": (3, "rte"),
        "roberta-base": (5, "rte"),
    }
    assert {m.model: m.tuned_layers for m in plain.models} == {"bert-base": 3, "roberta-base": 4}
    for analysis in (filtered, plain):
        point = analysis.point("bert-base", "rte", 0.9)
        assert point is not None
        assert {12 - frozen: p for frozen, p in point.probability.items() if p > 0.1} == {
            3: pytest.approx(0.54, abs=0.04),
            2: pytest.approx(0.30, abs=0.04),
            4: pytest.approx(0.14, abs=0.04),
        }


def test_a_chance_that_is_assumed_is_said_to_be() -> None:
    scores = {0: [0.9, 0.9], 4: [0.8, 0.8]}
    assumed = analyse(table(rows(scores, task="mrpc", metric="f1")))
    assert any("no chance is recorded" in note for note in assumed.curves[0].notes)
    recorded = analyse(table(rows(scores, task="mrpc", metric="f1", chance=0.62)))
    assert recorded.curves[0].chance == 0.62
    assert not any("no chance is recorded" in note for note in recorded.curves[0].notes)


def test_a_rate_with_a_diverged_run_stands_if_it_is_far_better() -> None:
    good, bad = rows({0: [0.8, 0.8, 0.81, 0.8]}, learning_rate=5e-5), rows({0: [0.6] * 5}, learning_rate=1e-5)
    lost = rows({0: [float("nan")]}, learning_rate=5e-5, seeds=[9])
    rest = rows({2: [0.68] * 5}, learning_rate=1e-5) + rows({2: [0.66] * 5}, learning_rate=5e-5)
    point = only(analyse(table(good + bad + lost + rest)))
    assert point.full_score == pytest.approx(0.8025)
    assert point.frozen_layers == 0


def test_freezes_at_one_rate_are_compared_with_the_full_model_at_that_rate() -> None:
    searched = rows({0: [0.8, 0.8, 0.8]}, learning_rate=5e-5) + rows({0: [0.78] * 4}, learning_rate=1e-5)
    lost = rows({0: [float("nan")]}, learning_rate=5e-5, seeds=[9])
    point = only(analyse(table(searched + lost + rows({2: [0.71] * 4}, learning_rate=5e-5))))
    assert point.full_score == pytest.approx(0.8)
    assert point.frozen_layers == 0


def test_a_models_number_between_unmeasured_depths_is_a_range_and_no_disagreement() -> None:
    scores = {0: [0.8, 0.8, 0.81], 6: [0.79, 0.8, 0.8], 12: [0.4, 0.4, 0.41]}
    tasks = ("mrpc", "rte", "sst2", "stsb", "qnli", "qqp", "mnli")
    found = analyse(
        table([r for t in tasks for r in rows(scores, task=t, model="bert-base", total_layers=12)]),
        thresholds=(0.9,),
    )
    (model,) = found.models
    assert (model.tuned_layers, model.at_least_tuned_layers) == (6, 1)
    assert "tune 1 to 6 of 12 layers" in render(found)
    claim = next(c for c in claims(found) if "tuned layers" in c.claim)
    assert (claim.verdict, claim.because) == ("cannot tell", "it lies between the depths that were measured")
