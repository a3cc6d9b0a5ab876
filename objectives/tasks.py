"""The nine GLUE tasks as data: columns, labels, metrics, and GLUE's own TSV layout."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.contract import UsageError


@dataclass(frozen=True, kw_only=True)
class Task:
    name: str
    columns: tuple[str, ...]
    """The one or two text columns, named as on the hub."""
    labels: tuple[str, ...]
    """Label names in the hub's order; empty for a regression."""
    metrics: tuple[str, ...]
    """The primary metric first."""
    validation: tuple[str, ...] = ("validation",)
    """Validation splits; metrics of a second one are recorded with its suffix."""
    tsv: Mapping[str, str | int] = field(default_factory=dict)
    """Where GLUE's own TSV files keep a column: a header name, or a position in a file without header."""

    @property
    def regression(self) -> bool:
        return not self.labels

    @property
    def metric(self) -> str:
        return self.metrics[0]


_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="cola",
            columns=("sentence",),
            labels=("unacceptable", "acceptable"),
            metrics=("matthews_correlation", "accuracy"),
            tsv={"sentence": 3, "label": 1},
        ),
        Task(name="sst2", columns=("sentence",), labels=("negative", "positive"), metrics=("accuracy",)),
        Task(
            name="mrpc",
            columns=_PAIR,
            labels=("not_equivalent", "equivalent"),
            metrics=("f1", "accuracy"),
            tsv={"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
        ),
        Task(name="stsb", columns=_PAIR, labels=(), metrics=("spearman", "pearson"), tsv={"label": "score"}),
        Task(
            name="qqp",
            columns=("question1", "question2"),
            labels=("not_duplicate", "duplicate"),
            metrics=("f1", "accuracy"),
            tsv={"label": "is_duplicate"},
        ),
        Task(
            name="mnli",
            columns=("premise", "hypothesis"),
            labels=("entailment", "neutral", "contradiction"),
            metrics=("accuracy",),
            validation=("validation_matched", "validation_mismatched"),
            tsv={"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
        ),
        Task(name="qnli", columns=("question", "sentence"), labels=_ENTAILMENT, metrics=("accuracy",)),
        Task(name="rte", columns=_PAIR, labels=_ENTAILMENT, metrics=("accuracy",)),
        Task(name="wnli", columns=_PAIR, labels=("not_entailment", "entailment"), metrics=("accuracy",)),
    )
}


def get_task(name: str) -> Task:
    """The task of that name; "SST-2" and "sts-b" are understood."""
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        close = difflib.get_close_matches(key, TASKS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(TASKS)}"
        raise UsageError(f"unknown task {name!r}: {hint}")
    return TASKS[key]
