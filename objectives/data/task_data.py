"""A task's examples: read, checked, with labels as numbers; and the subsets that are drawn from them.

What is refused: missing columns and texts, labels outside the task's set, empty splits. What is unusual and
no error is a remark, which every page about the study repeats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from objectives.data import labels, readers
from objectives.data.readers import Table
from objectives.errors import UsageError
from objectives.settings import shortened
from objectives.tasks.definition import Task, find_task

if TYPE_CHECKING:
    from datasets import Dataset

DEMO = "demo"
_SUBSET_SEED = 1911
"""Every process draws subsets with this seed, so that all train on the same examples."""
_HELD_OUT_SEED = 3090
"""Of the validation split that is cut from the training data."""


@dataclass(frozen=True)
class TaskData:
    """The splits of one task, with labels as numbers, and a fingerprint of their content."""

    task: Task
    source: str
    train: Dataset
    validation: dict[str, Dataset]
    fingerprint: str
    test: Dataset | None = None
    remarks: tuple[str, ...] = ()
    """What a reader of any result should know of these data."""

    def labels(self, split: str) -> NDArray[Any]:
        """Of a validation split."""
        return np.asarray(self.validation[split]["label"][:])


def load_data(task: Task, source: str | None) -> TaskData:
    """From the task's own source (None), the demo generator ("demo"), a file, a folder or the hub."""
    if source == DEMO:
        tables = _from_demo(task)
    else:
        source = source or task.source
        if source is None:
            raise UsageError(f"{task.name} names no source: say where its data are with --data")
        tables = readers.read(source, wanted_splits(task), _layout(task))
    return build(task, source, tables)


def wanted_splits(task: Task) -> list[str]:
    held_out = () if task.splits.held_out is None else task.validation
    return [
        name
        for name in (task.splits.train, *task.validation, task.splits.test)
        if name and name not in held_out
    ]


def build(task: Task, source: str, tables: dict[str, Table]) -> TaskData:
    """The task's data, made of the splits as they were read."""
    from objectives.data.data_remarks import about

    checked = {name: _check(task, name, tables[name]) for name in wanted_splits(task)}
    train = checked.pop(task.splits.train)
    test = checked.pop(task.splits.test) if task.splits.test else None
    if task.splits.held_out is not None:
        kept, held = hold_out(task, train)
        train, checked = train.select(kept), {task.validation[0]: train.select(held)}
    parts = [train, *checked.values(), *([test] if test is not None else [])]
    data = TaskData(task, source, train, checked, _fingerprint(task, parts), test)
    unscored = (
        ["The test split has no labels and is not scored."] if test is None and "test" in tables else []
    )
    return replace(data, remarks=(*about(data), *unscored))


def _from_demo(task: Task) -> dict[str, Table]:
    from objectives.demo import examples as demo

    if task.demo is None:
        raise UsageError(f"the demo has no task {task.name}")
    found = {}
    for name in ("train", *task.validation):
        rows = demo.examples(task.name, task.demo, name)
        found[name] = Table(DEMO, {column: [row[column] for row in rows] for column in rows[0]})
    return found


def _layout(task: Task) -> dict[str, str | int]:
    """Of every column that the task needs, where TSV files have a layout of their own and no quoting.

    Those of the shipped tasks have, whether or not columns are called otherwise there.
    """
    columns = (*task.text, *task.label)
    own = task.tsv or find_task(task.name) is not None
    return {name: task.tsv.get(name, name) for name in columns} if own else {}


def _check(task: Task, name: str, table: Table) -> Dataset:
    """Only the columns the task needs, labels as numbers; or a UsageError that names what is wrong."""
    from datasets import Dataset

    missing = [column for column in (*task.text, *task.label) if column not in table.columns]
    if missing:
        raise UsageError(
            f"{task.name} {name} data has no column {', '.join(missing)} (it has {', '.join(table.columns)})"
        )
    if len(table) == 0:
        raise UsageError(f"{task.name} {name} data is empty")
    texts: dict[str, Any] = {}
    for column in task.text:
        texts[column] = list(table.column(column))
        bad = next((i for i, text in enumerate(texts[column]) if not isinstance(text, str)), None)
        if bad is not None:
            raise _no_text(task, name, column, bad, texts[column][bad])
    return Dataset.from_dict({**texts, "label": labels.numbers(task, name, table)})


def _no_text(task: Task, name: str, column: str, row: int, value: Any) -> UsageError:
    place = f"{task.name} {name} data: example {row + 1}"
    if labels.is_missing(value, numeric=False):
        return UsageError(f"{place} has no text in column {column}")
    return UsageError(
        f"{place} has {shortened(value)} in column {column}, which is not a text: write it in quotes, or "
        "name another column with --text"
    )


def _fingerprint(task: Task, splits: Sequence[Dataset]) -> str:
    digest = hashlib.sha256(task.name.encode())
    for split in splits:
        for column in (*task.text, "label"):
            values = split[column][:]
            digest.update(f"\0{column}\0{len(values)}\0".encode())
            digest.update("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def texts_of(task: Task, split: Dataset) -> list[tuple[str, ...]]:
    """Each example's text or texts."""
    return list(zip(*(split[column][:] for column in task.text), strict=True))


def strata(task: Task, split: Dataset) -> NDArray[np.float64]:
    """What a draw keeps the shares of: the class, a fifth of the range, or the rarest label of an example."""
    values = np.asarray(split["label"][:], dtype=np.float64)
    if task.regression:
        return _quintiles(values)
    if not task.multi_label:
        return values
    counts = values.sum(axis=0)
    rarity = np.where(values > 0, counts, np.inf)
    return np.where(values.any(axis=1), rarity.argmin(axis=1), -1).astype(np.float64)


def hold_out(task: Task, train: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows of the validation split that is cut from them: seeded and stratified.

    Examples with the same text stay together, or the model would be asked what it was told.
    """
    _, first, same, sizes = np.unique(
        _hashed(texts_of(task, train)), return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == 1:
        raise UsageError(
            f"{task.name} train data: one text alone is too few to hold out a validation split: add a "
            "validation file"
        )
    wanted = max(1, round(len(train) * float(task.splits.held_out or 0)))
    held = np.isin(same, _held_groups(strata(task, train)[first], sizes, wanted))
    return np.flatnonzero(~held), np.flatnonzero(held)


def _held_groups(strata: NDArray[np.float64], sizes: NDArray[np.int64], wanted: int) -> list[int]:
    """Groups of equal texts with as many examples as wanted, or fewer by less than one group.

    A text that repeats so often that it would be a tenth of the validation split is trained on, unless
    the others are too few.
    """
    small = np.flatnonzero(sizes <= max(1, wanted // 10))
    drawn = nested_order(strata[small], regression=False, size=min(wanted, len(small)), seed=_HELD_OUT_SEED)
    large = np.setdiff1d(np.arange(len(sizes)), small)
    chosen: list[int] = []
    left = wanted
    for group in (*small[drawn], *large[np.argsort(sizes[large], kind="stable")]):
        if sizes[group] <= left:
            chosen.append(int(group))
            left -= int(sizes[group])
    return chosen or [int(sizes.argmin())]


def _hashed(texts: Sequence[tuple[str, ...]]) -> NDArray[np.uint64]:
    digests = [
        hashlib.blake2b("\0".join(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def nested_order(
    labels: Sequence[float] | NDArray,
    *,
    regression: bool,
    size: int | None = None,
    seed: int = _SUBSET_SEED,
) -> NDArray[np.int64]:
    """The first `size` of an order of all examples whose every prefix is stratified within one example.

    Subsets of any sizes are prefixes of it, hence nested; the draw is fixed by a seed of its own.
    """
    values = np.asarray(labels, dtype=np.float64)
    if regression:
        values = _quintiles(values)
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(values, return_counts=True)
    pools = [generator.permutation(np.flatnonzero(values == value)) for value in classes]
    shares = counts / len(values)
    slack = 1 / max(2 * len(classes) - 2, 1)
    taken = np.zeros(len(classes), dtype=np.int64)
    order = np.empty(len(values) if size is None else size, dtype=np.int64)
    for position in range(len(order)):
        # Tijdeman's rule: of the classes far enough behind their share, the one that is due first.
        behind = shares * (position + 1) - taken
        due = np.where((behind >= slack - 1e-9) & (taken < counts), (1 - slack - behind) / shares, np.inf)
        chosen = int(np.argmin(due))
        order[position] = pools[chosen][taken[chosen]]
        taken[chosen] += 1
    return order


def _quintiles(values: NDArray) -> NDArray:
    edges = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
    return np.searchsorted(edges, values).astype(np.float64)


def draw_subset(data: TaskData, size: int | None, held_out: float = 0.0) -> NDArray[np.int64]:
    """The rows of the training set that a trial of this train_size uses, beside those held out."""
    total = len(data.train)
    if size is None:
        return np.arange(total)
    held = round(total * held_out)
    if not 1 <= size <= total - held:
        raise UsageError(
            f"train_size {size} is beyond the {total - held} training examples of {data.task.name}"
        )
    order = nested_order(strata(data.task, data.train), regression=False, size=held + size)
    return np.sort(order[held:])


def split_selection(data: TaskData, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows held out for selection: a stratified, seeded share of the training set."""
    total = len(data.train)
    order = nested_order(strata(data.task, data.train), regression=False)
    held = round(total * share)
    return np.sort(order[held:]), np.sort(order[:held])
