"""The report's table of test scores, beside the operating points that validation scores chose."""

from __future__ import annotations

from collections.abc import Sequence

from study.analysis.tested_points import Tested
from study.reporting import names
from study.reporting.document import Column, Row, Table
from study.reporting.series import Series
from study.reporting.tables import place, score


def tested_table(points: Sequence[Tested], series: Series) -> Table | None:
    """None where nothing was scored on a test split."""
    if not points:
        return None
    alone = len({(p.study, p.model, p.task, p.train_size, p.metric) for p in points}) == 1
    hidden = {"model", "task", "metric"} if alone else set()
    first = points[0]
    whose = f": {series.name(first)} on {names.task_name(first.task)}, {names.metric_name(first.metric)}"
    return Table(
        name="test_split",
        title=f"The same points on the test split{whose if alone else ''}",
        columns=(
            Column("threshold", "at least", show=names.percent_short, key=True),
            *place(series, hidden=hidden),
            Column("frozen_layers", "frozen"),
            Column("score", "test score", show=score),
            Column("std", "std", show=score),
            Column("runs", "runs"),
            Column("full_score", "full model", show=score),
            Column("full_std", "std of full", show=score),
            Column("full_runs", "runs of full", shown=False),
            Column("relative", "keeps", show=names.percent),
        ),
        rows=tuple(Row(point) for point in points),
        note="Validation scores chose the depth and the rate; the test split was scored once per trial.",
    )
