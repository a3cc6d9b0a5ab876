"""The report's low-resource tables: the blog's appendix, by train size and depth."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.depths import depth_name
from study.analysis.train_sizes import Summary
from study.reporting import names
from study.reporting.document import Column, Row, Table, label
from study.reporting.series import Series
from study.reporting.tables import PLACE, place, score


def low_resource_tables(rows: Sequence[Summary], series: Series) -> list[Table]:
    """One per model, task and metric, the best mean of each train size marked."""
    return [_table(own, name, series) for name, own in series.by_metric(rows)]


def _table(rows: Sequence[Summary], name: str, series: Series) -> Table:
    first, whose = rows[0], series.name(rows[0])
    return Table(
        name=f"low_resource_{name}",
        title=f"{whose} on {names.task_name(first.task)}: {names.metric_name(first.metric)} by train size",
        columns=(
            *place(series, hidden=PLACE),
            label("frozen_layers", "frozen", show=depth_name, key=True),
            *(Column(name, name, show=score) for name in ("mean", "median", "std", "min", "max")),
            Column("replicates", "runs"),
            Column("learning_rate", "rate", show=names.rate),
            label("best", shown=False),
        ),
        rows=tuple(
            Row(
                r,
                group=f"{names.size_name(r.train_size)} examples",
                marked=frozenset({"mean"} if r.best else ()),
            )
            for r in rows
        ),
        folded=len(rows) > 40,
        note="The best mean is marked." + ("" if first.chance is None else f" Chance is {first.chance:.4f}."),
    )
