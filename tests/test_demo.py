"""The demo's examples: schemas, labels, determinism, and no way to succeed by remembering."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from objectives.contract import Recipe
from objectives.demo import examples as demo
from objectives.demo.language import draw_scene, tell
from objectives.demo.mistakes import spoil
from objectives.tasks.definition import get_task, shipped

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {
    "cola": ["sentence"],
    "sst2": ["sentence"],
    "mrpc": ["sentence1", "sentence2"],
    "stsb": ["sentence1", "sentence2"],
    "qqp": ["question1", "question2"],
    "mnli": ["premise", "hypothesis"],
    "qnli": ["question", "sentence"],
    "rte": ["sentence1", "sentence2"],
    "wnli": ["sentence1", "sentence2"],
}
CLASSES = {task: (0, 1) for task in COLUMNS if task != "stsb"} | {"mnli": (0, 1, 2)}
SPLITS = [
    (task, split)
    for task in COLUMNS
    for split in (
        ("train", "validation_matched", "validation_mismatched")
        if task == "mnli"
        else ("train", "validation")
    )
]


def examples_of(task: str, split: str) -> list[demo.Example]:
    return demo.examples(task, str(get_task(task).demo), split)


def texts(task: str, split: str) -> list[tuple[str, ...]]:
    return [tuple(example[column] for column in COLUMNS[task]) for example in examples_of(task, split)]


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_examples_have_the_hubs_columns_and_labels(task: str, split: str) -> None:
    examples = examples_of(task, split)
    assert 200 <= len(examples) <= 1500
    assert [example["idx"] for example in examples] == list(range(len(examples)))
    for example in examples:
        assert set(example) == {*COLUMNS[task], "label", "idx"}
        assert all(3 <= len(example[column].split()) <= 24 for column in COLUMNS[task])
    labels = [example["label"] for example in examples]
    if task == "stsb":
        assert all(isinstance(label, float) for label in labels)
        assert min(labels) == 0
        assert max(labels) == 5
    else:
        counts = Counter(labels)
        assert tuple(sorted(counts)) == CLASSES[task]
        assert max(counts.values()) <= len(labels) / len(counts) * 1.35, counts


@pytest.mark.parametrize("task", COLUMNS)
def test_no_example_is_repeated_within_or_across_splits(task: str) -> None:
    seen: set[tuple[str, ...]] = set()
    for split in [s for t, s in SPLITS if t == task]:
        drawn = texts(task, split)
        assert len(set(drawn)) == len(drawn)
        assert not seen & set(drawn)
        seen |= set(drawn)


@pytest.mark.parametrize("task", [task for task, columns in COLUMNS.items() if len(columns) == 2])
def test_no_pair_is_one_sentence_twice(task: str) -> None:
    assert all(first != second for first, second in texts(task, "train"))


def test_always_positive_leaves_room_below_nine_tenths() -> None:
    for task in ("mrpc", "qqp"):
        split = examples_of(task, "validation")
        positives = sum(example["label"] for example in split) / len(split)
        assert 2 * positives / (1 + positives) < 0.7


def test_words_alone_do_not_tell_paraphrases() -> None:
    """The share of words in common separates the classes far less well than meaning does."""
    examples = examples_of("mrpc", "train")

    def overlap(example: dict) -> float:
        first, second = (set(example[column].split()) for column in COLUMNS["mrpc"])
        return len(first & second) / len(first | second)

    best = max(
        sum((overlap(e) >= cut) == bool(e["label"]) for e in examples) / len(examples)
        for cut in {overlap(e) for e in examples}
    )
    assert 0.5 < best < 0.75


def test_the_mismatched_genre_has_other_nouns() -> None:
    words = {
        split: {word for pair in texts("mnli", split) for text in pair for word in text.split()}
        for split in ("train", "validation_matched", "validation_mismatched")
    }
    assert len(words["validation_matched"] - words["train"]) < 10
    assert {"captain", "pirate", "ferry"} <= words["validation_mismatched"] - words["train"]


@pytest.mark.slow
def test_every_process_draws_the_same_examples() -> None:
    program = (
        "import hashlib, json; from objectives.demo.examples import examples; "
        "from objectives.tasks.definition import get_task; "
        f"drawn = [examples(t, get_task(t).demo, s) for t, s in {SPLITS!r}]; "
        "print(hashlib.sha256(json.dumps(drawn).encode()).hexdigest())"
    )
    here = json.dumps([examples_of(task, split) for task, split in SPLITS])
    expected = hashlib.sha256(here.encode()).hexdigest()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_every_sentence_can_be_spoiled() -> None:
    rng = Random(7)
    for _ in range(2_000):
        sentence = tell(rng, draw_scene(rng))
        spoiled = spoil(rng, sentence)
        assert spoiled != sentence
        assert len(spoiled.split()) == len(sentence.split())


@pytest.mark.parametrize(("kind", "split"), [("reviews", "train"), ("paraphrase", "test")])
def test_unknown_names_are_refused_with_the_choices(kind: str, split: str) -> None:
    with pytest.raises(ValueError, match=r"the demo has .*(paraphrase|train)"):
        demo.examples("mrpc", kind, split)


def test_every_shipped_task_has_its_kind_of_examples() -> None:
    assert [task.demo for task in shipped().values()] == list(demo.DRAWS)


def test_the_recipe_is_one() -> None:
    Recipe(**demo.RECIPE)
