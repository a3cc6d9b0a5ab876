"""What the report says of its numbers agrees with them: whom a choice flatters, what was not measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import stored
from test_figures import SCORES, small_table
from test_report_studies import content, said

from objectives.contract import Recipe
from study import report
from study.analysis.analyse import analyse
from study.reporting.content import document
from study.reporting.text import markdown
from study.trials import provenance, trial_table

BEST = "its highest on the validation set"
SUBSET = "All seeds of a train size share one subset"


def test_a_rate_chosen_for_the_full_model_alone_flatters_only_it() -> None:
    paper = {(0, 1e-5): [0.7, 0.8], (0, 2e-5): [0.6, 0.7], (2, 1e-5): [0.7, 0.7], (4, 1e-5): [0.5, 0.5]}
    text = markdown(content(small_table(paper)))
    assert "that flatters the full model beside every freeze" in text
    assert "flatters every depth" not in text


def test_rates_chosen_at_every_depth_flatter_every_depth() -> None:
    table = small_table({(depth, rate): [0.7, 0.8] for depth in (0, 2) for rate in (1e-5, 2e-5)})
    assert "which flatters every depth;" in markdown(content(table))
    full = markdown(document(table, analyse(table, draws=50, select="full-model")))
    assert "and used at every depth: that flatters the full model" in full
    assert "Only the full model was run at several" not in full
    assert "flatters every depth" not in full
    assert "which flatters the depths run at several;" in markdown(content(small_table(SCORES)))


@pytest.mark.parametrize(
    ("studies", "told"),
    [
        ((("s", stored.make_spec(recorded=False)),), "Every run was evaluated once, at its end"),
        ((("s", stored.make_spec(recorded=True)),), "Recorded trials have no learning curves"),
        ((), "Trial tables do not carry learning curves"),
    ],
)
def test_why_there_are_no_learning_curves(studies: tuple[object, ...], told: str) -> None:
    table = small_table(SCORES)
    known = provenance.Provenance(studies=studies)  # type: ignore[arg-type]
    text = markdown(document(table, analyse(table, draws=20), known))
    assert told in text
    assert text.count("learning curve") == 1


def test_one_learning_rate_is_not_called_tuned() -> None:
    text = markdown(content(small_table({(0, 1e-5): [0.8, 0.8], (2, 1e-5): [0.7, 0.7]})))
    assert "there was nothing to choose from" in text
    assert "the learning rate is tuned for it" not in text
    assert "Depth is what is compared; the learning rate, batch size" in text
    assert "the learning rate is tuned for it" in markdown(content(small_table(SCORES)))


def test_without_a_freeze_none_is_said_to_fail() -> None:
    (sentence,) = said(small_table({(0, 1e-5): [0.8, 0.8]}))
    assert sentence == "No answer: only the full model was run: add depths to --frozen-layers."


def test_the_full_model_saves_nothing_against_itself() -> None:
    table = small_table({(0, 1e-5): [0.8, 0.8], (2, 1e-5): [0.1, 0.1]})
    table["train_seconds"] = 10.0
    table["peak_memory_bytes"] = 10.0
    found = content(table)
    assert "time" not in str(found.answers[0])
    assert "memory" not in str(found.answers[0])
    assert "100 %" not in str((found.answers, found.facts)), "the full model beside itself"
    assert not [label for _, label in found.facts if "time" in label]


def test_a_hundredth_less_is_about_the_same_time() -> None:
    table = small_table({(0, 1e-5): [0.8, 0.8], (2, 1e-5): [0.8, 0.8]})
    table["train_seconds"] = [10.0 if n == 0 else 9.9 for n in table["frozen_layers"]]
    assert "about the same time" in said(table)[0]


def test_a_share_just_below_the_threshold_does_not_look_as_if_it_reached_it() -> None:
    found = content(small_table({(0, 1e-5): [0.9, 0.9], (2, 1e-5): [0.80996, 0.80996]}))
    assert str(found.answers[0]).startswith("Fine-tune all 4 layers: no freeze that was measured keeps 90 %")
    text = markdown(found)
    assert "89.996 %" in text
    assert "90.0 %" not in text


def test_two_metrics_have_two_low_resource_tables_and_figures(tmp_path: Path) -> None:
    scores = {(0, 1e-5): [0.8, 0.8], (2, 1e-5): [0.7, 0.7]}
    parts = [
        small_table(scores, train_size=size, metric=metric)
        for size in (50, 100)
        for metric in ("f1", "accuracy")
    ]
    table = pd.concat(parts, ignore_index=True)
    analysis = analyse(table, draws=50)
    paths = report.write(table, analysis, tmp_path)
    kept = [path for path in paths if path.name.startswith("low_resource")]
    assert [path.name for path in kept] == [
        "low_resource_tiny_rte_accuracy.csv",
        "low_resource_tiny_rte_f1.csv",
    ]
    for path, metric in zip(kept, ("accuracy", "f1"), strict=True):
        assert f",{metric}," in path.read_text()
    panels = [panel.name for chart in document(table, analysis).charts for panel in chart.panels]
    assert len(panels) == len(set(panels))


@pytest.mark.parametrize(
    ("changes", "best", "subset"),
    [
        ({}, False, False),
        ({"recipe": Recipe(score="best")}, True, False),
        ({"recipe": Recipe(score="best", selection_split=0.1)}, False, False),
        ({"recipe": Recipe(score="best"), "train_sizes": (50, 100)}, True, True),
        ({"recipe": Recipe(score="best"), "train_sizes": (50, 100), "recorded": True}, False, False),
    ],
)
def test_best_evaluations_and_shared_subsets_are_caveats(
    changes: dict[str, object], best: bool, subset: bool
) -> None:
    table = small_table(SCORES)
    spec = stored.make_spec(**{"recorded": False, **changes})
    known = provenance.Provenance(studies=(("mrpc-tiny", spec),))
    text = markdown(document(table, analyse(table, draws=50), known))
    assert ((BEST in text), (SUBSET in text)) == (best, subset)


def test_a_low_resource_table_alone_has_its_protocols_caveats() -> None:
    text = markdown(content(small_table(SCORES, train_size=50, study="s", protocol="low-resource")))
    assert "unless told otherwise, by its best evaluation on the validation set" in text
    assert SUBSET in text


def test_scores_in_percent_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = small_table({cell: [100 * s for s in runs] for cell, runs in SCORES.items()})
    assert "Scores of accuracy above 1 on RTE look like percent" in markdown(content(table))
    path = tmp_path / "percent.csv"
    table.to_csv(path, index=False)
    trial_table.load([str(path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert "percent.csv: accuracy is up to 80, which looks like percent" in line


def test_scores_that_may_exceed_one_are_not_called_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bleu = small_table({(0, 1e-5): [31.0, 30.0], (2, 1e-5): [29.0, 28.0]}, metric="bleu")
    paths = [tmp_path / "bleu.csv", tmp_path / "shares.csv"]
    for path, table in zip(paths, (bleu, small_table(SCORES)), strict=True):
        table.to_csv(path, index=False)
        assert "look like percent" not in markdown(content(table))
    trial_table.load([str(path) for path in paths])
    assert capsys.readouterr().err == ""


def test_an_answer_beside_unmeasured_depths_says_how_deep_it_could_be() -> None:
    gap = markdown(
        content(small_table({(0, 1e-5): [0.8, 0.8], (1, 1e-5): [0.8, 0.8], (4, 1e-5): [0.1, 0.1]}))
    )
    assert "| 1–3 |" in gap
    assert "A range: the depths right beyond the answer were not measured" in gap
    whole = markdown(content(small_table({(depth, 1e-5): [0.8, 0.8] for depth in range(5)})))
    assert "A range:" not in whole
