"""A report of several studies: every sentence, cost, row and line is of the right study and protocol."""

from __future__ import annotations

import csv
from typing import Any

import pandas as pd
import pytest
import synthetic
from test_figures import lines, small_table

from objectives.contract import Cell
from study.analysis.analyse import analyse
from study.analysis.costs import costs
from study.reporting import figure_costs, figure_quality, figure_rates, figure_runs
from study.reporting.answer import answers
from study.reporting.content import document
from study.reporting.document import Document
from study.reporting.text import comma_separated, markdown, markdown_table
from study.trials.provenance import LearningCurve


def two_studies(first: str = "grid", second: str = "adaptive") -> pd.DataFrame:
    """The same model and task twice: one study freezes 2 of 4 at a tenth of the time, one cannot freeze."""
    fast = small_table({(0, 1e-5): [0.8, 0.81], (2, 1e-5): [0.79, 0.8]}, study="rte-a", protocol=first)
    slow = small_table({(0, 1e-5): [0.8, 0.81], (2, 1e-5): [0.5, 0.51]}, study="rte-b", protocol=second)
    fast["train_seconds"] = [100.0 if n == 0 else 10.0 for n in fast["frozen_layers"]]
    slow["train_seconds"] = [100.0 if n == 0 else 60.0 for n in slow["frozen_layers"]]
    return pd.concat([fast, slow], ignore_index=True)


def said(table: pd.DataFrame) -> tuple[str, ...]:
    analysis = analyse(table, draws=200)
    return tuple(map(str, answers(analysis, costs(table, analysis))))


def content(table: pd.DataFrame) -> Document:
    return document(table, analyse(table, draws=100))


def rows_of(found: Document, name: str) -> list[dict[str, str]]:
    (table,) = [t for t in found.tables if t.name == name]
    return list(csv.DictReader(comma_separated(table).splitlines()))


def test_each_protocol_has_its_own_sentence() -> None:
    grid, adaptive = said(two_studies())
    assert grid.startswith("tiny (grid): fine-tune the last 2 of 4 layers: that keeps 98.8 %")
    assert adaptive.startswith(
        "tiny (adaptive): fine-tune all 4 layers: no freeze that was measured keeps 90 %"
    )
    assert "(10.0x faster)" in grid
    assert "time" not in adaptive


def test_savings_are_those_of_the_same_study() -> None:
    table = two_studies()
    table.loc[(table["study"] == "rte-b") & (table["frozen_layers"] == 2), "score"] = 0.79
    first, second = said(table)
    assert "(10.0x faster)" in first
    assert "(1.7x faster)" in second


def test_one_task_in_two_studies_is_one_task() -> None:
    (sentence,) = said(two_studies("grid", "grid"))
    assert sentence.startswith("Fine-tune all 4 layers: no freeze that was measured keeps 90 %")
    assert "on RTE in study rte-b, the one of 2 studies that needs the most layers" in sentence


def test_one_task_in_two_metrics_is_one_task() -> None:
    table = two_studies("grid", "grid")
    table.loc[table["study"] == "rte-b", ["study", "metric"]] = ["rte-a", "f1"]
    (sentence,) = said(table)
    assert "on RTE by F1, the one of 2 metrics that needs the most layers" in sentence


def test_a_study_without_an_answer_is_left_out_by_its_name() -> None:
    table = two_studies("grid", "grid")
    table = table[(table["study"] == "rte-a") | (table["frozen_layers"] != 0)].reset_index(drop=True)
    (sentence,) = said(table)
    assert sentence.startswith("Fine-tune the last 2 of 4 layers: that keeps 98.8 %")
    assert "Not counted: RTE (study rte-b): the full model (frozen_layers 0) is not in the table" in sentence


def test_rows_say_of_which_study_they_are() -> None:
    failed = small_table({(2, 1e-5): [0.0]}, study="rte-b", protocol="adaptive")
    failed = failed.assign(state="FAIL", score=None, reason="no memory")
    found = content(pd.concat([two_studies(), failed], ignore_index=True))
    shown = {t.name: [column.title for column in t.shown] for t in found.tables}
    assert all("study" in shown[name] for name in ("operating_points", "failures"))
    (table,) = [t for t in found.tables if t.name == "operating_points"]
    assert "task" not in shown["operating_points"], "there is one, and the title names it"
    cells = markdown_table(table).split(" | ")
    assert {"rte-a (grid)", "rte-b (adaptive)"} <= set(cells)
    points = {r["study"]: r for r in rows_of(found, "operating_points") if r["threshold"] == "0.9"}
    assert {study: r["frozen_layers"] for study, r in points.items()} == {"rte-a": "2", "rte-b": "0"}
    reasons = {r["study"]: r["reasons"] for r in rows_of(found, "failures")}
    assert reasons == {"rte-a": "", "rte-b": "1× no memory"}
    for name in ("quality", "costs"):
        (table,) = [t for t in found.tables if t.name == name]
        assert {str(row.group).split(" · ")[0] for row in table.rows} == {"tiny (grid)", "tiny (adaptive)"}
    assert found.title == "tiny on RTE, 2 studies"
    assert ("2", "studies") in found.facts
    assert not [t for t in found.tables if t.name.startswith(("models", "paper"))], "there is one task"


def test_gains_and_notes_say_of_which_study_they_are() -> None:
    table = two_studies("grid", "grid")
    table.loc[(table["study"] == "rte-b") & (table["frozen_layers"] == 2), "score"] = [0.85, 0.87]
    found = content(table[(table["study"] == "rte-b") | (table["seed"] == 1)].reset_index(drop=True))
    (gains,) = [t for t in found.tables if t.name == "gains"]
    assert [r["study"] for r in rows_of(found, "gains")] == ["rte-b"]
    assert "study" in [column.name for column in gains.shown]
    assert "tiny (rte-a) RTE: one run" in markdown(found)


def test_lines_and_their_rings_are_of_one_study_each() -> None:
    table = two_studies()
    analysis = analyse(table, draws=50)
    chart = figure_quality.by_task(analysis, analysis.curves)
    (panel,) = chart.panels
    drawn = {line["name"]: line["y"][-1] for line in lines(panel.figure)}
    assert drawn == {
        "tiny (grid)": pytest.approx(0.795 / 0.805),
        "tiny (adaptive)": pytest.approx(0.505 / 0.805),
    }
    assert [key.label for key in chart.legend[:2]] == list(drawn)
    rings = [trace["x"] for trace in panel.figure["data"][-2:]]
    assert sorted(rings) == [[0.0], [2.0]]
    colours = {line["line"]["color"] for line in lines(panel.figure)}
    assert len(colours) == 2
    (cost,) = figure_costs.charts(analysis.curves, costs(table, analysis))
    assert {trace["name"]: trace["x"] for trace in cost.panels[0].figure["data"]} == {
        "tiny (grid)": [1.0, 0.1],
        "tiny (adaptive)": [1.0, 0.6],
    }


def test_rates_and_learning_curves_are_of_one_study_each() -> None:
    table = two_studies()
    more = table.assign(learning_rate=2e-5, score=table["score"] - 0.1)
    analysis = analyse(pd.concat([table, more], ignore_index=True), draws=50)
    maps = figure_rates.depth_by_rate(analysis.curves)
    assert maps is not None
    assert [panel.label for panel in maps.panels] == ["tiny (grid) · RTE", "tiny (adaptive) · RTE"]
    assert figure_rates.chosen_rates(analysis.curves) is None, "the maps say it all"

    def run(study: str, last: float) -> LearningCurve:
        cell = Cell(2, 1e-5, 1)
        return LearningCurve("tiny", "rte", "accuracy", cell, (1.0, 2.0), (0.3, last), (1.0, 1.0), study)

    chart = figure_runs.learning_curves(analysis.curves, [run("rte-a", 0.8), run("rte-b", 0.5)])
    assert chart is not None
    ends = {panel.label: [trace["y"][-1] for trace in panel.figure["data"]] for panel in chart.panels}
    assert ends == {"tiny (adaptive) · RTE": [0.5], "tiny (grid) · RTE": [0.8]}


def test_low_resource_tables_and_figures_are_of_one_study_each() -> None:
    parts = [two_studies("low-resource", "low-resource").assign(train_size=size) for size in (50, 100)]
    found = content(pd.concat(parts, ignore_index=True))
    tables = [t.name for t in found.tables if t.name.startswith("low_resource")]
    assert tables == ["low_resource_tiny (rte-a)_rte", "low_resource_tiny (rte-b)_rte"]
    assert {r["study"] for r in rows_of(found, tables[1])} == {"rte-b"}
    panels = [panel.name for chart in found.charts for panel in chart.panels]
    assert len(panels) == len(set(panels))


def test_a_single_study_is_not_named_in_tables_and_figures() -> None:
    table = two_studies()
    found = content(table[table["study"] == "rte-a"].reset_index(drop=True))
    for shown in found.tables:
        assert not {"study", "protocol"} & {column.name for column in shown.shown}, shown.name
    assert found.title == "tiny on RTE"
    assert "rte-a" not in markdown(found)
    assert "grid" not in markdown(found)


def test_studies_of_different_tasks_need_no_names() -> None:
    found = content(synthetic.table(models=("bert-base",), tasks=("mrpc", "rte"), rates=(2e-5,), seeds=2))
    assert "mrpc-bert-base" not in markdown(found)
    assert found.title == "bert-base on 2 tasks"


def of_protocols(*protocols: str) -> pd.DataFrame:
    settings: dict[str, Any] = {"rates": (2e-5,), "seeds": 2, "failures": False}
    parts = [
        synthetic.table(models=("bert-base",), tasks=("mrpc", "rte"), seed=seed, **settings).assign(
            protocol=protocol
        )
        for seed, protocol in enumerate(protocols)
    ]
    table = pd.concat(parts, ignore_index=True)
    table["study"] = table["study"] + "-" + table["protocol"]
    return table


def test_the_papers_tables_and_claims_are_of_one_protocol_each() -> None:
    table = of_protocols("paper", "adaptive")
    found = content(table)
    names = [t.name for t in found.tables if t.name.startswith("paper_table")]
    assert sorted(names) == ["paper_table_bert-base (adaptive)", "paper_table_bert-base (paper)"]
    for protocol in ("paper", "adaptive"):
        full = table[(table["protocol"] == protocol) & (table["frozen_layers"] == 0)]
        row = rows_of(found, f"paper_table_bert-base ({protocol})")[0]
        assert float(row["rte"]) == pytest.approx(100 * full[full["task"] == "rte"]["score"].mean())
    assert {r["protocol"] for r in rows_of(found, "models")} == {"paper", "adaptive"}
    claims = rows_of(found, "claims")
    assert sorted(r["protocol"] for r in claims if "tuned layers" in r["claim"]) == ["adaptive", "paper"]
    assert {r["ours"].split(" over ")[1] for r in claims if "everything" in r["claim"]} == {"2 pairs"}


def test_the_papers_table_of_two_studies_of_one_protocol_has_a_column_for_each() -> None:
    table = of_protocols("paper")
    again = table.assign(study=table["study"] + "-2", score=table["score"] - 0.05)
    found = content(pd.concat([table, again], ignore_index=True))
    full = rows_of(found, "paper_table_bert-base")[0]
    ours = [full["rte_rte-bert-base-paper"], full["rte_rte-bert-base-paper-2"]]
    assert float(ours[0]) == pytest.approx(float(ours[1]) + 5)


def test_claims_leave_out_models_that_the_paper_does_not_have() -> None:
    table = of_protocols("paper")
    other = table.assign(model="my-own", study="my-own", score=0.1)
    claims = rows_of(content(pd.concat([table, other], ignore_index=True)), "claims")
    (frozen,) = [r for r in claims if "everything" in r["claim"]]
    assert frozen["ours"].endswith("over 2 pairs")
