"""From a file of one's own to a model that Transformers loads: which run, its weights, its card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import own
import pytest
import stored
import tiny
import torch
import yaml
from safetensors.torch import load_file

from objectives.contract import TrialRecord, UsageError
from objectives.tasks.definition import shipped
from storage.database import Database
from study import Study, export, operating_points, report
from study.models import load
from study.models.card import _front_matter
from study.reporting.content import analyse_studies
from study.reporting.note import note
from study.trials.sources import read_studies

GRID = "--frozen-layers 0,3 --learning-rates 5e-3, "
DATA: dict[str, tuple[str, Callable[..., Any], str]] = {
    "classes": ("news.csv", own.news, "--seeds 3 --epochs 6"),
    "multi-label": ("tags.jsonl", own.tagged, "--seeds 2 --epochs 8 --batch-size 8 --learning-rates 3e-3,"),
    "regression": ("price.csv", own.priced, "--seeds 3 --epochs 6"),
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, str]]:
    """A finished study of a file of each kind: its folder and its name."""
    made: dict[str, tuple[Path, str]] = {}

    def get(kind: str) -> tuple[Path, str]:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.delenv("ELSA_STORAGE", raising=False)
                tiny.save_model("bert", Path("tiny"), dropout=False)
                file, rows, recipe = DATA[kind]
                own.save(Path(file), rows(200))
                words = f"--data {file} --model ./tiny {GRID} {recipe}"
                made[kind] = (folder, own.study(*words.split()))
        return made[kind]

    return get


@pytest.fixture
def enter(
    studies: Callable[[str], tuple[Path, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], str]:
    """Go to a copy of a kind's study, where exports do not meet those of other tests."""

    def entered(kind: str) -> str:
        folder, name = studies(kind)
        shutil.copytree(folder, tmp_path / "place")
        monkeypatch.chdir(tmp_path / "place")
        monkeypatch.setenv("ELSA_CACHE", "cache")
        monkeypatch.delenv("ELSA_STORAGE", raising=False)
        return name

    return entered


@pytest.fixture
def news(enter: Callable[[str], str]) -> str:
    return enter("classes")


def pages(name: str) -> Iterator[tuple[str, str]]:
    """What a person reads of the study, without the scripts of its page."""
    report.main([name, "--out", "page", "--no-images"])
    html = Path("page/report.html").read_text()
    yield "page", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    yield "markdown", Path("page/report.md").read_text()
    yield "card", Path("model/README.md").read_text()
    database = Database.open("sqlite:///elsa.db")
    stored = database.study(name)
    reading = read_studies([stored])
    yield "note", note(stored, reading, analyse_studies(reading))
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATA)
def test_from_a_file_to_predictions_without_a_word_of_other_tasks(
    enter: Callable[[str], str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import pipeline

    name = enter(kind)
    export.main([name, "--threshold", "0.5", "--out", "model"])
    operating_points.main([name])
    terminal = capsys.readouterr().out
    assert "exactly the recorded score" in terminal
    classify = pipeline("text-classification", "model", top_k=None)
    first, last = (" ".join([tiny.WORDS[i]] * 5) for i in (0, 4))
    found = [{answer["label"]: answer["score"] for answer in answers} for answers in classify([first, last])]
    if kind == "regression":
        assert "Texts were cut to 64 tokens in training" in Path("model/README.md").read_text()
        assert 15_000 < found[1]["price"] < found[0]["price"] < 120_000, "in the unit of the file"
    else:
        assert found[0]["business"] > found[1]["business"]
        assert set(found[0]) == set(own.TOPICS)
    known = {"glue", *shipped(), *(task.display.lower() for task in shipped().values())}
    for page, words in (("terminal", terminal), *pages(name)):
        met = known & set(re.findall(r"[a-z0-9-]+", words.lower()))
        assert not met, (page, met)


@pytest.mark.slow
def test_a_tuned_only_folder_is_small_and_gives_the_whole_model_again(news: str) -> None:
    from transformers import AutoModelForSequenceClassification

    for out, flag in {"whole": [], "delta": ["--tuned-only"]}.items():
        export.main([news, "--frozen-layers", "3", "--seed", "2", "--out", out, *flag])
    export.main(["--merge", "delta", "--out", "merged"])
    assert sorted(path.name for path in Path("delta").iterdir()) == [
        "README.md",
        "tuned.json",
        "tuned.safetensors",
    ]
    modes = {path.stat().st_mode for folder in ("delta", "whole") for path in Path(folder).iterdir()}
    assert len(modes) == 1, "whoever may read the card may read the weights"
    whole = AutoModelForSequenceClassification.from_pretrained("whole").state_dict()
    for model in (load("delta"), AutoModelForSequenceClassification.from_pretrained("merged")):
        found = model.state_dict()
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[key], whole[key]) for key in whole)
    about = json.loads(Path("delta/tuned.json").read_text())
    assert (about["frozen_layers"], about["total_layers"], about["task"]) == (3, 4, "news")
    cards = {name: Path(name, "README.md").read_text() for name in ("whole", "delta", "merged")}
    assert "load_many" in cards["delta"]
    assert "pipeline(" not in cards["delta"]
    assert cards["merged"] == cards["whole"]
    assert "library_name: elsa-study\n" in cards["delta"]
    assert "library_name: transformers\n" in cards["whole"]
    assert Path("merged/tokenizer_config.json").read_text() == Path("whole/tokenizer_config.json").read_text()


@pytest.mark.parametrize("flags", ["--tuned-only", "--threshold 0.9", "--seed 1", "--best", "--train-size 9"])
def test_merging_takes_no_flags_that_choose_a_run(flags: str) -> None:
    with pytest.raises(UsageError, match=f"does not use {flags.split()[0]}: leave it out"):
        export.main(["--merge", "delta", "--out", "merged", *flags.split()])


def test_another_base_is_refused_and_the_same_elsewhere_is_not(news: str) -> None:
    export.main([news, "--frozen-layers", "3", "--tuned-only", "--out", "delta"])
    other = tiny.save_model("bert", Path("other"), initializer_range=0.05)
    with pytest.raises(UsageError, match="other is not the base of delta") as caught:
        load("delta", base=other)
    assert "\n" not in str(caught.value)
    about = Path("delta/tuned.json")
    about.write_text(about.read_text().replace("/tiny", "/gone"))
    with pytest.raises(UsageError, match="gone cannot be loaded"):
        load("delta")
    assert load("delta", base="tiny").config.id2label[0] == "business"


def test_the_card_has_results_intervals_costs_and_an_index(news: str) -> None:
    export.main([news, "--frozen-layers", "3", "--out", "model"])
    text = Path("model/README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    (entry,) = head["model-index"]
    values = {found["type"]: found["value"] for found in entry["results"][0]["metrics"]}
    assert set(values) == {"accuracy", "macro_f1"}
    assert f"{values['accuracy']:.4f}" in text
    assert entry["results"][0]["dataset"] == {"name": "news", "type": "news", "split": "validation"}
    for word in ("95 % interval", "parameters trained", "training time", "Operating points", "Caveats"):
        assert word in text
    assert "sqlite" not in text


def test_the_index_names_data_of_any_name_as_the_hub_does() -> None:
    task = {"name": "my news & more", "text": "text", "labels": ["a", "b"], "metrics": ["accuracy"]}
    spec = stored.make_spec(task=task["name"], metric="accuracy", definition=task)
    record = TrialRecord(metric="accuracy", score=0.5, metrics={"accuracy": 0.5})
    text = _front_matter("name", spec, record, tuned_only=False)
    (entry,) = yaml.safe_load(text.split("---")[1])["model-index"]
    assert entry["results"][0]["dataset"]["type"] == "my-news-more"


@pytest.mark.slow
def test_the_run_is_the_median_the_best_or_the_one_that_was_named(
    enter: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = enter("regression")
    table = Study.open(name).table()
    seeds = table[table["frozen_layers"] == 3].sort_values("score")["seed"].tolist()
    for words, seed in ((["--best"], seeds[-1]), ([], seeds[1]), (["--seed", "3"], 3)):
        capsys.readouterr()
        export.main([name, "--frozen-layers", "3", *words, "--out", f"m{len(words)}{seed}"])
        assert f"seed={seed}," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "1.0", "--seed", "9"], "--seed 9 has no complete trial there: choose from"),
        (["--frozen-layers", "2"], "--frozen-layers 2 has no complete trial: choose from 0, 3"),
        (["--train-size", "7"], "--train-size 7 was not studied"),
        (["--merge", "x"], "name a STUDY to export, or with --merge"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(news: str, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        export.main([news, *words, "--out", "model"])
    assert "\n" not in str(caught.value)
    assert not Path("model").exists()


def test_a_folder_that_holds_something_is_refused_before_anything_is_trained(news: str) -> None:
    with pytest.raises(UsageError, match="--out tiny exists"):
        export.main([news, "--out", "tiny"])
    with pytest.raises(UsageError, match=r"no tuned\.json"):
        export.main(["--merge", "tiny", "--out", "model"])


@pytest.mark.slow
def test_weights_that_trials_keep_are_exported_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    tiny.save_model("bert", Path("tiny"))
    own.save(Path("price.csv"), own.priced(60))
    words = f"--data price.csv --model ./tiny {GRID} --seeds 1, --epochs 3 --score best"
    name = own.study(*words.split(), keep="models", models_dir="kept")
    (table,) = [Study.open(name).table()]
    assert sorted(Path(path).name for path in table["weights"]) == sorted(
        path.name for path in Path("kept").glob("*/*")
    )
    depths = ["--frozen-layers", "3"]
    export.main([name, *depths, "--out", "kept-model"])
    said = capsys.readouterr().out
    assert "of the weights that the trial kept" in said
    assert "training it again" not in said
    (file,) = Path("kept").glob("*/frozen3*")
    file.rename("elsewhere")
    export.main([name, *depths, "--out", "retrained"])
    said = capsys.readouterr().out
    assert "are not there" in said
    assert "exactly the recorded score" in said
    (other,) = Path("kept").glob("*/frozen0*")
    other.rename(file)
    export.main([name, *depths, "--tuned-only", "--out", "delta"])
    assert "are of another trial" in capsys.readouterr().out
    whole = load_file("retrained/model.safetensors")
    assert all(
        torch.equal(value, whole[key]) for key, value in load_file("kept-model/model.safetensors").items()
    )
    assert all(torch.equal(value, whole[key]) for key, value in load("delta").state_dict().items())


def test_a_study_exports_itself(news: str) -> None:
    folder = Study.open(news).export("model", frozen_layers=3, tuned_only=True)
    assert (folder / "tuned.json").exists()
