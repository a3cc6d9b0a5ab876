"""Metrics: their values beside scikit-learn's and SciPy's, direction, chance, and shares of quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as theirs
from tables import rows, table

from objectives.contract import UsageError
from objectives.tasks import metrics
from objectives.tasks.definition import Task, get_task
from objectives.tasks.metrics import METRICS, describe, display_name
from study.analysis.analyse import Analysis, analyse
from study.analysis.points import OperatingPoint
from study.reporting.content import document, telling
from study.reporting.text import markdown

DRAW = np.random.default_rng(7)
LABELS = DRAW.integers(0, 4, 200)
LOGITS = DRAW.normal(size=(200, 4)) + 2 * np.eye(4)[LABELS]
MANY = (DRAW.random((150, 5)) < [0.5, 0.3, 0.2, 0.1, 0.05]).astype(np.int64)
MANY_LOGITS = DRAW.normal(size=(150, 5)) + 2 * MANY
NUMBERS = DRAW.normal(50, 20, 100)
PREDICTED = NUMBERS + DRAW.normal(0, 10, 100)


def test_values_of_classes_are_scikit_learns() -> None:
    answers = LOGITS.argmax(axis=1)
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    wanted = {
        "accuracy": theirs.accuracy_score(LABELS, answers),
        "balanced_accuracy": theirs.balanced_accuracy_score(LABELS, answers),
        "macro_f1": theirs.f1_score(LABELS, answers, average="macro"),
        "micro_f1": theirs.f1_score(LABELS, answers, average="micro"),
        "weighted_f1": theirs.f1_score(LABELS, answers, average="weighted"),
        "matthews_correlation": theirs.matthews_corrcoef(LABELS, answers),
        "roc_auc": theirs.roc_auc_score(LABELS, shares, multi_class="ovr"),
        "average_precision": theirs.average_precision_score(np.eye(4)[LABELS], shares),
    }
    for name, value in wanted.items():
        assert METRICS[name](LABELS, LOGITS) == pytest.approx(value), name


def test_values_of_two_classes_are_those_of_the_second() -> None:
    labels, logits = LABELS % 2, LOGITS[:, :2]
    margin = logits[:, 1] - logits[:, 0]
    assert METRICS["f1"](labels, logits) == pytest.approx(theirs.f1_score(labels, margin > 0))
    assert METRICS["roc_auc"](labels, logits) == pytest.approx(theirs.roc_auc_score(labels, margin))
    assert METRICS["average_precision"](labels, logits) == pytest.approx(
        theirs.average_precision_score(labels, margin)
    )


def test_values_of_several_labels_are_scikit_learns() -> None:
    answers = MANY_LOGITS > 0
    wanted = {
        "accuracy": theirs.accuracy_score(MANY, answers),
        "macro_f1": theirs.f1_score(MANY, answers, average="macro"),
        "micro_f1": theirs.f1_score(MANY, answers, average="micro"),
        "weighted_f1": theirs.f1_score(MANY, answers, average="weighted"),
        "roc_auc": theirs.roc_auc_score(MANY, MANY_LOGITS),
        "average_precision": theirs.average_precision_score(MANY, MANY_LOGITS),
    }
    for name, value in wanted.items():
        assert METRICS[name](MANY, MANY_LOGITS) == pytest.approx(value), name


def test_values_of_numbers_are_scipys_and_scikit_learns() -> None:
    wanted = {
        "spearman": stats.spearmanr(NUMBERS, PREDICTED)[0],
        "pearson": stats.pearsonr(NUMBERS, PREDICTED)[0],
        "mae": theirs.mean_absolute_error(NUMBERS, PREDICTED),
        "rmse": theirs.root_mean_squared_error(NUMBERS, PREDICTED),
    }
    for name, value in wanted.items():
        assert METRICS[name](NUMBERS, PREDICTED[:, None]) == pytest.approx(value), name


def constants(kind: str) -> tuple[Any, list[Any]]:
    """Labels, and every constant answer to them."""
    if kind == "classes":
        return LABELS, [np.tile(np.eye(4)[c], (200, 1)) for c in range(4)]
    if kind == "multi-label":
        sets = [[(n >> i) & 1 for i in range(5)] for n in range(32)]
        return MANY, [np.tile(np.array(chosen) * 2.0 - 1, (150, 1)) for chosen in sets]
    return NUMBERS, [np.full(100, value) for value in np.linspace(0, 100, 401)]


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, m.name) for m in METRICS.values() for kind in m.kinds if m.name != "f1"]
)
def test_chance_is_the_best_that_any_constant_answer_scores(kind: str, name: str) -> None:
    metric = METRICS[name]
    labels, answers = constants(kind)
    scores = [metric(labels, outputs) for outputs in answers]
    best = max(scores) if metric.higher_is_better else min(scores)
    assert metric.chance(labels) == pytest.approx(best, rel=1e-3)
    assert metric.low <= best <= metric.high


def test_the_chance_of_f1_is_to_say_yes_always() -> None:
    assert METRICS["f1"].chance(np.array([1] * 3 + [0] * 7)) == pytest.approx(2 * 0.3 / 1.3)


def test_a_label_that_no_example_has_costs_no_score() -> None:
    labels = np.array([0, 0, 1, 1])
    right = np.eye(3)[labels]
    assert METRICS["macro_f1"](labels, right) == METRICS["balanced_accuracy"](labels, right) == 1.0
    assert METRICS["roc_auc"](np.zeros(4, dtype=int), right) == 0.5


def test_the_quality_of_an_error_is_what_it_takes_off_the_error_at_chance() -> None:
    rmse, accuracy = METRICS["rmse"], METRICS["accuracy"]
    assert rmse.quality(3.0, 10.0) == 7.0
    assert rmse.score(7.0, 10.0) == 3.0
    assert rmse.relative(3.7, 3.0, 10.0) == pytest.approx(0.9)
    assert rmse.relative(9.0, 10.0, 10.0) is None
    assert rmse.better(1.0, 2.0)
    assert accuracy.quality(0.8, 0.5) == 0.8
    assert accuracy.relative(0.72, 0.8, 0.5) == pytest.approx(0.9)
    with pytest.raises(UsageError, match="needed as chance"):
        rmse.quality(3.0, None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("f1", "F1"),
        ("mcc", "Matthews correlation"),
        ("accuracy_mismatched", "accuracy, mismatched"),
        ("test_macro_f1", "test macro F1"),
        ("my_own_score", "my own score"),
    ],
)
def test_metrics_are_shown_as_people_write_them(name: str, shown: str) -> None:
    assert display_name(name) == shown


def test_the_direction_of_any_metric_is_known() -> None:
    lower = [
        name
        for name in (*METRICS, "eval_loss", "neg_mae", "test_rmse")
        if not describe(name).higher_is_better
    ]
    assert lower == ["mae", "rmse", "eval_loss", "test_rmse"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["acuracy"], "unknown metric 'acuracy': did you mean accuracy"),
        (["rmse"], "metric rmse is not for classes: choose from accuracy"),
        (["f1"], "metric f1 is for two classes, and three has 3: use macro_f1"),
        ([], "has no metric"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(names: list[str], message: str) -> None:
    task = Task(name="three", text=("text",), labels=("a", "b", "c"), metrics=("accuracy",))
    with pytest.raises(UsageError, match=message):
        metrics.check(task, names)


def test_a_metric_has_the_names_of_other_software() -> None:
    task = Task(name="two", text=("text",), labels=("a", "b"), metrics=("accuracy",))
    assert metrics.check(task, ["mcc", "AUC"]) == ("matthews_correlation", "roc_auc")
    with pytest.raises(UsageError, match="did you mean roc_auc"):
        metrics.check(task, ["auroc_"])


def test_chance_counts_classes_that_no_example_has() -> None:
    labels = np.array([0] * 6 + [1] * 2)
    constant = np.zeros((8, 3))
    assert METRICS["average_precision"](labels, constant) == pytest.approx(0.5)
    assert METRICS["average_precision"].chance(labels, 3) == pytest.approx(0.5)
    assert METRICS["average_precision"].chance(labels) == pytest.approx(0.25)


def test_metrics_of_a_second_split_carry_its_name() -> None:
    task = get_task("mnli")
    labels = np.array([0, 1, 2])
    outputs = dict.fromkeys(task.validation, np.eye(3))
    found = metrics.evaluate(task, outputs, dict.fromkeys(task.validation, labels))
    assert found == {"accuracy": 1.0, "accuracy_mismatched": 1.0}


def errors(runs: dict[int, list[float]]) -> list[dict[str, object]]:
    return [dict(row, chance=10.0) for row in rows(runs, metric="rmse")]


def only(analysis: Analysis) -> OperatingPoint:
    return next(p for p in analysis.points if p.threshold == 0.9)


def test_operating_points_of_an_error_are_those_of_what_it_takes_off_chance() -> None:
    runs = {0: [3.0, 3.2, 2.9], 1: [3.3, 3.4, 3.5], 2: [5.0, 5.1, 5.2]}
    turned = {depth: [10.0 - score for score in scores] for depth, scores in runs.items()}
    here = only(analyse(table(errors(runs))))
    there = only(analyse(table(rows(turned, metric="reduction"))))
    assert here.frozen_layers == there.frozen_layers == 1
    for name in ("relative", "relative_low", "relative_high", "probability", "confident_frozen_layers"):
        assert getattr(here, name) == pytest.approx(getattr(there, name)), name
    assert here.score == pytest.approx(3.4)
    assert here.full_score == pytest.approx(10 - there.full_score)


def test_curves_of_an_error_show_it_in_its_own_unit() -> None:
    (curve,) = analyse(table(errors({0: [3.0, 3.2, 2.9], 1: [3.3, 3.4, 3.5]}))).curves
    depth = curve.depths[1]
    assert depth.scores == pytest.approx((3.3, 3.4, 3.5))
    assert depth.score_low is not None
    assert depth.score_high is not None
    assert depth.score_low < 3.4 < depth.score_high
    assert depth.rates[0].score == pytest.approx(3.4)
    assert depth.chance_corrected == pytest.approx(depth.relative)


def test_the_best_rate_of_an_error_is_the_one_with_the_lowest() -> None:
    low = errors({0: [3.0, 3.2], 1: [3.3, 3.4]})
    high = [dict(row, learning_rate=9e-5, score=float(row["score"]) + 2) for row in low]  # type: ignore[arg-type]
    (curve,) = analyse(table(low, high)).curves
    assert {depth.learning_rate for depth in curve.depths} == {low[0]["learning_rate"]}


def test_an_interval_ends_at_the_metrics_bounds() -> None:
    def interval(rows: list[dict[str, object]]) -> tuple[float, float]:
        full = analyse(table(rows)).curves[0].depths[0]
        assert full.score_low is not None
        assert full.score_high is not None
        return full.score_low, full.score_high

    shares, percentages = [0.99, 0.95, 0.80], [99.0, 95.0, 80.0]
    assert interval(rows({0: shares, 1: shares}, metric="accuracy"))[1] == 1.0
    assert interval(rows({0: percentages, 1: percentages}, metric="accuracy"))[1] > 100
    assert interval(errors({0: [0.1, 1.0, 5.0], 1: [0.1, 1.0, 5.0]}))[0] == 0.0


def waiting(metric: str) -> list[dict[str, object]]:
    runs = rows({0: [1.0], 1: [1.0]}, metric=metric)
    return [dict(row, task="prices", state="RUNNING", score=None) for row in runs]


def test_an_error_needs_no_chance_before_its_first_result() -> None:
    (curve,) = analyse(table(waiting("rmse"))).curves
    assert (curve.chance, curve.full_score) == (None, None)
    assert telling(analyse(table(waiting("rmse")))).answers
    with pytest.raises(UsageError, match="needs a column chance"):
        analyse(table([dict(row, state="COMPLETE", score=1.0) for row in waiting("rmse")]))


def test_pages_define_the_quality_of_an_error() -> None:
    runs: dict[int, list[float]] = {0: [3.0, 3.2, 2.9], 1: [3.3, 3.4, 3.5]}
    data = table(errors(runs))
    page = markdown(document(data, analyse(data)))
    assert "(chance - error) / (chance - full model's error)" in page
    assert "score as a share of the full" not in page
    assert "majority class" not in page
    data = table(rows({0: [0.8, 0.81], 1: [0.78, 0.79]}))
    page = markdown(document(data, analyse(data)))
    assert "Keeps: the score as a share of the full model's." in page
    assert "chance - error" not in page
