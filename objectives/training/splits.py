"""A study's examples as its model sees them: the training pool, the validation splits, the selection split.

Which rows a training size takes, in which batches, and with which stored states; nothing is computed on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from objectives.data.encoding import Encoded, encode, join, training_batches
from objectives.data.task_data import draw_subset, split_selection
from objectives.training.batches import Split

if TYPE_CHECKING:
    from objectives.contract import Recipe
    from objectives.data.task_data import TaskData
    from objectives.prefix.building import Builder
    from objectives.pretrained.models import Pretrained
    from objectives.training.batches import Stored

SELECTION = "selection"
TEST = "test"


class Splits:
    """`splits[name]`: "train", the validation splits, and "test" and "selection" where there are such."""

    def __init__(
        self,
        data: TaskData,
        recipe: Recipe,
        pretrained: Pretrained,
        *,
        model_fingerprint: str,
        largest_train_size: int | None,
        folder: Path,
        builder: Callable[[Encoded], Builder],
    ):
        self._data, self._recipe = data, recipe
        left = pretrained.model.config.model_type == "xlnet"
        key = f"{model_fingerprint}\0{data.fingerprint}\0{left}"

        def tokens(name: str, dataset: Any) -> Encoded:
            return encode(
                data.task,
                dataset,
                pretrained.tokenizer,
                max_length=recipe.max_length,
                left=left,
                key=f"{key}\0{name}",
                cache=folder,
            )

        whole = tokens("train", data.train)
        held: NDArray[np.int64] | None = None
        if recipe.selection_split:
            self._pool, held = split_selection(data, recipe.selection_split)
        else:
            self._pool = draw_subset(data, largest_train_size)
        examples = {"train": whole if len(self._pool) == len(whole) else whole.take(self._pool)}
        examples |= {name: tokens(name, split) for name, split in data.validation.items()}
        if data.test is not None:
            examples[TEST] = tokens(TEST, data.test)
        if held is not None:
            examples[SELECTION] = whole.take(held)
        # States are stored of all splits together: one file per depth.
        joined = join(list(examples.values()))
        ends = np.cumsum([len(encoded) for encoded in examples.values()])
        self._splits = {
            name: Split(joined.slice(int(end) - len(encoded), int(end)), int(end) - len(encoded))
            for (name, encoded), end in zip(examples.items(), ends, strict=True)
        }
        self.builder = builder(joined)

    def __getitem__(self, name: str) -> Split:
        return self._splits[name]

    def __contains__(self, name: str) -> bool:
        return name in self._splits

    def encoded(self) -> list[Encoded]:
        return [split.encoded for split in self._splits.values()]

    def evaluated(self) -> list[str]:
        """The names of the splits that every evaluation predicts: the task's own, and the selection split."""
        return [*self._data.task.validation, *([SELECTION] if SELECTION in self else [])]

    def rows(self, train_size: int | None) -> NDArray[np.int64]:
        """The places in the training pool that this size trains on."""
        if train_size is None:
            return np.arange(len(self._pool))
        drawn = draw_subset(self._data, train_size, held_out=self._recipe.selection_split)
        return np.searchsorted(self._pool, drawn)

    def batches(
        self, seed: int, rows: NDArray[np.int64], steps: int, done: int = 0
    ) -> Iterator[NDArray[np.int64]]:
        """The global batches of a run on these rows, the same in every process, from step `done` on."""
        generator = np.random.default_rng(seed)
        lengths = self["train"].encoded.lengths[rows]
        taken = 0
        while True:
            for batch in training_batches(
                lengths, self._recipe.batch_size, generator, self._recipe.group_by_length
            ):
                if taken == steps:
                    return
                taken += 1
                if taken > done:
                    yield rows[batch]

    def training_share(self) -> float:
        """Of all tokens, those of the training examples."""
        return float(self["train"].encoded.offsets[-1] / self.builder.encoded.offsets[-1])

    @property
    def states(self) -> Stored | None:
        """Of all examples at the trial's depth, where they are cached."""
        return self["train"].states

    @states.setter
    def states(self, states: Stored | None) -> None:
        for split in self._splits.values():
            split.states = states
