"""Loading ahead: every batch once and in order, each process its part, and an end however training ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from objectives.data.encoding import Encoded
from objectives.training.batches import Loader, Rows, Split

CPU = torch.device("cpu")


@pytest.fixture
def split() -> Split:
    lengths = np.array([3, 5, 2, 4, 1, 6, 2])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(offsets[-1], dtype=np.int32) + 10
    encoded = Encoded({"input_ids": tokens}, offsets, np.arange(7), {"input_ids": 0}, left=False)
    return Split(encoded)


def rows(*numbers: int) -> Rows:
    return np.array(numbers, dtype=np.int64)


def test_batches_come_in_order_with_their_padding_and_labels(split: Split) -> None:
    first, second = Loader(CPU).training(split, [rows(0, 2), rows(4)])
    assert first.inputs["input_ids"].tolist() == [[10, 11, 12], [18, 19, 0]]
    assert first.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert (first.labels.tolist(), first.weight, first.examples) == ([0, 2], 0.5, 2)
    assert (second.rows.tolist(), second.weight) == ([4], 1.0)


def test_padding_to_a_multiple_never_costs_more_than_an_eighth() -> None:
    def width(longest: int) -> int:
        lengths = np.array([longest, 1])
        tokens = {"input_ids": np.ones(longest + 1, dtype=np.int32)}
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        encoded = Encoded(tokens, offsets, np.zeros(2, dtype=np.int64), {"input_ids": 0}, False)
        padded = encoded.pad_rows(np.array([0, 1]), multiple=8)
        assert padded["attention_mask"].sum() == longest + 1
        return int(padded["input_ids"].shape[1])

    assert [width(n) for n in (5, 11, 15, 16, 33, 36, 57, 100)] == [5, 11, 16, 16, 33, 40, 64, 104]


def test_processes_share_a_batch_and_its_mean(split: Split) -> None:
    batches = [rows(0, 1, 2), rows(3)]
    parts = [list(Loader(CPU, process, 2).training(split, batches)) for process in (0, 1)]
    assert [part[0].rows.tolist() for part in parts] == [[0, 2], [1]]
    assert [part[0].weight for part in parts] == [1 / 3, 1 / 3]
    # The process without an example takes part with one that does not count.
    assert [(part[1].rows.tolist(), part[1].weight) for part in parts] == [([3], 1.0), ([3], 0.0)]
    assert all(
        batch.examples == len(whole) for part in parts for batch, whole in zip(part, batches, strict=True)
    )


def test_processes_take_part_in_every_micro_batch(split: Split) -> None:
    parts = [list(Loader(CPU, p, 2, micro_batch=1).training(split, [rows(0, 1, 2)])) for p in (0, 1)]
    assert [[batch.ends_step for batch in part] for part in parts] == [[False, True]] * 2
    assert sorted(batch.rows[0] for batch in parts[0]) == [0, 2]
    assert [(batch.rows.tolist(), batch.weight) for batch in parts[1]] == [([1], 1 / 3), ([0], 0.0)]


def test_processes_evaluate_as_many_batches_where_they_must(split: Split) -> None:
    parts = [list(Loader(CPU, process, 3, together=True).evaluation(split)) for process in range(3)]
    assert len({len(part) for part in parts}) == 1
    assert {row for part in parts for batch in part for row in batch.rows} == set(range(7))


def test_an_evaluation_sees_every_example_once(split: Split) -> None:
    seen = [
        row
        for process in range(3)
        for batch in Loader(CPU, process, 3).evaluation(split)
        for row in batch.rows
    ]
    assert sorted(seen) == list(range(7))


def test_the_next_batches_are_read_while_one_is_used(split: Split) -> None:
    asked: list[int] = []

    def batches() -> Iterator[Rows]:
        for number in range(6):
            asked.append(number)
            yield rows(number)

    stream = Loader(CPU).training(split, batches())
    next(stream)
    assert asked == [0, 1, 2]
    stream.close()


def test_a_training_that_stops_leaves_no_thread(split: Split) -> None:
    before = threading.active_count()
    stream = Loader(CPU).training(split, (rows(number) for number in range(6)))
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_an_error_of_the_reader_reaches_the_training(split: Split) -> None:
    with pytest.raises(IndexError):
        list(Loader(CPU).training(split, [rows(99)]))
