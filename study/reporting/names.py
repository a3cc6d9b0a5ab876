"""How people write tasks, depths, shares and rates, and the order in which they expect them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from objectives.depths import freeze_order, short_name
from objectives.tasks import metrics
from objectives.tasks.definition import Task, find_task
from study.analysis.quality import Curve

UNKNOWN = "–"
MOST_DIGITS = 6
"""After the point of a percentage; closer to a threshold than that is on it."""


def task_name(task: str) -> str:
    """`MRPC`, and `MRPC (study b)` for a task that occurs in several studies."""
    name, mark, rest = task.partition(" (")
    known = find_task(name)
    return (known.display if known else name) + mark + rest


def task_order(task: str) -> tuple[int, str]:
    known = find_task(task)
    return (known.order if known else Task.order, task)


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


def places(curves: Sequence[Curve]) -> list[str]:
    """Each place once, by task, metric and train size."""
    ordered = sorted(curves, key=lambda c: (task_order(c.task), c.metric, c.train_size or 0))
    return list(dict.fromkeys(place(c, curves) for c in ordered))


metric_name = metrics.display_name


def percent(share: float | None, digits: int = 1, *, beside: Iterable[float] = ()) -> str:
    """With more digits where rounding would put the share on a threshold that it misses."""
    if share is None:
        return UNKNOWN
    for bar in beside:
        while share < bar - 1e-9 and digits < MOST_DIGITS and round(100 * share, digits) >= 100 * bar:
            digits += 1
    return f"{100 * share:.{digits}f} %"


def probability(share: float | None) -> str:
    """Never 1.00: draws cannot tell it from certainty."""
    if share is None:
        return UNKNOWN
    return ">0.99" if share >= 0.995 else f"{share:.2f}"


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
    # The first is the full model, the last has everything frozen: both are named.
    places = [0, *(i for i in range(stride, len(ordered)) if (len(ordered) - 1 - i) % stride == 0)]
    return ordered, places, [short_name(ordered[i]) for i in places]
