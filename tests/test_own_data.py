"""Data of people's own: what is guessed of them, what is cut, counted and said, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import own
import pytest

from objectives.contract import HubError, UsageError
from objectives.data import readers
from objectives.data.inference import told
from objectives.data.task_data import TaskData, draw_subset, load_data
from objectives.tasks.definition import get_task
from study.launching.asked_tasks import asked_data
from study.launching.inputs import Inputs


def read(path: str, **wishes: Any) -> TaskData:
    (data,) = asked_data(Inputs(data=path, **wishes))
    return data


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet", "tsv"])
def test_a_file_of_strings_becomes_a_task_of_classes(tmp_path: Path, ending: str) -> None:
    data = read(own.save(tmp_path / f"news.{ending}", own.news(100)))
    task = data.task
    assert (task.name, task.text, task.label, task.kind) == ("news", ("text",), ("category",), "classes")
    assert task.labels == own.TOPICS
    assert task.metrics == ("accuracy", "macro_f1")
    assert told(task) == (
        'text: "text", label: "category" (5 classes: business, politics, sport …), metric: accuracy, macro_f1'
    )
    assert set(data.train["label"]) == set(range(5))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_lists_of_labels_become_a_multi_label_task(tmp_path: Path, ending: str) -> None:
    rows = own.tagged(100)
    data = read(own.save(tmp_path / f"tags.{ending}", rows))
    assert (data.task.kind, data.task.labels) == ("multi-label", own.TOPICS)
    assert data.task.metrics[0] == "micro_f1"
    first = dict(zip((row["text"] for row in rows), (row["tags"] for row in rows), strict=True))
    for text, vector in zip(data.train["text"], data.train["label"], strict=True):
        assert [own.TOPICS[i] for i in np.flatnonzero(vector)] == first[text]


def test_columns_of_zeros_and_ones_become_a_multi_label_task(tmp_path: Path) -> None:
    rows = [
        {"text": row["text"], "toxic": int("sport" in row["tags"]), "rude": "tech" in row["tags"]}
        for row in own.tagged(60)
    ]
    data = read(own.save(tmp_path / "comments.csv", rows))
    assert (data.task.kind, data.task.label) == ("multi-label", ("toxic", "rude"))
    assert data.task.labels == ("toxic", "rude")
    assert np.asarray(data.train["label"]).shape[1] == 2


def test_fractions_become_a_regression_of_any_range(tmp_path: Path) -> None:
    data = read(own.save(tmp_path / "price.csv", own.priced(60)))
    assert (data.task.kind, data.task.text, data.task.label) == ("regression", ("description",), ("price",))
    assert data.task.metrics[0] == "spearman"
    assert max(data.train["label"]) > 50_000


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        ([1, 2, 3, 4, 5] * 4, "classes", ("1", "2", "3", "4", "5")),
        ([True, False] * 10, "classes", ("false", "true")),
        ([10, 2, 33] * 7, "classes", ("2", "10", "33")),
        (list(range(30)) * 6, "classes", tuple(map(str, range(30)))),
        (list(range(7, 207)), "regression", ()),
        ([0.5, 1.5] * 10, "regression", ()),
        ([1.0, 2.0] * 10, "classes", ("1", "2")),
    ],
)
def test_numbers_are_classes_where_they_are_few_or_count(
    tmp_path: Path, labels: list[Any], kind: str, names: tuple[str, ...]
) -> None:
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]
    data = read(own.save(tmp_path / "a.jsonl", rows))
    assert (data.task.kind, data.task.labels) == (kind, names)
    if names:
        shown = {data.task.labels[number] for number in data.train["label"]}
        assert shown <= {str(label).lower().removesuffix(".0") for label in labels}


def test_wishes_overrule_every_guess(tmp_path: Path) -> None:
    rows = [{"id": i, "left": f"a {i}", "right": f"b {i}", "grade": i % 5, "label": "x"} for i in range(40)]
    path = own.save(tmp_path / "pairs.csv", rows)
    data = read(
        path, task=("mine",), text=("left", "right"), label=("grade",), kind="regression", metric=("mae",)
    )
    task = data.task
    assert (task.name, task.text, task.label, task.kind) == (
        "mine",
        ("left", "right"),
        ("grade",),
        "regression",
    )
    assert task.metrics == ("mae",)


def test_pairs_are_known_by_their_names(tmp_path: Path) -> None:
    rows = [{"premise": f"a {i}", "hypothesis": f"b {i}", "label": i % 2} for i in range(20)]
    assert read(own.save(tmp_path / "nli.csv", rows)).task.text == ("premise", "hypothesis")


def test_a_missing_validation_split_is_cut_from_train(tmp_path: Path) -> None:
    path = own.save(tmp_path / "news.csv", own.news(500))
    data = read(path)
    held = data.validation["validation"]
    assert (len(data.train), len(held)) == (400, 100)
    assert not set(data.train["text"]) & set(held["text"])
    whole = np.bincount([*data.train["label"], *held["label"]]) / 500
    assert np.abs(np.bincount(held["label"]) - 100 * whole).max() <= 1, "stratified"
    assert read(path).fingerprint == data.fingerprint, "seeded"
    assert "20 % of the training examples (100) are held out" in data.remarks[0]


def test_examples_with_the_same_text_are_held_out_together(tmp_path: Path) -> None:
    rows = own.news(60)
    data = read(own.save(tmp_path / "news.csv", [*rows, *rows[:30], *rows[:10]]))
    assert not set(data.train["text"]) & set(data.validation["validation"]["text"])
    assert len(data.train) + len(data.validation["validation"]) == 100


def test_a_folder_brings_its_own_splits_under_any_of_their_names(tmp_path: Path) -> None:
    for name, count in {"train": 40, "val": 20, "test": 10}.items():
        own.save(tmp_path / "news" / f"{name}.jsonl", own.news(count, seed=count))
    data = read(str(tmp_path / "news"))
    assert data.task.name == "news"
    assert (len(data.train), len(data.validation["validation"])) == (40, 20)
    assert data.test is not None
    assert len(data.test) == 10
    assert data.task.splits.held_out is None
    assert not any("held out" in remark for remark in data.remarks)


def test_a_test_split_without_labels_is_none(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        own.save(tmp_path / f"{name}.jsonl", own.news(20, seed=len(name)))
    own.save(tmp_path / "test.jsonl", [{"text": "a", "category": -1}])
    assert read(str(tmp_path)).test is None


def test_a_column_divides_a_file_and_parts_make_one_split(tmp_path: Path) -> None:
    rows = [{**row, "split": ("train", "train", "dev", "test")[i % 4]} for i, row in enumerate(own.news(80))]
    data = read(own.save(tmp_path / "one.csv", rows))
    assert (len(data.train), len(data.validation["validation"]), len(data.test or ())) == (40, 20, 20)
    for part in range(2):
        own.save(tmp_path / "parts" / f"train-{part:05}-of-00002.parquet", own.news(15, seed=part))
    assert sum(len(read(str(tmp_path / "parts")).validation[s]) for s in ("validation",)) == 6


def test_repeated_and_empty_texts_and_unseen_labels_are_counted_and_said(tmp_path: Path) -> None:
    train = own.news(60)
    own.save(tmp_path / "train.jsonl", [*train, {"text": " ", "category": "sport"}])
    only_here = {"text": "w7 w8", "category": "zoology"}
    own.save(tmp_path / "validation.jsonl", [*train[:7], *own.news(20, seed=9), only_here])
    remarks = " ".join(read(str(tmp_path)).remarks)
    assert "7 of 28 validation texts are also in the training data" in remarks
    assert "1 of 61 training texts is empty" in remarks
    assert "No training example has the label zoology" in remarks


def test_an_imbalanced_task_is_scored_by_macro_f1_first(tmp_path: Path) -> None:
    rows = [{"text": f"mail {i}", "label": "spam" if i % 10 == 0 else "ham"} for i in range(100)]
    data = read(own.save(tmp_path / "mail.csv", rows))
    assert data.task.metrics == ("macro_f1", "accuracy")
    assert any("90 % of the validation examples have the label ham" in remark for remark in data.remarks)


def test_a_thousand_classes_are_drawn_as_evenly_as_they_come(tmp_path: Path) -> None:
    rows = [{"text": f"w{i}", "intent": f"intent {i % 1000:04}"} for i in range(6000)]
    data = read(own.save(tmp_path / "intents.csv", rows))
    assert len(data.task.labels) == 1000
    drawn = draw_subset(data, 2000)
    counts = Counter(np.asarray(data.train["label"])[drawn].tolist())
    assert max(counts.values()) - min(counts.values()) <= 1


def test_texts_that_repeat_are_counted_by_their_examples(tmp_path: Path) -> None:
    rows = [{"text": "" if i % 10 == 0 else f"text {i}", "label": "ab"[i // 2 % 2]} for i in range(200)]
    data = read(own.save(tmp_path / "a.csv", rows))
    held = data.validation["validation"]
    assert (len(held), "" in held["text"]) == (40, False), "the large group is trained on"
    assert data.remarks[0].startswith("The data have no validation split: 20 % of the training examples (40)")
    rows = [{"text": f"text {i % 3}", "label": "ab"[i % 2]} for i in range(30)]
    data = read(own.save(tmp_path / "b.csv", rows))
    assert len(data.validation["validation"]) == 10, "no smaller group is there"
    assert "33.3 % of the training examples (10)" in data.remarks[0]


def test_rows_are_held_out_as_ever_where_no_text_repeats(tmp_path: Path) -> None:
    """Else existing studies of such data could not be resumed."""
    data = read(own.save(tmp_path / "news.csv", own.news(120)))
    assert data.fingerprint == "b4808d340e861ded"
    data = read(own.save(tmp_path / "price.csv", own.priced(60)))
    assert data.fingerprint == "f8b37dd720dfe572"


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_vectors_of_labels_are_read_place_by_place(tmp_path: Path, ending: str) -> None:
    rows = [{"text": f"text {i}", "labels": [int(i % 4 == j or j == 1) for j in range(4)]} for i in range(40)]
    data = read(own.save(tmp_path / f"a.{ending}", rows))
    assert (data.task.kind, data.task.labels) == ("multi-label", ("0", "1", "2", "3"))
    wanted = {row["text"]: row["labels"] for row in rows}
    for text, vector in zip(data.train["text"], data.train["label"], strict=True):
        assert list(vector) == wanted[text]
    numbers = [{"text": f"text {i}", "labels": [0, 1] if i % 3 else [i % 2]} for i in range(40)]
    data = read(own.save(tmp_path / f"b.{ending}", numbers))
    assert data.task.labels == ("0", "1"), "numbers of labels, not vectors"
    assert set(map(tuple, data.train["label"])) == {(1, 1), (1, 0), (0, 1)}


@pytest.mark.parametrize("write", [str, lambda tags: "[" + " ".join(map(repr, tags)) + "]"])
def test_lists_as_python_writes_them_are_lists(tmp_path: Path, write: Any) -> None:
    rows = own.tagged(60)
    whole = read(own.save(tmp_path / "tags.jsonl", rows))
    data = read(own.save(tmp_path / "tags.csv", [{**row, "tags": write(row["tags"])} for row in rows]))
    assert data.task.kind == "multi-label"
    assert data.fingerprint == whole.fingerprint


def test_a_quoted_tsv_file_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    import csv

    texts = [f'he said "{i}"\tand\nleft' for i in range(20)]
    with open(tmp_path / "a.tsv", "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([("text", "label"), *((text, "xy"[i % 2]) for i, text in enumerate(texts))])
    data = read(str(tmp_path / "a.tsv"))
    assert {*data.train["text"], *data.validation["validation"]["text"]} == set(texts)
    (tmp_path / "b.tsv").write_text('text\tlabel\n"a" b\tx\nc\ty\n')
    with pytest.raises(UsageError, match="line 2 cannot be read as TSV"):
        read(str(tmp_path / "b.tsv"))


@pytest.mark.parametrize("name", ["sst2", "rte", "mrpc"])
def test_glues_own_files_are_read_without_quoting(tmp_path: Path, name: str) -> None:
    columns = {
        "sst2": "sentence\tlabel",
        "rte": "index\tsentence1\tsentence2\tlabel",
        "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    }[name]
    row = {"sst2": '"a" b\t0', "rte": '0\t"a" b\tc "\tentailment', "mrpc": '1\t2\t3\t"a" b\tc "'}[name]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(f"{columns}\n{row}\n")
    data = load_data(get_task(name), str(tmp_path))
    assert data.train[0][data.task.text[0]] == '"a" b'


def test_a_split_column_may_say_training_and_testing(tmp_path: Path) -> None:
    names = ("training", "Train", "dev", "valid", "testing")
    rows = [{**row, "split": names[i % 5]} for i, row in enumerate(own.news(100))]
    data = read(own.save(tmp_path / "a.csv", rows))
    assert (len(data.train), len(data.validation["validation"]), len(data.test or ())) == (40, 40, 20)
    for i in (3, 4, 5):
        rows[i]["split"] = "holdout" if i > 3 else ""
    with pytest.raises(UsageError, match=r"column split says .*nothing \(1\).*holdout \(2\).*: use train"):
        read(own.save(tmp_path / "b.csv", rows))
    rows = [{**row, "split": "north" if i % 2 else "south"} for i, row in enumerate(own.news(40))]
    assert len(read(own.save(tmp_path / "c.csv", rows)).train) == 32, "another kind of column"


def test_what_a_missing_label_is_and_where(tmp_path: Path) -> None:
    nan = float("nan")
    cases: list[tuple[str, list[Any], str]] = [
        ("a.parquet", [0.0, 1.0, nan, 1.0], "a.parquet: example 3 has no label: the label is missing"),
        ("b.jsonl", ["x", None, "y", "x"], "example 2 has no label"),
        ("c.csv", [0, 1, "NaN", 1], "example 3 has no label"),
        ("d.csv", [0.5, 1.5, "", 1.25], "example 3 has no label: the label is missing"),
        ("e.csv", [0.5, 1.5, "nan", 1.25], "example 3 has no label: the label is missing"),
    ]
    for name, labels, message in cases:
        rows = [{"text": f"t {i}", "label": label} for i, label in enumerate(labels)]
        with pytest.raises(UsageError, match=message):
            read(own.save(tmp_path / name, rows))
    rows = [{"text": f"t {i}", "label": label} for i, label in enumerate(["NaN", "naan", "roti"] * 5)]
    assert "NaN" in read(own.save(tmp_path / "bread.csv", rows)).task.labels, "a name among names"
    own.save(tmp_path / "two" / "train.csv", [{"text": f"t {i}", "label": "ab"[i % 2]} for i in range(9)])
    own.save(tmp_path / "two" / "validation.csv", [{"text": "u", "label": "a"}, {"text": "v", "label": ""}])
    with pytest.raises(UsageError, match=r"validation\.csv: example 2 has no label"):
        read(str(tmp_path / "two"))


def test_an_unlabelled_test_split_is_said(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        own.save(tmp_path / f"{name}.jsonl", own.news(20, seed=len(name)))
    own.save(tmp_path / "test.jsonl", [{"text": "a"}])
    assert "The test split has no labels and is not scored." in read(str(tmp_path)).remarks


def test_a_number_among_texts_is_named(tmp_path: Path) -> None:
    rows = [{"text": 7 if i == 3 else f"t {i}", "label": "ab"[i % 2]} for i in range(20)]
    with pytest.raises(UsageError, match="example 4 has 7 in column text, which is not a text"):
        read(own.save(tmp_path / "a.jsonl", rows))


def test_a_column_that_numbers_the_rows_is_no_label(tmp_path: Path) -> None:
    rows = [{"id": i, "text": f"t {i}", "flag": i % 2 == 0} for i in range(20)]
    assert read(own.save(tmp_path / "a.jsonl", rows)).task.label == ("flag",)
    with pytest.raises(UsageError, match="which column is the label"):
        read(own.save(tmp_path / "b.jsonl", [{"id": row["id"], "text": row["text"]} for row in rows]))


def test_one_label_alone_is_told_as_one(tmp_path: Path) -> None:
    rows = [{"text": f"t {i}", "labels": ["x"] if i % 2 else []} for i in range(20)]
    assert "(1 label, on or off: x)" in told(read(own.save(tmp_path / "a.jsonl", rows)).task)


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "one class": ("a.csv", b"text,label\na,x\nb,x\nc,x\n", "one class only .x.: there is nothing to learn"),
    "latin1": ("a.csv", "text,label\ncaf\xe9,x\n".encode("latin1"), "is not UTF-8 .byte 0xe9 at 14.*iconv"),
    "no label": ("a.csv", b"text,label\na,x\nb,\nc,y\n", "example 2 has no label"),
    "an id": (
        "a.csv",
        b"text,label\n" + b"".join(b"t%d,id%d\n" % (i, i) for i in range(20)),
        "is it the label",
    ),
    "no text": (
        "a.jsonl",
        b'{"text": null, "label": 1}\n{"text": "b", "label": 0}\n',
        "example 1 has no text",
    ),
    "null": ("a.jsonl", b'{"text": "a", "label": 1}\nnull\n', "example 2 is no object"),
    "broken": ("a.jsonl", b'{"text": "a", "label": 1\n', "line 1 cannot be read as JSON"),
    "ragged": ("a.csv", b"text,label\na,x,y\n", "line 2 has 3 columns, the header 2"),
    "nul": ("a.csv", b"text,label\na\0,x\n", "line 2 has a NUL"),
    "empty": ("a.csv", b"", "is empty"),
    "header alone": ("a.csv", b"text,label\n", "has no examples"),
    "twice": ("a.csv", b"text,text\na,b\n", "two columns named 'text'"),
    "ending": ("a.xlsx", b"x", "unknown kind of file"),
    "which label": ("a.csv", b"text,p,q,r\na,u1,v1,w1\nb,u2,v2,w2\n", "which column is the label"),
    "which text": ("a.csv", b"aa,bb,label\nxx,yy,0\nzz,uu,1\n", "which column is the text"),
    "too few": ("a.csv", b"text,label\na,x\na,y\n", "too few to hold out"),
    "one number": (
        "a.csv",
        b"text,label\na,3.5\nb,3.5\nc,3.5\n",
        "label of every example is the same number",
    ),
    "no labels": (
        "a.jsonl",
        b'{"text": "a", "labels": []}\n' * 9,
        "labels of every example are an empty list",
    ),
    "parquet": ("a.parquet", b"nonsense", "cannot be read as Parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_studied_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    name, content, message = REFUSED[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        read(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"label": ("topic",)}, r"no column topic \(it has text, category\)"),
        ({"text": ("body",)}, "no column body"),
        ({"metric": ("rmse",)}, "metric rmse is not for classes"),
        ({"kind": "regression"}, "example 1 has label 'politics'; allowed is a number"),
        ({"task": ("sst2",), "text": ("text",)}, "sst2 is a shipped task"),
        ({"task": ("sst2",)}, "no validation data"),
    ],
)
def test_wishes_that_the_data_do_not_fulfil_are_refused(
    tmp_path: Path, wishes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(own.save(tmp_path / "news.csv", own.news(30)), **wishes)


def test_a_task_file_names_columns_labels_and_source(tmp_path: Path) -> None:
    own.save(tmp_path / "data" / "news.csv", own.news(30))
    file = tmp_path / "news.toml"
    file.write_text(
        'name = "headlines"\ntext = "text"\nlabel = "category"\nmetrics = ["macro_f1"]\n'
        'source = "data/news.csv"\n'
        f"labels = {list(reversed(own.TOPICS))}\n[splits]\nheld_out = 0.5\n"
    )
    (data,) = asked_data(Inputs(task=(str(file),)))
    assert (data.task.name, data.task.labels[0]) == ("headlines", "weather")
    assert len(data.train) == len(data.validation["validation"]) == 15
    again = load_data(data.task, None)
    assert again.fingerprint == data.fingerprint


def test_a_hub_name_has_an_owner_a_name_and_perhaps_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load(name: str, config: str | None = None) -> Any:
        asked.append((name, config))
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["World", "Sports"])}
        )
        rows = {"text": [f"t {i}" for i in range(40)], "label": [i % 2 for i in range(40)]}
        made = datasets.Dataset.from_dict(rows, features=features)
        return datasets.DatasetDict({"train": made, "test": made.select(range(4))})

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = read("hub:fancyzhx/ag_news")
    assert (data.task.name, data.task.labels) == ("ag_news", ("World", "Sports"))
    assert (len(data.train), len(data.test or ())) == (32, 4)
    read("hub:owner/many/english")
    assert asked == [("fancyzhx/ag_news", None), ("owner/many", "english")]
    with pytest.raises(UsageError, match="use hub:OWNER/NAME"):
        readers.read("hub:a/b/c/d")


def test_a_hub_name_without_owner_may_have_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load(name: str, config: str | None = None) -> Any:
        asked.append((name, config))
        if (name, config) != ("sets", "english"):
            raise FileNotFoundError(f"{name} does not exist")
        features = datasets.Features(
            {"text": datasets.Value("string"), "stars": datasets.ClassLabel(names=["1", "2", "3"])}
        )
        rows = {"text": [f"t {i}" for i in range(30)], "stars": [i % 3 for i in range(30)]}
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = read("hub:sets/english")
    assert asked == [("sets/english", None), ("sets", "english")]
    assert data.task.labels == ("1", "2", "3")
    for text, label in zip(data.train["text"], data.train["label"], strict=True):
        assert label == int(text.split()[1]) % 3, "the number of a name, not the name"
    with pytest.raises(HubError, match=r"data set a/b or a \(configuration b\) .*a/b does not exist"):
        read("hub:a/b")
