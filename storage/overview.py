"""How one study stands, in a few small selects whatever its size: for people who look, from any machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from optuna.storages._rdb.models import TrialIntermediateValueModel, TrialValueModel
from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy import and_, func, select
from sqlalchemy.engine import Connection

from objectives.contract import Cell, printable
from storage import counting, rows
from storage.attributes import loaded
from storage.parameters import cell_of
from storage.reading import Counts
from storage.schema import (
    CURVE_VALUES,
    DIRECTIONS,
    HEARTBEATS,
    PARAMETERS,
    SYSTEM_ATTRIBUTES,
    TRIALS,
    USER_ATTRIBUTES,
    VALUES,
)

if TYPE_CHECKING:
    from storage.studies import StoredStudy

RECENT = 200
"""Complete trials that the pace is taken from."""
SHOWN_FAILURES = 10


@dataclass(frozen=True, kw_only=True)
class Running:
    """A trial at work: where, since when, how far."""

    number: int
    cell: Cell
    worker: str
    attempt: int
    seconds: float
    """Since it was claimed."""
    silent_seconds: float | None
    """Since its last sign of life."""
    evaluations: int
    score: float | None
    """At the newest evaluation."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A complete trial, for the pace of the study."""

    cell: Cell
    elapsed_seconds: float
    """From claim to result."""
    work_seconds: float | None
    """Training and evaluation alone, without loading a model or filling a cache; None where not recorded."""
    seconds_ago: float


@dataclass(frozen=True, kw_only=True)
class Failure:
    number: int
    cell: Cell
    worker: str
    attempt: int
    reason: str
    final: bool
    """Given up; else another trial has its cell."""
    seconds_ago: float | None


@dataclass(frozen=True, kw_only=True)
class Overview:
    counts: Counts
    best: tuple[Cell, float] | None
    recent: tuple[Finished, ...]
    """The newest complete trials, newest first."""
    open_cells: tuple[tuple[int, int | None, int], ...]
    """What waits and runs, as (frozen_layers, train_size, how many)."""
    running: tuple[Running, ...]
    failures: tuple[Failure, ...]
    """The newest ones, newest first."""
    failed_trials: int
    """All that ever failed, those that were tried again included."""


def read_overview(study: StoredStudy) -> Overview:
    def read() -> Overview:
        with study.database.read() as connection:
            return _read(connection, study.study_id)

    return study.database.retry(read)


def _read(connection: Connection, study_id: int) -> Overview:
    now: datetime = connection.execute(select(func.current_timestamp())).scalar_one().replace(tzinfo=None)
    return Overview(
        counts=counting.counts(connection, study_id),
        best=_best(connection, study_id),
        recent=_recent(connection, study_id, now),
        open_cells=_open_cells(connection, study_id),
        running=_running(connection, study_id, now),
        failures=_failures(connection, study_id, now),
        failed_trials=connection.execute(
            select(func.count()).where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.FAIL)
        ).scalar_one(),
    )


def _best(connection: Connection, study_id: int) -> tuple[Cell, float] | None:
    """The finite value that the study's direction prefers."""
    direction = connection.execute(
        select(DIRECTIONS.c.direction).where(DIRECTIONS.c.study_id == study_id, DIRECTIONS.c.objective == 0)
    ).scalar()
    value = VALUES.c.value
    row = connection.execute(
        select(VALUES.c.trial_id, VALUES.c.value, VALUES.c.value_type)
        .join(TRIALS, TRIALS.c.trial_id == VALUES.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.COMPLETE)
        .where(VALUES.c.objective == 0, VALUES.c.value_type == TrialValueModel.TrialValueType.FINITE)
        .order_by(value.asc() if direction == StudyDirection.MINIMIZE else value.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    cell = _cells(connection, [row.trial_id]).get(row.trial_id)
    return None if cell is None else (cell, TrialValueModel.stored_repr_to_value(row.value, row.value_type))


def _recent(connection: Connection, study_id: int, now: datetime) -> tuple[Finished, ...]:
    found = connection.execute(
        select(TRIALS.c.trial_id, TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.COMPLETE)
        .order_by(TRIALS.c.datetime_complete.desc())
        .limit(RECENT)
    ).all()
    ids = [row.trial_id for row in found]
    cells, about = _cells(connection, ids), _about(connection, ids)
    return tuple(
        Finished(
            cell=cells[row.trial_id],
            elapsed_seconds=(row.datetime_complete - row.datetime_start).total_seconds(),
            work_seconds=_work_seconds(about[row.trial_id]),
            seconds_ago=_seconds(now, row.datetime_complete),
        )
        for row in found
        if row.trial_id in cells and row.datetime_start is not None
    )


def _work_seconds(about: Mapping[str, Any]) -> float | None:
    trained = about.get("train_seconds")
    return None if trained is None else float(trained) + float(about.get("evaluation_seconds") or 0.0)


def _open_cells(connection: Connection, study_id: int) -> tuple[tuple[int, int | None, int], ...]:
    depth, size = PARAMETERS.alias("depth"), PARAMETERS.alias("size")
    found = connection.execute(
        select(depth.c.param_value, size.c.param_value, func.count())
        .select_from(TRIALS)
        .join(depth, and_(depth.c.trial_id == TRIALS.c.trial_id, depth.c.param_name == "frozen_layers"))
        .outerjoin(size, and_(size.c.trial_id == TRIALS.c.trial_id, size.c.param_name == "train_size"))
        .where(TRIALS.c.study_id == study_id)
        .where(TRIALS.c.state.in_([TrialState.WAITING, TrialState.RUNNING]))
        .group_by(depth.c.param_value, size.c.param_value)
    )
    return tuple((int(row[0]), None if row[1] is None else int(row[1]), row[2]) for row in found)


def _running(connection: Connection, study_id: int, now: datetime) -> tuple[Running, ...]:
    found = connection.execute(
        select(TRIALS.c.trial_id, TRIALS.c.number, TRIALS.c.datetime_start, HEARTBEATS.c.heartbeat)
        .outerjoin(HEARTBEATS, HEARTBEATS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.RUNNING)
        .order_by(TRIALS.c.datetime_start)
    ).all()
    ids = [row.trial_id for row in found]
    cells, about = _cells(connection, ids), _about(connection, ids)
    curves = _curves(connection, ids)
    return tuple(
        Running(
            number=row.number,
            cell=cells[row.trial_id],
            worker=printable(str(about[row.trial_id].get("worker", ""))),
            attempt=len(about[row.trial_id].get(rows.RETRY_HISTORY, ())) + 1,
            seconds=_seconds(now, row.datetime_start) if row.datetime_start else 0.0,
            silent_seconds=_seconds(now, row.heartbeat) if row.heartbeat else None,
            evaluations=curves[row.trial_id][0] if row.trial_id in curves else 0,
            score=curves[row.trial_id][1] if row.trial_id in curves else None,
        )
        for row in found
        if row.trial_id in cells
    )


def _failures(connection: Connection, study_id: int, now: datetime) -> tuple[Failure, ...]:
    found = connection.execute(
        select(TRIALS.c.trial_id, TRIALS.c.number, TRIALS.c.datetime_complete)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.FAIL)
        .order_by(TRIALS.c.datetime_complete.desc())
        .limit(SHOWN_FAILURES)
    ).all()
    ids = [row.trial_id for row in found]
    cells, about = _cells(connection, ids), _about(connection, ids)
    return tuple(
        Failure(
            number=row.number,
            cell=cells[row.trial_id],
            worker=printable(str(about[row.trial_id].get("worker", ""))),
            attempt=len(about[row.trial_id].get(rows.RETRY_HISTORY, ())) + 1,
            reason=printable(str(about[row.trial_id].get("reason", ""))),
            final=bool(about[row.trial_id].get(rows.FINAL)),
            seconds_ago=_seconds(now, row.datetime_complete) if row.datetime_complete else None,
        )
        for row in found
        if row.trial_id in cells
    )


def _cells(connection: Connection, trial_ids: Sequence[int]) -> dict[int, Cell]:
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in connection.execute(
        select(PARAMETERS.c.trial_id, PARAMETERS.c.param_name, PARAMETERS.c.param_value).where(
            PARAMETERS.c.trial_id.in_(trial_ids)
        )
    ):
        found[row.trial_id][row.param_name] = row.param_value
    made = {trial_id: cell_of(parameters) for trial_id, parameters in found.items()}
    return {trial_id: cell for trial_id, cell in made.items() if cell is not None}


def _about(connection: Connection, trial_ids: Sequence[int]) -> defaultdict[int, dict[str, Any]]:
    """Worker, reason, seconds, history and whether it is final."""
    found: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    wanted = {
        USER_ATTRIBUTES: ("worker", "reason", "train_seconds", "evaluation_seconds"),
        SYSTEM_ATTRIBUTES: (rows.RETRY_HISTORY, rows.FINAL),
    }
    for table, keys in wanted.items():
        for row in connection.execute(
            select(table.c.trial_id, table.c.key, table.c.value_json).where(
                table.c.trial_id.in_(trial_ids), table.c.key.in_(keys)
            )
        ):
            found[row.trial_id][row.key] = loaded(row.value_json)
    return found


def _curves(connection: Connection, trial_ids: Sequence[int]) -> dict[int, tuple[int, float]]:
    """Number of evaluations and the newest value."""
    found: dict[int, tuple[int, float]] = {}
    for row in connection.execute(
        select(CURVE_VALUES).where(CURVE_VALUES.c.trial_id.in_(trial_ids)).order_by(CURVE_VALUES.c.step)
    ):
        value = TrialIntermediateValueModel.stored_repr_to_intermediate_value(
            row.intermediate_value, row.intermediate_value_type
        )
        found[row.trial_id] = (row.step + 1, value)
    return found


def _seconds(now: datetime, then: datetime) -> float:
    """Clocks of workers may be a little ahead of the database's."""
    return max(0.0, (now - then.replace(tzinfo=None)).total_seconds())
