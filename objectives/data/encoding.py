"""Tokenised examples without padding: flat arrays with offsets, and batches drawn from them.

Tokenisation is done once per model, data and length, and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from objectives.data.token_cache import cached
from objectives.tasks.definition import Task

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

CHUNK = 1000
"""Examples that are tokenised at a time."""
OFFSETS = "offsets"
MEGABATCH = 50
"""Batches that are shuffled together before they are sorted by length, as Transformers does."""


@dataclass(frozen=True)
class Encoded:
    """Examples as model inputs, ragged: row i of a column is `flat[offsets[i]:offsets[i + 1]]`."""

    columns: dict[str, NDArray[np.int32]]
    offsets: NDArray[np.int64]
    labels: NDArray[Any]
    pad: dict[str, int]
    left: bool
    """Pad on the left (XLNet reads its answer off the last position)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def digest(self) -> str:
        """Of what the model sees, hence of the data, the tokenizer and the length at once."""
        digest = hashlib.sha256(f"{self.left}".encode())
        for name, flat in sorted(self.columns.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(flat).data)
        digest.update(self.offsets.data)
        return digest.hexdigest()

    def take(self, rows: NDArray[np.int64]) -> Encoded:
        """A subset that shares nothing with this one."""
        spans = [np.arange(self.offsets[row], self.offsets[row + 1]) for row in rows]
        places = np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)
        return Encoded(
            {name: flat[places] for name, flat in self.columns.items()},
            np.concatenate([[0], np.cumsum(self.lengths[rows])]),
            self.labels[rows],
            self.pad,
            self.left,
        )

    def slice(self, first: int, last: int) -> Encoded:
        """The examples from `first` to before `last`; tokens are shared with this one."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        columns = {name: flat[begin:end] for name, flat in self.columns.items()}
        offsets = self.offsets[first : last + 1] - begin
        return Encoded(columns, offsets, self.labels[first:last], self.pad, self.left)

    def pad_rows(self, rows: NDArray[np.int64], multiple: int = 1) -> dict[str, NDArray[np.int64]]:
        """Model inputs of these rows, padded to the longest of them, with the attention mask.

        To a multiple only where that adds at most an eighth: short texts would lose more than they gain.
        """
        lengths = self.lengths[rows]
        longest = int(lengths.max())
        rounded = -(-longest // multiple) * multiple
        width = rounded if 8 * (rounded - longest) <= longest else longest
        positions = np.arange(width)
        mask = positions >= (width - lengths)[:, None] if self.left else positions < lengths[:, None]
        first = self.offsets[rows]
        places = np.repeat(first - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(
            lengths.sum()
        )
        padded = {"attention_mask": mask.astype(np.int64)}
        for name, flat in self.columns.items():
            block = np.full(mask.shape, self.pad[name], dtype=np.int64)
            block[mask] = flat[places]
            padded[name] = block
        return padded


def encode(
    task: Task,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    left: bool,
    key: str,
    cache: Path,
) -> Encoded:
    """Tokenise, or take what another worker has tokenised under the same key."""
    name = hashlib.sha256(f"{key}\0{max_length}\0{len(dataset)}".encode()).hexdigest()[:20]
    columns = cached(cache, name, lambda: _tokenise(task, dataset, tokenizer, max_length))
    offsets = columns.pop(OFFSETS)
    pads = _pads(tokenizer)
    # Labels come from the data, never from the cache.
    return Encoded(columns, offsets, np.asarray(dataset["label"][:]), pads, left)


def join(parts: Sequence[Encoded]) -> Encoded:
    """All examples of several sets, one after the other."""
    lengths = np.concatenate([part.lengths for part in parts])
    return Encoded(
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([part.labels for part in parts]),
        parts[0].pad,
        parts[0].left,
    )


def _pads(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    return {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}


def _tokenise(
    task: Task, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> dict[str, NDArray[Any]]:
    """Flat columns of token numbers, and where each example begins."""
    wanted = [name for name, pad in _pads(tokenizer).items() if pad is not None]
    parts: dict[str, list[NDArray[np.int32]]] = {}
    lengths: list[int] = []
    for at in range(0, len(dataset), CHUNK):
        rows = dataset[at : at + CHUNK]
        texts = [rows[column] for column in task.text]
        made = tokenizer(*texts, truncation=True, max_length=max_length, return_attention_mask=False)
        lengths += map(len, made["input_ids"])
        for name in wanted:
            if name in made:
                flat = np.fromiter(chain.from_iterable(made[name]), dtype=np.int32)
                parts.setdefault(name, []).append(flat)
    columns: dict[str, NDArray[Any]] = {name: np.concatenate(part) for name, part in parts.items()}
    return {**columns, OFFSETS: np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)}


def training_batches(
    lengths: NDArray[np.int64], batch_size: int, generator: np.random.Generator, group_by_length: bool
) -> list[NDArray[np.int64]]:
    """One epoch's batches: every row once, shuffled; grouped so that a batch holds similar lengths."""
    order = generator.permutation(len(lengths))
    if not group_by_length:
        return [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
    span = MEGABATCH * batch_size
    batches: list[NDArray[np.int64]] = []
    for at in range(0, len(order), span):
        chunk = order[at : at + span]
        chunk = chunk[np.argsort(-lengths[chunk], kind="stable")]
        batches.extend(chunk[i : i + batch_size] for i in range(0, len(chunk), batch_size))
    return [batches[i] for i in generator.permutation(len(batches))]


def evaluation_batches(lengths: NDArray[np.int64], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Rows from the longest to the shortest, as many at a time as fit into so many padded tokens."""
    order = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(order):
        size = max(1, tokens // int(lengths[order[at]]))
        yield order[at : at + size]
        at += size
