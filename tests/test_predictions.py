"""Predictions: packed, stored beside a trial, and how much of the uncertainty comes from the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import stored

from objectives.contract import Cell, TrialRecord
from objectives.tasks.influence import standard_error
from objectives.tasks.metrics import describe
from objectives.tasks.predictions import pack, unpack
from storage.attributes import MOST_BYTES
from storage.database import Database
from study.analysis.analyse import Analysis, analyse
from study.reporting.content import analyse_studies, document
from study.reporting.text import markdown
from study.trials.sources import read, read_studies


def answers(metric: str, examples: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels and a model's outputs that mostly agree with them."""
    draw = np.random.default_rng(seed)
    if metric in ("spearman", "mae"):
        labels = draw.uniform(0, 250_000, examples)
        return labels, (labels + draw.normal(0, 40_000, examples))[:, None]
    kinds = 2 if metric in ("f1", "roc_auc", "average_precision") else 5
    labels = draw.integers(0, kinds, examples)
    return labels, draw.standard_normal((examples, kinds)) + 2.5 * (labels[:, None] == np.arange(kinds))


@pytest.mark.parametrize(
    "metric", ["accuracy", "f1", "macro_f1", "matthews_correlation", "roc_auc", "spearman", "mae"]
)
def test_a_metric_is_the_same_from_packed_answers(metric: str) -> None:
    labels, outputs = answers(metric)
    about = describe(metric)
    found = unpack(pack(labels, outputs, about))
    exact = metric not in ("roc_auc", "spearman", "mae")
    assert found.score(about) == pytest.approx(about(labels, outputs), rel=1e-12 if exact else 1e-3)
    assert len(found) == 500


def test_labels_of_several_kinds_at_once_are_packed_too() -> None:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, (200, 7))
    outputs = draw.standard_normal((200, 7)) + 2 * labels - 1
    for metric in ("micro_f1", "accuracy"):
        about = describe(metric)
        assert unpack(pack(labels, outputs, about)).score(about) == pytest.approx(about(labels, outputs))


def test_how_long_packed_answers_are() -> None:
    """MNLI's matched validation set is 9,815 examples of three classes, STS-B's 1,500 numbers."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 9_815)
    outputs = draw.standard_normal((9_815, 3)) + 1.9 * (labels[:, None] == np.arange(3))
    assert 0.8 < describe("accuracy")(labels, outputs) < 0.9
    assert len(pack(labels, outputs, describe("accuracy"))) < 1_600
    assert len(pack(labels, outputs, describe("macro_f1"))) < 6_000
    numbers = draw.uniform(0, 5, 1_500)
    assert len(pack(numbers, numbers[:, None] + 0.1, describe("spearman"))) < 8_000


def many_answers(score: float, examples: int, seed: int) -> str:
    """Right answers to a share of the examples: harder ones are missed by most runs."""
    draw = np.random.default_rng(7)
    hardness = draw.normal(0, 1.0, examples)
    own = np.random.default_rng(seed).normal(0, 0.5, examples)
    labels = np.ones(examples, dtype=np.int64)
    right = np.argsort(np.argsort(hardness + own)) < round(score * examples)
    outputs = np.where(right[:, None], [0.0, 1.0], [1.0, 0.0])
    return pack(labels, outputs, describe("accuracy"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database.open(f"sqlite:///{tmp_path}/elsa.db", create=True)
    yield found
    found.close()


def filled(database: Database, examples: int, *, noise: float = 0.004, missing: bool = False) -> str:
    """A study with predictions of every trial."""
    spec = stored.make_spec(
        metric="accuracy", task="made up", seeds=(1, 2, 3), learning_rates=(1e-4,), chance=0.5
    )
    study = stored.create(database, "s", spec)
    kept = {0: 0.90, 2: 0.89, 3: 0.86, 4: 0.815, 5: 0.78, 6: 0.6}
    while (claim := study.claim("tester")) is not None:
        cell: Cell = claim.cell
        shift = noise * np.random.default_rng([cell.frozen_layers, cell.seed]).standard_normal()
        score = round((kept[cell.frozen_layers] + shift) * examples) / examples
        packed = many_answers(score, examples, 100 * cell.frozen_layers + cell.seed)
        left_out = missing and cell.frozen_layers == 4 and cell.seed == 2
        claim.finish(
            TrialRecord(metric="accuracy", score=score, chance=0.5, predictions=None if left_out else packed)
        )
    return "s"


def analysed(database: Database) -> Analysis:
    return analyse_studies(read_studies([database.study("s")]), thresholds=[0.9])


def test_predictions_are_stored_beside_the_trial_and_out_of_the_way(database: Database) -> None:
    name = filled(database, 400)
    study = database.study(name)
    found = study.predictions()
    assert len(found) == 18
    for trial in study.trials():
        assert trial.record is not None
        assert trial.record.predictions is None
        assert unpack(found[trial.number]).score(describe("accuracy")) == pytest.approx(trial.record.score)
    address = database.display_url
    assert read([], address).predictions == {}
    assert len(read([], address, predictions=True).predictions) == 18
    trials = study.optuna_study.get_trials()
    assert not any("predictions" in key for trial in trials for key in trial.user_attrs)


def test_long_predictions_are_kept_in_pieces(database: Database) -> None:
    spec = stored.make_spec(metric="accuracy", seeds=(1,), learning_rates=(1e-4,), frozen_layers=(0,))
    study = stored.create(database, "s", spec)
    claim = study.claim("tester")
    assert claim is not None
    text = "x" * (2 * MOST_BYTES + 5)
    claim.finish(TrialRecord(metric="accuracy", score=0.5, predictions=text))
    assert study.predictions() == {claim.number: text}


def test_a_small_test_set_widens_intervals_and_a_large_one_does_not(tmp_path: Path) -> None:
    widths = {}
    for examples in (200, 20_000):
        database = Database.open(f"sqlite:///{tmp_path}/{examples}.db", create=True)
        filled(database, examples)
        both = analysed(database)
        alone = analyse(read_studies([database.study("s")]).table, thresholds=[0.9])
        database.close()
        (here,), (there,) = both.points, alone.points
        assert (here.frozen_layers, here.score) == (there.frozen_layers, there.score)
        assert both.curves[0].test_examples == examples
        width, plain = (p.relative_high - p.relative_low for p in (here, there))  # type: ignore[operator]
        assert here.seeds_probability == there.sureness
        widths[examples] = width / plain, here.examples_share or 0.0
    assert widths[200][0] > 1.5
    assert widths[200][1] > 0.5
    assert widths[20_000][0] < 1.2
    assert widths[20_000][1] < 0.3


def test_intervals_over_seeds_and_examples_cover_the_truth() -> None:
    """Test sets drawn anew: the interval over seeds alone misses, the one over both holds."""
    draw = np.random.default_rng(5)
    examples, seeds, studies = 300, 3, 60
    rows, packed = [], {}
    for study in range(studies):
        hard = draw.normal(0, 1, examples)
        for depth, ease in ((0, 1.3), (2, 0.9)):
            for seed in range(seeds):
                sure = ease + 0.05 * draw.standard_normal() - hard + 0.5 * draw.standard_normal(examples)
                right = sure > 0
                outputs = np.where(right[:, None], [0.0, 1.0], [1.0, 0.0])
                number = len(rows)
                packed["s", number] = pack(np.ones(examples, dtype=np.int64), outputs, describe("accuracy"))
                rows.append((f"task{study}", depth, seed + 1, number, float(right.mean())))
    data, truth = as_table(rows), expected(0.9) / expected(1.3)

    def held(predictions: dict[tuple[str, int], str] | None) -> float:
        found = analyse(data, predictions=predictions, draws=20, thresholds=[0.9])
        depths = [d for curve in found.curves if (d := curve.at(2)) is not None]
        assert len(depths) == studies
        return float(np.mean([(d.relative_low or 0) <= truth <= (d.relative_high or 2) for d in depths]))

    both, alone = held(packed), held(None)
    assert both >= 0.9
    assert alone < both


def expected(ease: float) -> float:
    from scipy.stats import norm

    return float(norm.cdf(ease / (1 + 0.25 + 0.05**2) ** 0.5))


def as_table(rows: list[tuple[str, int, int, int, float]]) -> pd.DataFrame:

    from study.trials.trial_table import normalise

    fixed = {
        "model": "m",
        "total_layers": 2,
        "learning_rate": 1e-5,
        "train_size": "",
        "state": "",
        "metric": "accuracy",
        "study": "s",
    }
    named = [dict(zip(("task", "frozen_layers", "seed", "trial", "score"), row, strict=True)) for row in rows]
    return normalise(pd.DataFrame([fixed | row for row in named]), source="made up")


def test_the_report_says_which_part_is_which_and_what_would_help(database: Database) -> None:
    filled(database, 200)
    reading = read_studies([database.study("s")])
    analysis = analyse_studies(reading, thresholds=[0.9])
    text = markdown(document(reading.table, analysis, reading.provenance))
    assert (
        "% of the uncertainty comes from the choice of validation examples, the rest from the seeds" in text
    )
    assert "More validation examples would help more than more seeds." in text
    assert "intervals include variation over seeds and validation examples" in text
    plain = markdown(document(reading.table, analyse(reading.table, thresholds=[0.9]), reading.provenance))
    assert "all intervals are over seeds only" in plain


def test_a_trial_without_predictions_leaves_the_intervals_to_the_seeds(database: Database) -> None:
    filled(database, 200, missing=True)
    (curve,) = analysed(database).curves
    assert curve.test_examples is None


@pytest.mark.parametrize("metric", ["f1", "matthews_correlation", "roc_auc", "spearman"])
def test_the_luck_of_examples_is_that_of_drawing_them_again(metric: str) -> None:
    labels, outputs = answers(metric, 400)
    about = describe(metric)
    spread = standard_error(pack(labels, outputs, about), about)
    draw = np.random.default_rng(3)
    again = [about(labels[rows], outputs[rows]) for rows in (draw.integers(0, 400, 400) for _ in range(200))]
    assert spread == pytest.approx(float(np.std(again)), rel=0.35)
