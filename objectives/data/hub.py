"""Data sets of the Hugging Face hub, and what is said when the hub cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectives.data.readers import Table, canonical, hub_parts
from objectives.errors import HubError, UsageError


def read_hub(source: str, splits: Sequence[str] | None) -> dict[str, Table]:
    loaded = _load(hub_parts(source))
    found = {canonical(split): split for split in loaded} if splits is None else {s: s for s in splits}
    missing = [split for split in found.values() if split not in loaded]
    if missing:
        raise UsageError(f"--data {source}: no split {missing[0]} (it has {', '.join(loaded)})")
    return {name: _of_dataset(source, loaded[split]) for name, split in found.items()}


def _load(parts: Sequence[str]) -> Any:
    """`OWNER/NAME/CONFIG`, `OWNER/NAME` or `NAME`; two words may be `NAME/CONFIG`, too."""
    from datasets import load_dataset

    quiet_libraries()
    tried: list[tuple[str, str | None]] = [("/".join(parts[:2]), parts[2] if len(parts) == 3 else None)]
    if len(parts) == 2:
        tried.append((parts[0], parts[1]))
    first: Exception | None = None
    for name, config in tried:
        try:
            return load_dataset(name, config)
        except (OSError, ConnectionError, ValueError, RuntimeError) as error:
            first = first or error
    assert first is not None
    shown = " or ".join(f"{name} (configuration {config})" if config else name for name, config in tried)
    raise HubError(unreachable(f"data set {shown}", first)) from first


def _of_dataset(source: str, dataset: Any) -> Table:
    named = {}
    for column, feature in dataset.features.items():
        inner = getattr(feature, "feature", feature)
        if getattr(inner, "names", None):
            named[column] = tuple(inner.names)
    return Table(source, _Lazy(dataset), named)


class _Lazy(Mapping[str, Sequence[Any]]):
    """A data set's columns, each made a list when it is the threshold."""

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __getitem__(self, name: str) -> Sequence[Any]:
        if name not in self._dataset.column_names:
            raise KeyError(name)
        return list(self._dataset[name][:])

    def __iter__(self) -> Any:
        return iter(self._dataset.column_names)

    def __len__(self) -> int:
        return len(self._dataset.column_names)


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
        f"cannot download {what} from the hub ({type(error).__name__}: {reason}). Use --data FOLDER and "
        "--model FOLDER for local copies, set HF_HOME to a filled cache, or try --demo"
    )
