"""Operating points recomputed by hand on small tables, and the JSON contract."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tables import rows, table

from objectives.contract import UsageError
from study import operating_points, trial_table
from study.analysis.analyse import Analysis, to_json
from study.analysis.points import OperatingPoint
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
