"""One document, told alike by terminal, report and note; columns bound to their values by name."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
import stored
import synthetic
from tables import render, words
from test_figures import SCORES, small_table

from storage.database import Database
from study import operating_points, report
from study.analysis.analyse import Analysis, analyse
from study.reporting.content import analyse_studies, document, telling
from study.reporting.document import Column, Document, Remark, Row, Section, Table, label
from study.reporting.note import note
from study.reporting.page import page
from study.reporting.terminal import terminal
from study.reporting.text import comma_separated, markdown, markdown_table
from study.trials.sources import read_studies


@pytest.fixture(scope="module")
def several() -> tuple[pd.DataFrame, Analysis]:
    table = synthetic.table(models=("bert-base", "bert-large"), tasks=("cola", "mrpc", "rte"), seeds=2)
    return table, analyse(table, draws=50)


def of_one_row(*columns: Column, item: object) -> Table:
    return Table(name="t", title="T", columns=columns, rows=(Row(item),))


@pytest.mark.parametrize("width", [80, 160])
def test_the_terminal_shows_every_fact_within_its_width(
    several: tuple[pd.DataFrame, Analysis], width: int
) -> None:
    table, analysis = several
    text = render(analysis, table, width=width)
    assert max(map(len, text.splitlines())) <= width
    for point in analysis.points:
        assert f"{point.full_score:.4f}" in text
        assert f"{100 * (point.relative or 0):.1f} %" in text
    for part in telling(analysis, table).tables:
        for row in part.rows:
            for column in part.shown:
                assert column.text(row.item).split()[0] in text, (part.name, column.name)
    wide = render(analysis, table, width=160)
    assert wide.count("probability") < render(analysis, table, width=80).count("interval") * 2
    assert len(wide.splitlines()) < len(render(analysis, table, width=80).splitlines())


def test_a_launch_ends_with_an_answer_that_fits_on_a_screen() -> None:
    table = synthetic.table(models=("bert-base",), tasks=("rte",), seeds=3)
    said = telling(analyse(table, draws=200), table)
    whole, short = terminal(said), terminal(said, brief=True)
    assert len(short.splitlines()) <= 24 < len(whole.splitlines())
    assert max(map(len, short.splitlines())) <= 80
    answer = whole.partition("\n\n")[0]
    assert short.startswith(answer)
    assert said.answers[0].sentence in words(answer)
    assert "99 %" in short, "a row for every threshold"


def test_terminal_report_and_note_open_with_the_same_sentence(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, create=True)
    try:
        study = stored.create(database)
        stored.run(study)
        reading = read_studies([study])
        table, analysis = reading.table, analyse(reading.table, draws=200)
        content = document(table, analysis)
        (answer,) = content.answers
        sentence, parts = answer.sentence, dict(answer.parts)
        assert sentence.startswith(
            "Freeze all 6 layers and tune the task head alone: that keeps 90 % of the full"
        )
        assert "(2.9x faster)" in parts["Saves"]
        said = words(render(analysis, table, width=80))
        assert said.startswith(f"RECORDED · {sentence}")
        assert f"\n\n**{sentence}**\n\n- 95 % interval: {parts['95 % interval']}\n- Saves: " in markdown(
            content
        )
        assert f"<h1>{sentence}</h1>" in unescape(page(content)).replace("\u00a0", " ")
        assert sentence in note(study, reading, analysis)
    finally:
        database.close()


def test_a_study_that_learned_nothing_has_no_answer_anywhere(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database.open(sqlite_url, create=True)
    try:
        spec = stored.make_spec(
            task="rte", metric="accuracy", frozen_layers=(0, 3, 6), learning_rates=(3e-5,)
        )
        study = stored.create(database, "nothing", spec)
        while (claim := study.claim("tester")) is not None:
            score = (0.475, 0.5, 0.536)[claim.cell.frozen_layers // 3] + 0.002 * claim.cell.seed
            made = replace(stored.record(claim.cell, spec), score=score, chance=0.529)
            claim.finish(replace(made, metrics={"accuracy": score}, curve=()))
        reading = read_studies([study])
        said = note(study, reading, analyse_studies(reading))
    finally:
        database.close()
    out = tmp_path / "points.json"
    assert operating_points.main(["nothing", "--storage", sqlite_url, "--json", str(out)]) == 0
    shown = words(capsys.readouterr().out)
    assert report.main(["nothing", "--storage", sqlite_url, "--out", str(tmp_path), "--no-images"]) == 0
    pages = unescape((tmp_path / "report.html").read_text()).replace("\u00a0", " ")
    sentence = "No answer: the full model scores 0.479, which is not better than chance (0.529): try"
    for text in (said, shown, (tmp_path / "report.md").read_text(), pages):
        assert sentence in words(text)
        assert "Freeze all" not in text
        assert "of full quality;" not in text
    points = json.loads(out.read_text())["points"]
    assert {(p["status"], p["frozen_layers"], p["confident_frozen_layers"]) for p in points} == {
        ("no answer", None, None)
    }
    assert all(p["probability"] == {} and p["reason"] in sentence + shown for p in points)


def test_a_search_is_answered_at_its_own_threshold_everywhere(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database.open(sqlite_url, create=True)
    try:
        spec = stored.make_spec(protocol="adaptive", protocol_settings=(("threshold", 0.8),))
        study = stored.create(database, "search", spec)
        stored.run(study, spec)
        reading = read_studies([study])
        said = note(study, reading, analyse_studies(reading))
    finally:
        database.close()
    assert operating_points.main(["search", "--storage", sqlite_url]) == 0
    shown = words(capsys.readouterr().out)
    assert report.main(["search", "--storage", sqlite_url, "--out", str(tmp_path), "--no-images"]) == 0
    written = (tmp_path / "report.md").read_text()
    for text in (said, shown, written):
        assert "The adaptive search ran only the cells that its threshold needed" in text
        assert "80 %" in text
        assert "95 % of full" not in text
        assert "90 %" not in text
    assert operating_points.main(["search", "--storage", sqlite_url, "--thresholds", "0.9"]) == 0
    assert "90 %" in capsys.readouterr().out


def test_the_note_has_the_reports_table_and_caveats(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, create=True)
    try:
        study = stored.create(database)
        stored.run(study)
        reading = read_studies([study])
        table, analysis = reading.table, analyse(reading.table)
        text = note(study, reading, analysis)
        (points,) = [t for t in document(table, analysis).tables if t.name == "operating_points"]
        assert markdown_table(points) in text
        assert "- Learning rates were chosen on the same scores that are reported" in text
    finally:
        database.close()


def test_the_command_prints_the_sentence_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trials.csv"
    small_table(SCORES).to_csv(path, index=False)
    assert operating_points.main([str(path), "--draws", "50"]) == 0
    assert capsys.readouterr().out.startswith(
        "Fine-tune the last 2 of 4 layers: that keeps 100 % of the full"
    )


def test_a_footnote_is_under_tables_with_its_column_and_once_on_a_terminal(
    several: tuple[pd.DataFrame, Analysis],
) -> None:
    table, analysis = several
    content = document(table, analysis)
    gap = small_table({(0, 1e-5): [0.8, 0.8], (1, 1e-5): [0.8, 0.8], (4, 1e-5): [0.1, 0.1]})
    fell = small_table({(0, 1e-5): [0.8, 0.81, 0.79, 0.8], (2, 1e-5): [0.8, 0.79, 0.8, 0.02]})
    collapsed = document(fell, analyse(fell, draws=50))
    assert any("Learned:" in " ".join(part.footnotes) for part in collapsed.tables)
    for found in (content, document(gap, analyse(gap, draws=50)), collapsed):
        for part in found.tables:
            titles = {column.title for column in part.shown}
            ranged = any(
                "–" in column.text(row.item)[1:]
                for column in part.shown
                if column.title in ("frozen", "tuned layers")
                for row in part.rows
            )
            assert ("A range:" in " ".join(part.footnotes)) == ranged
            assert ("Above chance:" in " ".join(part.footnotes)) == any("above chance" in t for t in titles)
            assert ("Learned:" in " ".join(part.footnotes)) == ("learned" in titles)
    assert len([t for t in content.tables if t.name.startswith("operating_points")]) == 3
    assert words(render(analysis, table, width=80)).count("Confident: the deepest") == 1


def test_a_column_takes_its_value_by_name_from_objects_mappings_and_pairs() -> None:
    column = Column("frozen_layers", "frozen")
    point = Remark("x", ("y",))
    assert column.value({"frozen_layers": 3}) == 3
    assert label("text").value(point) == "x"
    assert label("text").value((Row(None), point)) == "x"
    assert label("places", get=lambda remark: len(remark.places)).value(point) == 1
    with pytest.raises(AttributeError, match="frozen_layers"):
        column.value(point)


def test_one_more_column_is_one_more_declaration(several: tuple[pd.DataFrame, Analysis]) -> None:
    table, analysis = several
    (points, *_) = [t for t in document(table, analysis).tables if t.name == "operating_points_90"]
    own = Column("full_trials", "full runs", note="Full runs: of the full model.")
    more = replace(points, columns=(points.columns[0], own, *points.columns[1:]))
    row = next(csv.DictReader(comma_separated(more).splitlines()))
    assert row["full_trials"] == str(points.rows[0].item.full_trials)
    before = next(csv.DictReader(comma_separated(points).splitlines()))
    assert {name: row[name] for name in before} == before
    shown = Document(title="x", sections=(Section("a", "A", (more,)),))
    for text in (page(shown), markdown(shown), terminal(shown)):
        assert "Full runs: of the full model." in text


def test_columns_without_anything_to_say_are_left_out() -> None:
    seldom = Column("failed", "failed", seldom=True, note="Failed: …")
    assert of_one_row(seldom, item={"failed": 0}).shown == []
    assert of_one_row(seldom, item={"failed": 0}).footnotes == []
    assert of_one_row(seldom, item={"failed": 1}).shown == [seldom]
    assert of_one_row(replace(seldom, key=True), item={"failed": None}).shown == []
    known = Column("failed", "failed", note="Failed: …")
    assert of_one_row(known, item={"failed": None}).shown == []
    assert of_one_row(known, item={"failed": 0}).shown == [known]


def test_cells_wider_than_a_terminal_are_wrapped() -> None:
    columns = [label(f"c{i}", key=i == 0) for i in range(6)]
    item = {f"c{i}": "word " * 30 + "x" * 90 for i in range(6)}
    text = terminal(
        Document(title="x", sections=(Section("a", "A", (of_one_row(*columns, item=item),)),)), 80
    )
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("word") >= 6 * 30
    assert text.count("x") >= 6 * 90


def test_names_cannot_steer_the_terminal() -> None:
    text = render(analyse(small_table(SCORES, model="a\x1b[2Jb\u202ec"), draws=50))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert re.search("a.\\[2Jb.c on RTE", text)


def test_remarks_name_a_few_places_in_a_report_and_all_on_a_terminal() -> None:
    remark = Remark("it is so", tuple("abcdef"))
    assert remark.told() == "a, b, c, d and 2 more: it is so"
    assert remark.told(most=0) == "a, b, c, d, e, f: it is so"
    assert Remark("it is so").told() == "it is so"
