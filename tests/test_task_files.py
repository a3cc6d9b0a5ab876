"""Task files: the shipped nine, what is read, what is refused, and the way there and back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from objectives.contract import UsageError
from objectives.tasks.definition import FOLDER, Task, find_task, get_task, shipped
from objectives.tasks.task_file import from_dict, read, to_dict, to_toml

OWN = """
name = "news"
text = "body"
label = "category"
labels = ["business", "sport", "world"]
metrics = ["macro_f1", "accuracy"]
source = "news.csv"
"""


def written(folder: Path, text: str) -> str:
    (folder / "news.toml").write_text(text)
    return str(folder / "news.toml")


def test_the_shipped_tasks_are_the_files_of_a_folder() -> None:
    assert sorted(shipped()) == sorted(path.stem for path in FOLDER.glob("*.toml"))
    assert list(shipped()) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
    for task in shipped().values():
        assert task.display
        assert str(task.source).startswith("hub:")


@pytest.mark.parametrize("name", shipped())
def test_a_task_survives_toml_and_json(name: str) -> None:
    task = get_task(name)
    assert from_dict(tomllib.loads(to_toml(task))) == task
    assert from_dict(json.loads(json.dumps(to_dict(task)))) == task


def test_a_file_of_ones_own_is_read_beside_its_data(tmp_path: Path) -> None:
    task = read(written(tmp_path, OWN))
    assert (task.text, task.label, task.kind) == (("body",), ("category",), "classes")
    assert task.source == str(tmp_path / "news.csv")
    assert task.splits.validation == ("validation",)


def test_names_are_found_however_people_write_them() -> None:
    assert find_task("STS-B") is get_task("stsb")
    assert find_task("reviews") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('kind = "clases"', "kind is 'clases': use classes, multi-label, regression"),
        ('metric = ["f1"]', "unknown key metric: did you mean metrics"),
        ('text = ["a", "b", "c"]', "text names 3 columns: use one or two"),
        ('text = "category"', "must be different columns"),
        ("labels = []", "labels are named for classes"),
        ('labels = ["a"]', "one class only"),
        ('labels = ["a", "a"]', "labels name 'a' twice"),
        ('metrics = ["rmse"]', "metric rmse is not for classes"),
        ("standardise = 1", "standardise is 1: use true or false"),
        ('label = ["a", "b"]', "only a multi-label task has several"),
        ("[splits]\nheld_out = 0.9", "splits.held_out is 0.9: use a share above 0, at most 0.5"),
        ('[splits]\nvalidaton = "dev"', "unknown key splits.validaton: did you mean validation"),
        ('splits = "dev"', "splits is 'dev': use a table"),
        ("name = ", "Invalid value"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(tmp_path: Path, change: str, message: str) -> None:
    key = change.partition(" =")[0]
    kept = [line for line in OWN.splitlines() if not line.startswith(f"{key} ")]
    with pytest.raises(UsageError, match=message) as caught:
        read(written(tmp_path, "\n".join([*kept, change])))
    assert "news.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_key_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="text is missing"):
        read(written(tmp_path, 'name = "a"\nmetrics = ["accuracy"]'))
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file"):
        read(tmp_path / "nowhere.toml")


def test_a_regression_has_a_range_and_no_labels() -> None:
    task = Task(name="t", text=("a",), kind="regression", metrics=("mae",), range=(0.0, 5.0))
    assert from_dict(to_dict(task)) == task
    assert task.outputs == 1
    with pytest.raises(UsageError, match="range is 5 to 0"):
        from_dict({**to_dict(task), "range": [5, 0]})
