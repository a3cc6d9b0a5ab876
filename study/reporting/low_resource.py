"""The report's low-resource tables: the blog's appendix, by train size and depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from study import names
from study.analysis.low_resource import Summary
from study.reporting.document import Column, Row, Table
from study.reporting.series import Series
from study.reporting.tables import PLACE, score


def low_resource_tables(rows: Sequence[Summary], series: Series) -> list[Table]:
    """The blog's appendix: one table per model and task, the best mean of each train size marked."""
    groups: dict[tuple[str, str, str], list[Summary]] = {}
    for r in sorted(rows, key=lambda r: (series.rank(r), names.task_order(r.task), r.metric)):
        groups.setdefault((series.name(r), r.task, r.metric), []).append(r)
    metrics = Counter((name, task) for name, task, _ in groups)
    return [_table(own, name, alone=metrics[name, task] == 1) for (name, task, _), own in groups.items()]


def _table(rows: Sequence[Summary], whose: str, *, alone: bool) -> Table:
    """Of one metric, which is part of the file's name unless it is the only one of the model and task."""
    columns = (
        *PLACE,
        Column("frozen_layers", "frozen", names.depth_name, number=False),
        *(Column(name, name, score) for name in ("mean", "median", "std", "min", "max")),
        Column("replicates", "runs"),
        Column("learning_rate", "rate", names.rate),
        Column("best", "best", number=False),
    )
    mean = next(i for i, column in enumerate(columns) if column.name == "mean")
    first = rows[0]
    metric = names.metric_name(first.metric)
    ordered = sorted(rows, key=lambda r: (r.train_size is None, r.train_size or 0))
    return Table(
        name=f"low_resource_{whose}_{first.task}" + ("" if alone else f"_{first.metric}"),
        title=f"{whose} on {names.task_name(first.task)}: {metric} by train size",
        columns=columns,
        rows=tuple(
            Row(
                (
                    r.study,
                    r.model,
                    r.task,
                    r.train_size,
                    r.metric,
                    r.frozen_layers,
                    r.mean,
                    r.median,
                    r.std,
                    r.min,
                    r.max,
                    r.replicates,
                    r.learning_rate,
                    r.best,
                ),
                group=f"{names.size_name(r.train_size)} examples",
                marked=frozenset({mean}) if r.best else frozenset(),
            )
            for r in ordered
        ),
        hidden=frozenset((*(c.name for c in PLACE), "best")),
        folded=len(rows) > 40,
        note=None if first.chance is None else f"Chance is {first.chance:.4f}. The best mean is marked.",
    )
