"""Tasks, data files, labels, subsets and metrics: what is read, what is refused, what is drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from objectives.contract import HubError, UsageError
from objectives.data.task_data import DEMO, draw_subset, load_data, nested_order, split_selection
from objectives.tasks.definition import get_task, shipped
from objectives.tasks.metrics import chance, evaluate

ROWS: dict[str, dict[str, Any]] = {
    "cola": {"sentence": "a b", "label": 1},
    "sst2": {"sentence": "a b", "label": 0},
    "mrpc": {"sentence1": "a", "sentence2": "b", "label": 1},
    "stsb": {"sentence1": "a", "sentence2": "b", "label": 3.5},
    "qqp": {"question1": "a", "question2": "b", "label": 0},
    "mnli": {"premise": "a", "hypothesis": "b", "label": 2},
    "qnli": {"question": "a", "sentence": "b", "label": 1},
    "rte": {"sentence1": "a", "sentence2": "b", "label": 0},
    "wnli": {"sentence1": "a", "sentence2": "b", "label": 1},
}
TSV = {
    "cola": "gj04\t1\t\ta b\n",
    "sst2": "sentence\tlabel\na b\t0\n",
    "mrpc": 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta "quoted\tb\n',
    "stsb": "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t3.5\n",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t0\n",
    "mnli": "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tcontradiction\n",
    "qnli": "index\tquestion\tsentence\tlabel\n0\ta\tb\tnot_entailment\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
    "wnli": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n",
}

FINGERPRINTS = {
    "cola": "82a02d3c110d86fc",
    "sst2": "44a3aa62ee8f37d4",
    "mrpc": "57e353682a11b23d",
    "stsb": "9db98524feef0bbe",
    "qqp": "6885bdefcd0bbf6b",
    "mnli": "ed075ebded2ea8ad",
    "qnli": "c1f06c9408a65797",
    "rte": "8a3b56cd8e431e29",
    "wnli": "d73be45f8ab755d2",
}
"""Of the demo's data. Where one changes, the demo's studies can no longer be joined or extended."""


def write(folder: Path, rows: list[dict[str, Any]], ending: str = "jsonl", task: str = "sst2") -> str:
    import pandas as pd

    folder.mkdir(exist_ok=True)
    for split in ("train", *get_task(task).validation):
        frame = pd.DataFrame(rows)
        path = folder / f"{split}.{ending}"
        match ending:
            case "jsonl":
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            case "csv":
                frame.to_csv(path, index=False)
            case "parquet":
                frame.to_parquet(path)
    return str(folder)


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_every_task_reads_every_format_alike(tmp_path: Path, name: str, ending: str) -> None:
    data = load_data(get_task(name), write(tmp_path / "data", [ROWS[name]] * 3, ending, name))
    assert data.train[0] == ROWS[name]
    assert tuple(data.validation) == get_task(name).validation


@pytest.mark.parametrize("name", shipped())
def test_every_task_reads_its_own_glue_layout(tmp_path: Path, name: str) -> None:
    for split in ("train", *get_task(name).validation):
        (tmp_path / f"{split.replace('validation', 'dev')}.tsv").write_text(TSV[name])
    row = load_data(get_task(name), str(tmp_path)).train[0]
    expected = ROWS[name] | ({"sentence1": 'a "quoted'} if name == "mrpc" else {})
    assert row == expected


def test_the_fingerprint_follows_the_content_not_the_place_or_format(tmp_path: Path) -> None:
    rows = [ROWS["sst2"], {"sentence": "c", "label": 1}]
    first = load_data(get_task("sst2"), write(tmp_path / "a", rows)).fingerprint
    assert load_data(get_task("sst2"), write(tmp_path / "b", rows, "csv")).fingerprint == first
    rows[1] = {"sentence": "c", "label": 0}
    assert load_data(get_task("sst2"), write(tmp_path / "c", rows)).fingerprint != first


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "label": 1}], r"no column sentence \(it has text, label\)"),
        ([{"sentence": "a", "label": 2}], "example 1 has label 2; allowed are 0=negative, 1=positive"),
        ([{"sentence": "a", "label": 1}, {"sentence": "a", "label": -1}], "example 2 has label -1"),
        ([{"sentence": "a", "label": "great"}], "label 'great'"),
        ([{"sentence": None, "label": 1}, {"sentence": "b", "label": 1}], "example 1 has no text"),
    ],
)
def test_bad_data_is_refused_with_the_value_at_fault(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_data(get_task("sst2"), write(tmp_path / "data", rows))


def test_missing_folder_file_and_score_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder or file"):
        load_data(get_task("sst2"), str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"no train file \(one of"):
        load_data(get_task("sst2"), str(tmp_path))
    with pytest.raises(UsageError, match=r"label 7\.5; allowed is 0 to 5"):
        load_data(get_task("stsb"), write(tmp_path / "d", [{**ROWS["stsb"], "label": 7.5}], task="stsb"))


def test_an_empty_file_and_two_candidates_are_named(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "data", [ROWS["sst2"]]))
    (folder / "train.csv").write_text("")
    with pytest.raises(UsageError, match=r"train\.(csv|jsonl) and train\.(csv|jsonl)\? Leave one"):
        load_data(get_task("sst2"), str(folder))
    (folder / "train.jsonl").unlink()
    with pytest.raises(UsageError, match=r"train\.csv is empty"):
        load_data(get_task("sst2"), str(folder))


@pytest.mark.slow
def test_an_unreachable_hub_names_the_ways_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = (
        "from objectives.data.task_data import load_data; from objectives.tasks.definition import get_task\n"
        "try: load_data(get_task('rte'), None)\n"
        "except Exception as error: print(type(error).__name__, error.exit_code, error)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": "."}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert answer.stdout.startswith("HubError 3 cannot download data set")
    assert answer.stdout.count("\n") == 1
    for way in ("--data", "--model", "HF_HOME", "--demo"):
        assert way in answer.stdout
    assert HubError.exit_code == 3


def test_unknown_tasks_are_refused_with_a_guess() -> None:
    assert get_task("SST-2").name == "sst2"
    with pytest.raises(UsageError, match="did you mean mrpc"):
        get_task("mrcp")


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.9, 0.1), (0.68, 0.32), (0.5, 0.3, 0.2), (0.34, 0.33, 0.33)]
)
def test_nested_subsets_are_stratified_within_one_example(shares: tuple[float, ...]) -> None:
    total = 997
    labels = np.random.default_rng(3).choice(len(shares), size=total, p=shares)
    order = nested_order(labels, regression=False)
    assert sorted(order) == list(range(total))
    whole = np.bincount(labels, minlength=len(shares)) / total
    for size in range(1, total + 1):
        counts = np.bincount(labels[order[:size]], minlength=len(shares))
        assert np.abs(counts - whole * size).max() < 1


@pytest.mark.slow
def test_subsets_contain_the_smaller_ones_in_every_process(tmp_path: Path) -> None:
    folder = tiny.save_data(tmp_path / "data", 400)
    code = (
        "import sys; from objectives.data.task_data import draw_subset, load_data\n"
        "from objectives.tasks.definition import get_task\n"
        f"data = load_data(get_task('sst2'), {folder!r})\n"
        "print(*draw_subset(data, int(sys.argv[1])))"
    )

    def elsewhere(size: int, hash_seed: str) -> set[int]:
        answer = subprocess.run(
            [sys.executable, "-c", code, str(size)],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ".", "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return {int(word) for word in answer.stdout.split()}

    data = load_data(get_task("sst2"), folder)
    sizes = {size: set(map(int, draw_subset(data, size))) for size in (50, 100, 200)}
    assert sizes[50] < sizes[100] < sizes[200]
    assert {size: len(rows) for size, rows in sizes.items()} == {50: 50, 100: 100, 200: 200}
    assert elsewhere(50, "1") == sizes[50]
    assert elsewhere(200, "2") == sizes[200]
    with pytest.raises(UsageError, match="train_size 401 is beyond the 400"):
        draw_subset(data, 401)


def test_the_selection_split_leaves_the_rest_to_train_on(tmp_path: Path) -> None:
    data = load_data(get_task("sst2"), tiny.save_data(tmp_path / "data", 200))
    kept, held = split_selection(data, 0.2)
    assert len(held) == 40
    assert sorted([*kept, *held]) == list(range(200))


def test_metrics_by_hand() -> None:
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    labels = np.array([0, 1, 0, 1])
    scores = evaluate(get_task("mrpc"), {"validation": logits}, {"validation": labels})
    assert scores == {"f1": 0.5, "accuracy": 0.5}
    assert evaluate(get_task("cola"), {"validation": logits}, {"validation": labels}) == {
        "matthews_correlation": 0.0,
        "accuracy": 0.5,
    }
    ranks = evaluate(
        get_task("stsb"),
        {"validation": np.array([[1.0], [2.0], [4.0]])},
        {"validation": np.array([0.0, 5.0, 3.0])},
    )
    assert ranks["spearman"] == pytest.approx(0.5)
    splits = dict.fromkeys(get_task("mnli").validation, logits)
    both = evaluate(get_task("mnli"), splits, dict.fromkeys(splits, labels))
    assert set(both) == {"accuracy", "accuracy_mismatched"}


def test_a_constant_prediction_correlates_with_nothing() -> None:
    scores = evaluate(
        get_task("stsb"), {"validation": np.ones((3, 1))}, {"validation": np.array([0.0, 5.0, 3.0])}
    )
    assert scores == {"spearman": 0.0, "pearson": 0.0}


def test_chance_is_the_majority_class_or_zero() -> None:
    labels = np.array([1] * 68 + [0] * 32)
    assert chance("accuracy", labels) == 0.68
    assert chance("f1", labels) == pytest.approx(2 * 0.68 / 1.68)
    assert chance("spearman", labels) == chance("matthews_correlation", labels) == 0


@pytest.mark.slow
def test_the_demo_has_every_task() -> None:
    for name, task in shipped().items():
        data = load_data(task, DEMO)
        assert data.source == DEMO
        assert len(data.train) > 100, name
        assert data.fingerprint == FINGERPRINTS[name], name
