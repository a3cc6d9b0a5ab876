"""Studies from Python: the same settings, results and errors as the commands have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import own
import pytest
import tiny
from launches import write_table

from objectives.contract import StorageError, UsageError
from study import Study, launch


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_table(tmp_path / "table.csv", depths=4, seeds=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    return tmp_path


@pytest.mark.slow
def test_a_study_is_run_and_asked(place: Path) -> None:
    study = Study(recorded="table.csv", storage=f"sqlite:///{place}/a.db", seeds=2)
    with pytest.raises(StorageError, match="no database"):
        study.table()
    assert study.run(workers=2) is study
    table = study.table()
    assert (len(table), set(table["state"])) == (8, {"COMPLETE"})
    (point,) = study.operating_points(thresholds=[0.9])
    assert (point.frozen_layers, point.total_layers) == (3, 12)
    assert "RECORDED" in study.answer()
    figure = study.figure()
    assert type(figure).__module__.startswith("plotly")
    assert len(figure.data) > 0
    page = study.report(place / "page")
    assert page == place / "page" / "report.html"
    assert study.status().overview.counts.complete == 8
    assert repr(study) == f"Study('mrpc-bert-base-grid', storage='sqlite:///{place}/a.db')"
    assert study.run() is study, "nothing is left to run"


@pytest.mark.slow
def test_without_a_full_model_that_learned_there_is_an_answer_and_no_figure(place: Path) -> None:
    """And settings may be tuples as well as lists."""
    table = Path("table.csv")
    head, *rows = table.read_text().splitlines()
    score = head.split(",").index("score")
    lines = [row.split(",") for row in rows]
    flat = [",".join([*line[:score], "0.5", *line[score + 1 :]]) for line in lines]
    table.write_text("\n".join([head, *flat]) + "\n")
    study = Study(recorded="table.csv", storage=f"sqlite:///{place}/a.db", frozen_layers=(0, 3)).run(
        workers=1
    )
    assert "No answer" in study.answer()
    with pytest.raises(UsageError, match="no figure"):
        study.figure()


@pytest.mark.slow
def test_a_study_of_the_command_line_is_opened_by_name(place: Path) -> None:
    assert launch.main(["--recorded", "table.csv", "--workers", "0"]) == 0
    study = Study.open("mrpc-bert-base-grid")
    with pytest.raises(UsageError, match="no complete trial yet"):
        study.operating_points()
    assert len(study.run(workers=1).table()) == 12
    with pytest.raises(StorageError, match="no study 'nope'"):
        Study.open("nope")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"recorded": "table.csv", "epocs": 3}, "unknown setting 'epocs': did you mean epochs"),
        ({"recorded": "table.csv", "epochs": -1}, "^epochs -1.0: "),
        ({"recorded": "table.csv", "frozen_layers": [0, 20]}, "^frozen_layers 20 is beyond"),
        ({"recorded": "table.csv", "protocol": "magic"}, "unknown protocol 'magic'"),
        ({"recorded": "table.csv", "seeds": [1, 1]}, "names a value twice"),
        ({"demo": True, "task": ["mrpc", "rte"]}, "a Study is of one model and one task"),
    ],
)
def test_a_mistake_names_the_setting(place: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Study(**settings).run()
    assert not (place / "elsa.db").exists()


@pytest.mark.slow
def test_what_the_data_were_taken_to_be_is_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.save_model("bert", place / "tiny")
    own.save(place / "news.csv", own.news(60))
    study = Study(
        data="news.csv", model="./tiny", frozen_layers=[0], learning_rates=[1e-3], seeds=1, epochs=0.1
    )
    study.run(workers=1)
    said = capsys.readouterr().out
    assert 'news: text: "text", label: "category" (5 classes' in said
    assert "note: The data have no validation split" in said
    assert "1 cell: 1 done" in str(study.status())


def test_the_package_itself_loads_nothing_heavy() -> None:
    code = "import sys, study; sys.exit(any(name in sys.modules for name in ('numpy', 'torch', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
