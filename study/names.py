"""How people write tasks, depths, shares and rates, and the order in which they expect them."""

from __future__ import annotations

from collections.abc import Iterable

from study.analysis.chance import task_key
from study.analysis.quality import Curve
from study.analysis.runs import freeze_order

TASKS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "mnlimm": "MNLI-mm",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
"""In the paper's order."""
UNKNOWN = "–"
MOST_DIGITS = 6
"""After the point of a percentage; closer to a threshold than that is on it."""


def task_name(task: str) -> str:
    """`MRPC`, and `MRPC (study b)` for a task that is told apart from itself."""
    name, mark, rest = task.partition(" (")
    return TASKS.get(task_key(name), name) + mark + rest


def task_order(task: str) -> tuple[int, str]:
    known = list(TASKS)
    key = task_key(task)
    return (known.index(key) if key in known else len(known), task)


def in_order(tasks: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(tasks), key=task_order)


def place(curve: Curve, curves: Iterable[Curve]) -> str:
    """A curve among others: its task, and its metric and train size where these tell it apart."""
    same = [c for c in curves if c.task == curve.task]
    parts = [task_name(curve.task)]
    if len({c.metric for c in same}) > 1:
        parts.append(metric_name(curve.metric))
    if curve.train_size is not None:
        parts.append(f"{curve.train_size:,} examples")
    return " · ".join(parts)


def metric_name(metric: str) -> str:
    return {"f1": "F1", "matthews_correlation": "Matthews correlation"}.get(metric, metric.replace("_", " "))


def depth_name(frozen_layers: int) -> str:
    return "-1 (embeddings)" if frozen_layers == -1 else str(frozen_layers)


def span(low: int | None, high: int | None) -> str:
    """One number, or two with what lies between; the second may be absent or the same."""
    if low is None:
        return "-"
    return f"{low}" if high is None or high == low else f"{low} to {high}"


def percent(share: float | None, digits: int = 1, *, beside: Iterable[float] = ()) -> str:
    """With more digits where rounding would put the share on a threshold that it misses."""
    if share is None:
        return UNKNOWN
    for bar in beside:
        while share < bar - 1e-9 and digits < MOST_DIGITS and round(100 * share, digits) >= 100 * bar:
            digits += 1
    return f"{100 * share:.{digits}f} %"


def percent_short(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.4g} %"


def size_name(train_size: int | None) -> str:
    return "all" if train_size is None else f"{train_size:,}"


def interval(low: float | None, high: float | None, digits: int = 0) -> str:
    return UNKNOWN if low is None or high is None else f"{100 * low:.{digits}f}–{100 * high:.{digits}f}"


def rate(learning_rate: float | None) -> str:
    """`3e-5`, as people type it."""
    if learning_rate is None:
        return UNKNOWN
    mantissa, _, exponent = f"{learning_rate:.6e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def depth_ticks(depths: Iterable[int], most: int = 9) -> tuple[list[int], list[int], list[str]]:
    """Depths from less to more frozen, the places that get a label, and the labels: never too many."""
    ordered = sorted(set(depths), key=freeze_order)
    stride = -(-len(ordered) // most)
    places = [i for i in range(len(ordered)) if (len(ordered) - 1 - i) % stride == 0]
    return ordered, places, ["emb" if ordered[i] == -1 else str(ordered[i]) for i in places]
