"""A task's examples: loaded from the hub, a folder or the demo; checked; drawn into nested subsets.

What is refused: missing columns, labels outside the task's set, empty splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from objectives.contract import HubError, UsageError
from objectives.tasks import Task

if TYPE_CHECKING:
    from datasets import Dataset

HUB_DATASET = "nyu-mll/glue"
DEMO = "demo"
_READERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".tsv": "tsv"}
_SUBSET_SEED = 1911
"""Every process draws subsets with this seed, so that all train on the same examples."""


@dataclass(frozen=True)
class TaskData:
    """The splits of one task, with labels as numbers, and a fingerprint of their content."""

    task: Task
    source: str
    train: Dataset
    validation: dict[str, Dataset]
    fingerprint: str


def load_data(task: Task, source: str | None) -> TaskData:
    """From the hub (None), the demo generator ("demo"), or a folder of train/validation files."""
    if source == DEMO:
        splits = _from_demo(task)
    elif source is None:
        splits = _from_hub(task)
    else:
        splits = _from_folder(task, Path(source))
    checked = {name: _check(task, name, split) for name, split in splits.items()}
    train = checked.pop("train")
    return TaskData(
        task, source or HUB_DATASET, train, checked, _fingerprint(task, [train, *checked.values()])
    )


def _from_demo(task: Task) -> dict[str, Dataset]:
    from datasets import Dataset

    from objectives import demo

    return {name: Dataset.from_list(demo.examples(task.name, name)) for name in ("train", *task.validation)}


def _from_hub(task: Task) -> dict[str, Dataset]:
    from datasets import load_dataset

    quiet_libraries()
    try:
        loaded = load_dataset(HUB_DATASET, task.name)
    except (OSError, ConnectionError, ValueError, RuntimeError) as error:
        raise HubError(unreachable(f"data set {HUB_DATASET} ({task.name})", error)) from error
    return {name: loaded[name] for name in ("train", *task.validation)}


def quiet_libraries() -> None:
    """One message of ours instead of progress bars, retries and advice of theirs."""
    import datasets
    import huggingface_hub
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    for library in (datasets, huggingface_hub, transformers):
        library.utils.logging.set_verbosity_error()


def unreachable(what: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:160]
    return (
        f"cannot fetch {what} from the hub ({type(error).__name__}: {reason}). Ways on: --data FOLDER and "
        "--model FOLDER name local copies, HF_HOME names a filled cache, --demo runs the embedded default"
    )


def _from_folder(task: Task, folder: Path) -> dict[str, Dataset]:
    if not folder.is_dir():
        raise UsageError(f"--data {folder}: no such folder")
    return {name: _read(task, _find(folder, name)) for name in ("train", *task.validation)}


def _find(folder: Path, split: str) -> Path:
    names = list(dict.fromkeys([split, split.replace("validation", "dev")]))
    found = [path for name in names for suffix in _READERS if (path := folder / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        files = " and ".join(path.name for path in found)
        raise UsageError(f"--data {folder}: which is the {split} data, {files}? Leave one of them there")
    if not found:
        endings = ", ".join(_READERS)
        raise UsageError(f"--data {folder}: no {' or '.join(names)} file (one of {endings})")
    if found[0].stat().st_size == 0:
        raise UsageError(f"{found[0]} is empty")
    return found[0]


def _read(task: Task, path: Path) -> Dataset:
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    quiet_libraries()
    kind = _READERS[path.suffix]
    try:
        if kind == "tsv":
            return _read_tsv(task, path)
        return load_dataset(kind, data_files=str(path), split="train")
    except (DatasetGenerationError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as {kind}: {' '.join(str(error).split())[:160]}") from error


def _read_tsv(task: Task, path: Path) -> Dataset:
    """GLUE's own layout: no quoting, and its own column names (CoLA has no header at all)."""
    from datasets import Dataset

    lines = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8-sig") if line.strip()]
    wanted = {column: task.tsv.get(column, column) for column in (*task.columns, "label")}
    if any(isinstance(place, int) for place in wanted.values()):
        places = {column: int(place) for column, place in wanted.items()}
    else:
        header = lines.pop(0)
        missing = [str(place) for place in wanted.values() if place not in header]
        if missing:
            raise UsageError(f"{path}: no column {', '.join(missing)} (it has {', '.join(header)})")
        places = {column: header.index(str(place)) for column, place in wanted.items()}
    short = [number for number, line in enumerate(lines, 2) if len(line) <= max(places.values())]
    if short:
        raise UsageError(f"{path}: line {short[0]} has too few columns")
    return Dataset.from_dict({column: [line[at] for line in lines] for column, at in places.items()})


def _check(task: Task, name: str, split: Dataset) -> Dataset:
    """Only the columns the task needs, labels as numbers; or a UsageError that names what is wrong."""
    from datasets import Dataset

    missing = [column for column in (*task.columns, "label") if column not in split.column_names]
    if missing:
        raise UsageError(
            f"{task.name} {name} data has no column {', '.join(missing)} "
            f"(it has {', '.join(split.column_names)})"
        )
    if len(split) == 0:
        raise UsageError(f"{task.name} {name} data is empty")
    texts: dict[str, Any] = {}
    for column in task.columns:
        texts[column] = split[column][:]
        bad = next((i for i, text in enumerate(texts[column]) if not isinstance(text, str)), None)
        if bad is not None:
            raise UsageError(f"{_place(task, name, bad)} has no text in column {column}")
    convert = _regression_label if task.regression else _class_label
    labels = [convert(task, name, row, label) for row, label in enumerate(split["label"][:])]
    return Dataset.from_dict({**texts, "label": labels})


def _place(task: Task, split: str, row: int) -> str:
    return f"{task.name} {split} data: example {row + 1}"


def _class_label(task: Task, split: str, row: int, label: Any) -> int:
    if label in task.labels:
        return task.labels.index(label)
    number = int(label) if str(label).removesuffix(".0").isdigit() else -1
    if not 0 <= number < len(task.labels):
        allowed = ", ".join(f"{i}={name}" for i, name in enumerate(task.labels))
        raise UsageError(
            f"{task.name} {split} data: example {row + 1} has label {label!r}; allowed are {allowed}"
        )
    return number


def _regression_label(task: Task, split: str, row: int, label: Any) -> float:
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0 <= value <= 5:
        raise UsageError(
            f"{task.name} {split} data: example {row + 1} has label {label!r}; allowed is 0 to 5"
        )
    return value


def _fingerprint(task: Task, splits: Sequence[Dataset]) -> str:
    digest = hashlib.sha256(task.name.encode())
    for split in splits:
        for column in (*task.columns, "label"):
            values = split[column][:]
            digest.update(f"\0{column}\0{len(values)}\0".encode())
            digest.update("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def nested_order(
    labels: Sequence[float] | NDArray, *, regression: bool, size: int | None = None
) -> NDArray[np.int64]:
    """The first `size` of an order of all examples whose every prefix is stratified within one example.

    Subsets of any sizes are prefixes of it, hence nested; the draw is fixed by a seed of its own.
    """
    values = np.asarray(labels, dtype=np.float64)
    if regression:
        values = _quintiles(values)
    generator = np.random.default_rng(_SUBSET_SEED)
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


def draw_subset(data: TaskData, size: int | None) -> NDArray[np.int64]:
    """The rows of the training set that a trial of this train_size uses."""
    total = len(data.train)
    if size is None:
        return np.arange(total)
    if not 1 <= size <= total:
        raise UsageError(f"train_size {size} is beyond the {total} training examples of {data.task.name}")
    return np.sort(nested_order(data.train["label"][:], regression=data.task.regression, size=size))


def split_selection(data: TaskData, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows held out for selection: a stratified, seeded share of the training set."""
    total = len(data.train)
    order = nested_order(data.train["label"][:], regression=data.task.regression)
    held = round(total * share)
    return np.sort(order[held:]), np.sort(order[:held])
