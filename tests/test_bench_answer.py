"""`scripts/bench_answer.py`: its subset of the data, its grid, and how it judges answers."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import tiny

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import bench_answer
from bench_answer import Result, likely


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        ({0: 0.02, 3: 0.95, 4: 0.03}, [3]),
        ({3: 0.5, 4: 0.41, 5: 0.09}, [3, 4]),
        ({2: 0.3, 3: 0.3, 4: 0.3, 5: 0.1}, [2, 3, 4]),
        ({}, []),
    ],
)
def test_the_likeliest_answers_hold_nine_tenths(probability: dict[int, float], expected: list[int]) -> None:
    assert likely(probability) == expected


def test_all_ways_see_the_same_part_of_the_data(tmp_path: Path) -> None:
    data = tiny.save_data(tmp_path / "all", 40, 20)
    asked = Namespace(task="sst2", data=data, train_examples=10, validation_examples=50)
    bench_answer.subset(asked, tmp_path / "first")
    bench_answer.subset(asked, tmp_path / "second")
    kept = {path.name: path.read_text() for path in (tmp_path / "first").iterdir()}
    assert kept == {path.name: path.read_text() for path in (tmp_path / "second").iterdir()}
    rows = {name: [json.loads(line) for line in text.splitlines()] for name, text in kept.items()}
    assert {name: len(found) for name, found in rows.items()} == {"train.jsonl": 10, "validation.jsonl": 20}
    assert all(row.keys() == {"sentence", "label"} for row in rows["train.jsonl"])


def test_the_table_compares_with_the_slowest() -> None:
    loop = Result(
        way="loop", seconds=100.0, cpu_seconds=150.0, cells=60, frozen_layers=4, relative=0.95, likely=[4, 5]
    )
    ours = Result(
        way="adaptive", seconds=8.0, cpu_seconds=15.0, cells=20, frozen_layers=None, relative=None, likely=[]
    )
    said = bench_answer.render([loop, ours]).splitlines()
    assert said[1].endswith("60  4 frozen, 95.0% of the full model; likely [4, 5]; 1.0x, 1.0x of CPUs")
    assert said[2].endswith("8.0     15.0     20  none; likely []; 12.5x, 10.0x of CPUs")
