"""Which rows are runs: filtered, failed, diverged and unfinished ones, and the same run given twice."""

from __future__ import annotations

import numpy as np
import pytest
import worlds
from tables import numbered, render, rows, table, words
from test_operating_points import only

from objectives.contract import UsageError
from objectives.tasks.metrics import describe
from study.analysis.analyse import analyse
from study.analysis.samples import paper_keeps


def test_the_papers_filter_changes_means_and_is_counted() -> None:
    # full: 0.50 <= 0.9 x 0.80 goes, mean 0.80 instead of 0.70. 90 %: 0.72 and 0.63.
    # depth 2: zero goes, mean 0.70; depth 3: all zero stays zero.
    scores = {0: [0.8, 0.8, 0.5], 2: [0.7, 0.7, 0.0], 3: [0.0, 0.0, 0.0], 1: [0.75, 0.76, 0.77]}
    plain, filtered = analyse(table(rows(scores))), analyse(table(rows(scores)), outliers="paper")
    assert only(plain).full_score == pytest.approx(0.70)
    assert [d.counts.collapsed for d in plain.curves[0].depths] == [0, 0, 1, 0]
    assert only(filtered).full_score == pytest.approx(0.80)
    curve = filtered.curves[0]
    assert [d.score for d in curve.depths] == pytest.approx([0.80, 0.76, 0.70, 0.0])
    assert [d.counts.removed for d in curve.depths] == [1, 0, 1, 0]
    assert (plain.counts.removed, filtered.counts.removed) == (0, 2)
    assert only(filtered).trials == 3
    assert filtered.curves[0].full_runs == 2
    assert "means, intervals and probabilities are of the others" in words(render(filtered))


def test_a_run_far_below_its_fellows_has_collapsed_though_it_is_above_chance() -> None:
    # 0.034, 0.076 and 0.15 beside 0.9: chance is 0, so no run is at it.
    scores = {
        0: [0.897, 0.9, 0.903],
        1: [0.89, 0.15, 0.894],
        2: [0.88, 0.884, 0.034],
        3: [0.87, 0.076, 0.874],
        4: [0.1, 0.12, 0.11],
    }
    analysis = analyse(table(rows(scores, chance=0.0)), thresholds=[0.9])
    depths = analysis.curves[0].depths
    assert [d.counts.collapsed for d in depths] == [0, 1, 1, 1, 0]
    assert [d.success for d in depths] == pytest.approx([1, 2 / 3, 2 / 3, 2 / 3, 1])
    # Point, interval, probability and "confident" are all of the runs that learned.
    point = only(analysis)
    assert (point.frozen_layers, point.confident_frozen_layers) == (3, 3)
    assert point.relative == pytest.approx(0.872 / 0.9)
    assert point.relative_low is not None
    assert point.relative_high is not None
    assert 0.9 < point.relative_low < point.relative < point.relative_high < 1.05
    assert point.probability[3] > 0.9
    assert "33 % of the runs at this depth learned nothing" in words(render(analysis))


@pytest.mark.parametrize(("full", "chance"), [(0.85, 0.5), (0.6, 0.0)])
def test_intervals_cover_the_truth_where_runs_collapse(full: float, chance: float) -> None:
    generator = np.random.default_rng(5)
    found = [
        worlds.world(generator, "gradual", layers=6, rates=(3e-5,), full=full, chance=chance, collapse=0.05)
        for _ in range(60)
    ]
    analysis = analyse(worlds.table(found, [one.draw(generator, 5) for one in found]), draws=100)
    held = [
        d.relative_low <= truth <= d.relative_high
        for one, curve in zip(found, analysis.curves, strict=True)
        for d, truth in zip(curve.depths, one.relative, strict=True)
        if d.frozen_layers != 0 and d.relative_low is not None and d.relative_high is not None
    ]
    assert len(held) == 240
    assert sum(d.counts.collapsed for curve in analysis.curves for d in curve.depths) > 60
    assert np.mean(held) > 0.9


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
    assert (forced.trials, forced.full_trials) == (3, 3)


@pytest.mark.parametrize("metric", ["eval_loss", "MSE", "mean_squared_error", "perplexity", "error-rate"])
def test_scores_that_are_better_the_lower_need_to_know_chance(metric: str) -> None:
    with pytest.raises(UsageError, match=f"metric '{metric}' is better the lower.*needs a column chance"):
        analyse(table(rows({0: [0.3], 2: [0.7]}, metric=metric)))


@pytest.mark.parametrize("metric", ["neg_mean_squared_error", "f1", "closeness"])
def test_other_names_are_not_taken_for_errors(metric: str) -> None:
    assert describe(metric).higher_is_better
