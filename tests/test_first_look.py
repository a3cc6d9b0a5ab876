"""What a newcomer leaves to the software: `--quick`, `--max-length auto`, and what is cut and said."""

from __future__ import annotations

from pathlib import Path

import own
import pytest
import tiny

from objectives.contract import UsageError
from storage.database import Database
from study import launch, operating_points, report
from study.specs.study_spec import StudySpec
from study.workers.jobs import stored_spec


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    tiny.save_model("bert", tmp_path / "tiny")
    return tmp_path


def spec_of(name: str) -> StudySpec:
    database = Database.open("sqlite:///elsa.db")
    try:
        return stored_spec(database.study(name))
    finally:
        database.close()


def texts(*lengths: int) -> list[own.Row]:
    """Texts of so many words, each a token, and two more tokens around them."""
    return [
        {"text": " ".join([f"w{i % 50}", *["w9"] * (length - 1)]), "topic": "ab"[i % 2]}
        for i, length in enumerate(lengths)
    ]


def test_max_length_auto_is_what_99_of_100_examples_need(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.save(place / "data" / "train.csv", texts(*range(3, 23), *[20] * 179, 50))
    own.save(place / "data" / "validation.csv", texts(5, 6, 7, 8))
    words = ["--data", "data", "--model", "./tiny", "--workers", "0", "--max-length"]
    assert launch.main([*words, "auto", "--study", "auto"]) == 0
    said = capsys.readouterr().out
    assert spec_of("auto").recipe.max_length == 24, "22 words: one text of 200 is longer"
    assert "auto: max length: 24 tokens, chosen by auto" in said
    assert "0.5 % of the training examples are longer than 24 tokens and are cut" in said
    assert launch.main([*words, "52", "--study", "all"]) == 0
    assert "are cut" not in capsys.readouterr().out


def test_auto_stays_within_what_the_model_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.save(place / "long.csv", texts(*[100] * 40))
    words = ["--data", "long.csv", "--model", "./tiny", "--workers", "0", "--max-length", "auto"]
    assert launch.main([*words, "--study", "long"]) == 0
    assert spec_of("long").recipe.max_length == 64
    assert "100.0 % of the training examples are longer than 64 tokens" in capsys.readouterr().out


def test_a_subset_that_has_lost_labels_is_remarked_once_per_size(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.save(place / "news.csv", own.news(200))
    words = ["--data", "news.csv", "--model", "./tiny", "--workers", "0", "--train-sizes", "2,3,50"]
    assert launch.main(words) == 0
    said = capsys.readouterr().out
    assert said.count("examples that are drawn, none has the label") == 2
    assert "Of the 2 training examples that are drawn, none has the label" in said


def test_a_spec_file_has_the_flags_other_names_and_its_data_beside_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.save(place / "specs" / "news.csv", own.news(60))
    spec = place / "specs" / "news.toml"
    spec.write_text('data = "news.csv"\ntrain_size = 20\nmodel = "./tiny"\n')
    assert launch.main(["--spec", "specs/news.toml", "--workers", "0"]) == 0
    assert f"{place}/specs/news.csv is read" in capsys.readouterr().err
    assert spec_of("news-tiny-grid").train_sizes == (20,)
    own.save(place / "news.csv", own.news(80))
    assert launch.main(["--spec", "specs/news.toml", "--workers", "0", "--study", "here"]) == 0
    assert spec_of("here").data == str(place / "news.csv")
    spec.write_text('data = "news.csv"\ntrain_size = 20\ntrain_sizes = 30\nmodel = "./tiny"\n')
    with pytest.raises(UsageError, match="train_sizes is set twice"):
        launch.main(["--spec", "specs/news.toml", "--workers", "0"])


@pytest.mark.slow
def test_a_quick_study_is_small_and_says_everywhere_that_it_is_quick(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.save(place / "news.csv", own.news(1300))
    flags = "--data news.csv --model ./tiny --quick --epochs 0.1 --learning-rates 1e-3,"
    words = flags.split()
    assert launch.main([*words, "--dry-run"]) == 0
    assert "(quick)" in capsys.readouterr().out
    name = own.study(*words)
    assert name == "news-tiny-quick"
    assert "QUICK" in capsys.readouterr().out
    spec = spec_of(name)
    assert (spec.quick, spec.seeds, spec.train_sizes) == (True, (1, 2), (1000,))
    assert spec.frozen_layers == (0, 2, 3, 4)
    operating_points.main([name])
    assert "QUICK" in capsys.readouterr().out
    report.main([name, "--out", "page", "--no-images"])
    for page in ("report.html", "report.md"):
        assert "QUICK: a first look" in Path("page", page).read_text()
