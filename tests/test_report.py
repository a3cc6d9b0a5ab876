"""The report's words, tables and files: the answer first, nothing invented, nothing hidden."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import stored
import synthetic
from test_figures import SCORES, small_table

from objectives.contract import Recipe, UsageError
from storage.database import Database
from study import report
from study.analysis.analyse import Analysis, analyse
from study.analysis.costs import costs
from study.analysis.paper_claims import gains
from study.reporting.answer import answers, facts
from study.reporting.content import document
from study.reporting.document import Document
from study.reporting.page import page
from study.reporting.text import comma_separated, markdown
from study.trials import provenance, sources, trial_table


def said(table: pd.DataFrame) -> tuple[str, ...]:
    analysis = analyse(table, draws=500)
    return tuple(map(str, answers(analysis, costs(table, analysis))))


def content(table: pd.DataFrame) -> Document:
    return document(table, analyse(table, draws=200))


def with_costs(table: pd.DataFrame) -> pd.DataFrame:
    table["train_seconds"] = [{0: 21.0, 2: 10.0, 4: 5.0}[n] for n in table["frozen_layers"]]
    table["peak_memory_bytes"] = [{0: 1000, 2: 430, 4: 100}[n] for n in table["frozen_layers"]]
    table["trainable_parameters"] = [{0: 100, 2: 40, 4: 1}[n] for n in table["frozen_layers"]]
    table["total_parameters"] = 100
    return table


def test_the_answer_is_one_sentence_with_quality_time_and_memory() -> None:
    (sentence,) = said(with_costs(small_table(SCORES)))
    assert re.fullmatch(
        r"Fine-tune the last 2 of 4 layers: that keeps 100 % of the full model's quality\. "
        r"95 % interval: \d+ to \d+ % of full quality; 90 % is the threshold\. "
        r"Saves: 52 % of the training time \(2\.1x faster\), 57 % of the memory and 60 % of the "
        r"parameters to train and store\. How sure: With probability (above 0\.99|0\.\d\d) the "
        r"minimum is between 1 and 2 layers; of these only 2 was measured\. "
        r"(To be 95 % sure of keeping 90 %, tune all 4 layers\. )?"
        r"What would change it: Runs at 3 frozen layers would settle it(; elsa launch --settle runs them)?\. "
        r"Lower and higher learning rates may change it: the lowest and the highest tried were the best\.",
        sentence,
    )


def test_without_recorded_costs_the_answer_claims_none() -> None:
    (sentence,) = said(small_table(SCORES))
    assert "time" not in sentence
    assert "memory" not in sentence


@pytest.mark.parametrize(
    ("scores", "start"),
    [
        (
            {0: [0.8, 0.8], 4: [0.79, 0.79]},
            "Freeze all 4 layers and tune the task head alone: that keeps 98.8 %",
        ),
        (
            {0: [0.8, 0.8], 3: [0.79, 0.79]},
            "Fine-tune only the last of 4 layers: that keeps 98.8 % of the full",
        ),
        ({0: [0.8, 0.8], 4: [0.1, 0.1]}, "Fine-tune all 4 layers: no freeze that was measured keeps 90 %"),
        (
            {0: [0.8, 0.8], -1: [0.79, 0.79]},
            "Fine-tune all 4 layers and freeze the embeddings: that keeps 98.8 %",
        ),
        ({2: [0.8, 0.8]}, "No answer: the full model (frozen_layers 0) is not in the table: add 0 to"),
        ({0: [-0.1, -0.1], 2: [0.5, 0.5]}, "No answer: the full model scores -0.1"),
    ],
)
def test_every_kind_of_answer_has_its_words(scores: dict[int, list[float]], start: str) -> None:
    (sentence,) = said(small_table({(depth, 1e-5): runs for depth, runs in scores.items()}))
    assert sentence.startswith(start)


def test_one_run_is_said_to_be_one_run() -> None:
    (sentence,) = said(small_table({(0, 1e-5): [0.8], (2, 1e-5): [0.79]}))
    assert "How sure: Unknown: the full model has only one run." in sentence
    assert "interval" not in sentence


def test_an_unsure_answer_names_the_sure_one() -> None:
    steady, spread = [0.80, 0.801, 0.799, 0.80], [0.79, 0.70, 0.76, 0.69]
    table = small_table({(0, 1e-5): steady, (2, 1e-5): steady, (3, 1e-5): spread, (4, 1e-5): [0.6] * 4})
    (sentence,) = said(table)
    assert sentence.startswith("Fine-tune only the last of 4 layers: that keeps 92 %")
    assert re.search(r"Probability that 1 layer is the minimum: 0\.\d\d \(2 layers: 0\.\d\d\)\.", sentence)
    assert "To be 95 % sure of keeping 90 %, tune 2 layers." in sentence
    assert re.search(
        r"\d+ more seeds? at 2-4 frozen layers and at the full model would settle it with 80 % power",
        sentence,
    )


def test_a_majority_class_that_keeps_the_threshold_is_told() -> None:
    table = small_table({(0, 1e-5): [0.9, 0.9], (4, 1e-5): [0.83, 0.83]}, chance=0.82)
    (sentence,) = said(table)
    assert sentence.startswith("Freeze all 4 layers")
    assert (
        "Predicting the majority class already keeps 91 % here; to keep 90 % of what is above that, tune 4"
        in sentence
    )


def test_the_majority_class_of_mrpc_is_told_though_no_chance_was_recorded() -> None:
    table = small_table({(0, 1e-5): [0.9, 0.9], (4, 1e-5): [0.83, 0.83]}, task="mrpc", metric="f1")
    assert "Predicting the majority class already keeps 90 % here" in said(table)[0]


def test_the_interval_of_a_gain_is_adjusted_as_its_p_value_is() -> None:
    """Of the best of several freezes: both say the same of whether there is a gain."""
    generator = np.random.default_rng(8)
    drawn = {
        f"task{i}": {
            (n, 1e-5): list(0.8 + 0.001 * i * (n > 0) + generator.normal(0, 0.008, 4)) for n in range(5)
        }
        for i in range(20)
    }
    table = pd.concat([small_table(scores, task=task) for task, scores in drawn.items()], ignore_index=True)
    told = set()
    for gain in gains(analyse(table, draws=20, thresholds=[0.9]).curves):
        assert gain.low is not None
        assert gain.p_value is not None
        assert (gain.low > 0) == (gain.p_value < 0.05)
        told.add(gain.low > 0)
    assert told == {True, False}


def test_a_full_model_below_chance_is_told() -> None:
    (sentence,) = said(small_table({(0, 1e-5): [0.5, 0.5], (4, 1e-5): [0.6, 0.6]}, chance=0.7))
    assert sentence.startswith(
        "No answer: the full model scores 0.5, which is not better than chance (0.7): try"
    )


def test_several_tasks_are_answered_by_the_most_demanding() -> None:
    table = pd.concat(
        [
            small_table({(0, 1e-5): [0.8, 0.8], (3, 1e-5): [0.79, 0.79]}),
            small_table({(0, 1e-5): [0.8, 0.8], (3, 1e-5): [0.2, 0.2]}, task="qnli"),
            small_table({(0, 1e-5): [0.8, 0.8], (3, 1e-5): [0.1, 0.1]}, task="cola"),
        ],
        ignore_index=True,
    )
    (sentence,) = said(table)
    assert "no freeze that was measured keeps 90 % of its quality on CoLA, the one of" in sentence
    assert "on CoLA, the one of 3 tasks that needs the most layers" in sentence
    assert "Not counted" not in sentence
    assert ("3", "tasks") in facts(analyse(table, draws=50))


def test_a_task_not_followed_deep_enough_may_need_more() -> None:
    table = pd.concat(
        [
            small_table({(0, 1e-5): [0.8, 0.8], (3, 1e-5): [0.79, 0.79], (4, 1e-5): [0.1, 0.1]}),
            small_table({(0, 1e-5): [0.8, 0.8], (1, 1e-5): [0.79, 0.79]}, task="qnli"),
        ],
        ignore_index=True,
    )
    (sentence,) = said(table)
    assert sentence.startswith("Fine-tune only the last of 4 layers: that keeps 98.8 %")
    assert "QNLI may need up to 3: nothing deeper was measured there." in sentence
    assert "Not counted" not in sentence
    (models,) = [t for t in content(table).tables if t.name == "models"]
    shown = [column.title for column in models.shown]
    assert shown[1:3] == ["tuned layers", "at most"]
    rows = list(csv.DictReader(comma_separated(models).splitlines()))
    assert {(r["tuned_layers"], r["at_most_tuned_layers"]) for r in rows if r["threshold"] == "0.9"} == {
        ("1", "3")
    }


@pytest.fixture(scope="module")
def large() -> tuple[pd.DataFrame, Analysis]:
    table = synthetic.table(rates=(2e-5, 4e-5), seeds=2)
    return table, analyse(table, draws=50)


def test_the_same_numbers_in_page_text_and_csv(large: tuple[pd.DataFrame, Analysis]) -> None:
    table, analysis = large
    found = document(table, analysis)
    html, text = page(found), markdown(found)
    point = analysis.point("bert-large", "rte", 0.9)
    assert point is not None
    assert point.score is not None
    shown = f"{point.score:.4f}"
    assert shown in html
    assert shown in text
    (points,) = [t for t in found.tables if t.name == "operating_points_90"]
    rows = list(csv.DictReader(comma_separated(points).splitlines()))
    (row,) = [r for r in rows if (r["model"], r["task"]) == ("bert-large", "rte")]
    assert float(row["score"]) == point.score
    assert int(row["frozen_layers"]) == point.frozen_layers
    assert len(rows) == 36


def test_published_figures_stand_beside_ours(large: tuple[pd.DataFrame, Analysis]) -> None:
    found = document(*large)
    (models,) = [t for t in found.tables if t.name == "models"]
    rows = list(csv.DictReader(comma_separated(models).splitlines()))
    assert {r["model"]: r["published_tuned_layers"] for r in rows if r["threshold"] == "0.9"} == {
        "bert-base": "3",
        "roberta-base": "5",
        "bert-large": "6",
        "roberta-large": "7",
    }
    (paper,) = [t for t in found.tables if t.name == "paper_table_bert-base"]
    rows = list(csv.DictReader(comma_separated(paper).splitlines()))
    assert [r["cola"] for r in rows if r["source"] == "published"] == ["58.3", "47.5", "29.4"]
    assert "arXiv:1911.03090" in page(found)


def test_failures_are_counted_with_their_reasons() -> None:
    table = small_table(SCORES)
    failed = small_table({(4, 2e-5): [0.0]}).assign(state="FAIL", score=None, reason="CUDA out of memory")
    found = content(pd.concat([table, failed], ignore_index=True))
    (failures,) = [t for t in found.tables if t.name == "failures"]
    (row,) = list(csv.DictReader(comma_separated(failures).splitlines()))
    assert (row["complete"], row["failed"], row["failed_cells"]) == ("10", "1", "1")
    assert row["reasons"] == "1× CUDA out of memory"


def test_the_caveats_of_choosing_and_reporting_on_the_same_scores() -> None:
    chosen = markdown(content(small_table(SCORES)))
    assert "chosen on the same scores that are reported" in chosen
    held_out = small_table(SCORES)
    held_out["selection_score"] = held_out["score"] - 0.01
    text = markdown(content(held_out))
    assert "chosen on the same scores" not in text
    assert "chosen on a held-out share of the training data" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"recipe": Recipe(prefix="live")}, False),
        ({"frozen_layers": (-1, 0)}, False),
        ({"recorded": True}, False),
    ],
)
def test_frozen_layers_without_dropout_are_a_caveat_of_studies_that_cached_them(
    changes: dict[str, object], told: bool
) -> None:
    table = small_table(SCORES)
    spec = stored.make_spec(**{"recorded": False, **changes})
    known = provenance.Provenance(studies=(("mrpc-tiny", spec),))
    text = markdown(document(table, analyse(table, draws=50), known))
    assert ("frozen layers ran without dropout" in text) is told


def test_the_outlier_filter_says_how_many_runs_it_removed() -> None:
    # Of 0.7 and 0.8, 0.6 and 0.7, 0.54 and 0.2 the lower run is at or below 0.9 of the higher.
    table = small_table(SCORES | {(4, 1e-5): [0.54, 0.2]})
    found = document(table, analyse(table, outliers="paper", draws=50))
    assert "took 3 runs out; means, intervals and probabilities are of the others" in markdown(found)


@pytest.mark.parametrize("kind", ["demo", "recorded"])
def test_a_demo_says_demo_and_recorded_says_recorded_everywhere(kind: str) -> None:
    found = content(small_table(SCORES, **{kind: True}))
    html, text = page(found), markdown(found)
    head, body = html.split("</head>")
    assert kind.upper() in head
    assert f'<span class="badge">{kind}</span>' in body
    assert body.count(f"{kind.upper()}") >= 2
    assert text.startswith(f"# **{kind.upper()}**")
    plain = page(content(small_table(SCORES)))
    assert f'<span class="badge">{kind}</span>' not in plain


def test_an_unfinished_study_says_that_the_answer_may_change() -> None:
    waiting = small_table({(4, 2e-5): [0.0]}).assign(state="WAITING", score=None)
    found = content(pd.concat([small_table(SCORES), waiting], ignore_index=True))
    assert "NOT FINISHED: 1 trial waiting or running; the answer may change." in page(found)


def test_names_cannot_break_out_of_the_page() -> None:
    nasty = '</script><img src=x onerror="alert(1)">|a'
    found = content(small_table(SCORES, model=nasty))
    html = page(found)
    assert nasty not in html
    assert "<img src=x" not in html
    assert "\\|a" in markdown(found)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", table.file) for table in found.tables)


def test_the_page_refers_to_nothing_outside() -> None:
    html = page(content(small_table(SCORES)))
    ours = html[: html.index("<script>")] + html[html.index('<script type="application/json"') :]
    assert (
        re.findall(r"""(?:src|href)=["']?(?!#|data:|tables/)[^"'\s>]+|url\(|@import|https?://""", ours) == []
    )


def test_files_are_written_and_the_table_reads_back_the_same(tmp_path: Path) -> None:
    table = small_table(SCORES)
    paths = report.write(table, analyse(table, draws=50), tmp_path / "deep" / "out")
    assert [path.name for path in paths[:3]] == ["report.html", "report.md", "trials.csv"]
    assert all(path.is_file() for path in paths)
    assert not list(tmp_path.rglob(".*"))
    again = trial_table.read_csv(paths[2])
    assert again["score"].tolist() == table["score"].tolist()
    points = json.loads((tmp_path / "deep/out/tables/operating_points.json").read_text())
    assert points["points"][0]["tuned_layers"] == 2


def test_a_study_in_a_database_brings_curves_specs_and_versions(sqlite_url: str, tmp_path: Path) -> None:
    database = Database.open(sqlite_url, create=True)
    stored.run(stored.create(database))
    database.close()
    known = sources.read(["mrpc-tiny"], sqlite_url).provenance
    assert len(known.curves) == 35
    assert ("torch", "2.9.0", 35) in known.versions
    assert known.machines == (("node-1", "Made-up GPU", 35),)
    code = report.main(["mrpc-tiny", "--storage", sqlite_url, "--out", str(tmp_path), "--no-images"])
    assert code == 0
    text = (tmp_path / "report.md").read_text()
    assert "### Score after every evaluation" in text
    assert "| torch | 2.9.0 | 35 |" in text
    assert "RECORDED" in text
    html = (tmp_path / "report.html").read_text()
    assert '"learning-0"' in html


def test_a_table_alone_says_what_it_does_not_carry(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    small_table(SCORES).to_csv(path, index=False)
    assert sources.read([str(path)]).provenance == provenance.Provenance()
    assert report.main([str(path), "--out", str(tmp_path / "out"), "--no-images"]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Trial tables do not carry learning curves" in text
    assert "do not carry specs, versions or machines" in text


def test_an_output_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    table = small_table(SCORES)
    with pytest.raises(UsageError, match="cannot be written"):
        report.write(table, analyse(table, draws=50), tmp_path / "file" / "out")


def test_a_missing_exporter_is_said_and_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-such-browser"))
    table = small_table(SCORES)
    paths = report.write(table, analyse(table, draws=50), tmp_path, images=True)
    assert "figures were not exported as SVG and PNG" in capsys.readouterr().err
    assert not [path for path in paths if path.suffix in (".svg", ".png")]
    assert (tmp_path / "report.html").is_file()


def test_figures_are_exported_where_a_browser_is(tmp_path: Path) -> None:
    from study.reporting.images import why_not

    if (reason := why_not()) is not None:
        pytest.skip(reason)
    table = small_table(SCORES, recorded=True)
    paths = report.write(table, analyse(table, draws=50), tmp_path, images=True)
    figures = sorted(path.name for path in paths if path.suffix in (".svg", ".png"))
    assert figures == ["depth-rate.png", "depth-rate.svg", "quality.png", "quality.svg"]
    drawing = (tmp_path / "figures" / "quality.svg").read_text()
    assert "RECORDED · Relative quality against frozen layers" in drawing
    assert (tmp_path / "figures" / "quality.png").read_bytes().startswith(b"\x89PNG")
    assert "](figures/quality.svg)" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("module", ["report", "dashboard"])
def test_help_needs_no_heavy_import(module: str) -> None:
    code = (
        f"import sys\nfrom study.{module} import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pandas', 'numpy', 'plotly', 'optuna', 'sqlalchemy', 'torch'} & set(sys.modules)\n"
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"elsa {module}" in done.stdout


@pytest.mark.parametrize(
    ("scores", "changes"),
    [
        ({(0, 1e-5): [0.8]}, {"state": "FAIL", "score": None}),
        ({(0, 1e-5): [0.8]}, {}),
        ({(4, 1e-5): [0.8, 0.7]}, {}),
        ({(0, 1e-5): [0.0, 0.0], (2, 1e-5): [0.0, 0.0]}, {}),
        ({(0, 1e-5): [-0.5, -0.4], (2, 1e-5): [-0.1, 0.2]}, {}),
        ({(-1, 1e-5): [0.5, 0.5], (0, 1e-5): [0.5, 0.5]}, {"task": "my own task / 2", "metric": "bleu"}),
        ({(0, 1e-5): [0.5, 0.5], (1, 1e-5): [0.5, 0.5]}, {"train_size": 50}),
        ({(0, 1e-5): [0.5, 0.5], (1, 1e-5): [0.5, 0.5]}, {"state": "RUNNING", "score": None}),
    ],
)
def test_a_report_of_almost_nothing_is_still_a_report(
    scores: dict[tuple[int, float], list[float]], changes: dict[str, object]
) -> None:
    found = content(small_table(scores, **changes))
    assert found.answers
    assert "NaN" not in page(found).split('id="figures">')[1].split("</script>")[0]
    assert markdown(found).startswith("# ")
