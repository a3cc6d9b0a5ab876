"""Counts and lists the trials of a study in small selects, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import TrialState
from sqlalchemy import and_, func, select
from sqlalchemy.engine import Connection

from storage import rows
from storage.parameters import CELL_PARAMETERS
from storage.reading import Counts
from storage.schema import PARAMETERS, SYSTEM_ATTRIBUTES, TRIALS


def counts(connection: Connection, study_id: int) -> Counts:
    found = connection.execute(
        select(TRIALS.c.state, func.count()).where(TRIALS.c.study_id == study_id).group_by(TRIALS.c.state)
    )
    by_state = {row[0]: row[1] for row in found}
    waiting = by_state.get(TrialState.WAITING, 0)
    if waiting:
        waiting -= _foreign(connection, study_id)
    failed = 0
    if by_state.get(TrialState.FAIL):
        failed = connection.execute(
            select(func.count())
            .select_from(TRIALS.join(SYSTEM_ATTRIBUTES))
            .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.FAIL)
            .where(SYSTEM_ATTRIBUTES.c.key == rows.FINAL)
        ).scalar_one()
    return Counts(
        waiting=max(0, waiting),
        running=by_state.get(TrialState.RUNNING, 0),
        complete=by_state.get(TrialState.COMPLETE, 0),
        failed=failed,
    )


def _foreign(connection: Connection, study_id: int) -> int:
    """Waiting trials without the parameters of a cell, which somebody added by other means."""
    own = select(func.count()).where(
        PARAMETERS.c.trial_id == TRIALS.c.trial_id, PARAMETERS.c.param_name.in_(CELL_PARAMETERS)
    )
    return connection.execute(
        select(func.count())
        .select_from(TRIALS)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.WAITING)
        .where(own.correlate(TRIALS).scalar_subquery() < len(CELL_PARAMETERS))
    ).scalar_one()


def waiting_trials(connection: Connection, study_id: int) -> list[tuple[int, int | None]]:
    """Ids with the layers that each trial freezes; None for one that is no cell."""
    depth = and_(PARAMETERS.c.trial_id == TRIALS.c.trial_id, PARAMETERS.c.param_name == "frozen_layers")
    found = connection.execute(
        select(TRIALS.c.trial_id, PARAMETERS.c.param_value)
        .join(PARAMETERS, depth, isouter=True)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.WAITING)
    )
    return [(row[0], None if row[1] is None else int(row[1])) for row in found]


def waiting_depths(connection: Connection, study_id: int) -> set[int]:
    found = connection.scalars(
        select(PARAMETERS.c.param_value)
        .join(TRIALS, PARAMETERS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.WAITING)
        .where(PARAMETERS.c.param_name == "frozen_layers")
        .distinct()
    )
    return {int(depth) for depth in found}


def still_waiting(connection: Connection, trial_ids: Sequence[int]) -> set[int]:
    return set(
        connection.scalars(
            select(TRIALS.c.trial_id).where(
                TRIALS.c.trial_id.in_(trial_ids), TRIALS.c.state == TrialState.WAITING
            )
        )
    )


def watermark(connection: Connection, study_id: int) -> tuple[int, int]:
    """Changes whenever anybody adds a trial."""
    row = connection.execute(
        select(func.count(), func.coalesce(func.max(TRIALS.c.trial_id), 0)).where(
            TRIALS.c.study_id == study_id
        )
    ).one()
    return row[0], row[1]
