"""The agreement with Optuna: what this package writes into its tables is what Optuna would have written."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import optuna
import pytest
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import select

from objectives.contract import Cell, TrialRecord
from storage import schema
from storage.database import Database
from storage.parameters import Grid, distributions
from storage.studies import StoredStudy

SPACE = {
    "frozen_layers": [0, 6, 12],
    "learning_rate": [1e-5, 5e-5],
    "seed": [1, 2],
    "train_size": [50, 1000],
}
CELLS = [Cell(*point) for point in itertools.product(*SPACE.values())]


@pytest.fixture
def study(shared_url: str) -> Iterator[StoredStudy]:
    database = Database.open(shared_url, create=True)
    made = database.create_study(fresh("contract"), {"spec": "{}"})
    made.plan(lambda outcomes: CELLS, space=SPACE)
    yield made
    database.close()


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def comparable(trial: FrozenTrial, *, but: tuple[str, ...] = ()) -> dict[str, object]:
    names = ("state", "values", "params", "distributions", "user_attrs", "intermediate_values")
    found = {name: getattr(trial, name) for name in names}
    found["system_attrs"] = {key: value for key, value in trial.system_attrs.items() if key not in but}
    # NaN equals nothing, not even itself.
    found["intermediate_values"] = {step: str(value) for step, value in trial.intermediate_values.items()}
    return found


def test_schema_is_the_one_that_is_written_to(study: StoredStudy) -> None:
    storage = study.database.optuna_storage
    assert storage.get_head_version() == storage.get_current_version() == schema.REVISION
    written = {
        "studies": {"study_id", "study_name"},
        "study_directions": {"study_direction_id", "direction", "study_id", "objective"},
        "study_user_attributes": {"study_user_attribute_id", "study_id", "key", "value_json"},
        "trials": {"trial_id", "number", "study_id", "state", "datetime_start", "datetime_complete"},
        "trial_params": {"param_id", "trial_id", "param_name", "param_value", "distribution_json"},
        "trial_values": {"trial_value_id", "trial_id", "objective", "value", "value_type"},
        "trial_heartbeats": {"trial_heartbeat_id", "trial_id", "heartbeat"},
        "trial_user_attributes": {"trial_user_attribute_id", "trial_id", "key", "value_json"},
        "trial_system_attributes": {"trial_system_attribute_id", "trial_id", "key", "value_json"},
        "trial_intermediate_values": {
            *("trial_intermediate_value_id", "trial_id", "step"),
            *("intermediate_value", "intermediate_value_type"),
        },
    }
    for table, columns in written.items():
        assert {column.name for column in models.BaseModel.metadata.tables[table].columns} == columns
    assert {state.name for state in TrialState} == {"WAITING", "RUNNING", "COMPLETE", "FAIL", "PRUNED"}


def test_planned_trial_is_what_add_trial_writes(study: StoredStudy) -> None:
    cell, grid = CELLS[5], Grid(SPACE)
    theirs = optuna.create_study(study_name=fresh("theirs"), storage=study.database.optuna_storage)
    theirs.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=dict(sorted(cell.parameters().items())),
            distributions=distributions(SPACE),
            system_attrs=grid.marks(cell),
        )
    )
    [expected] = theirs.trials
    [ours] = [trial for trial in study.optuna_study.trials if trial.params == expected.params]
    assert comparable(ours) == comparable(expected)
    assert ours.datetime_start is None
    numbers = [trial.number for trial in study.optuna_study.trials]
    assert numbers == list(range(len(CELLS)))
    study.optuna_study.enqueue_trial({"frozen_layers": 0})
    assert study.optuna_study.trials[-1].number == len(CELLS)


def test_finished_trial_is_what_tell_writes(study: StoredStudy) -> None:
    claim = study.claim("w")
    assert claim is not None
    claim.report(0, float("nan"))
    claim.report(1, 0.75)
    claim.finish(TrialRecord(metric="f1", score=0.75, metrics={"f1": 0.75}))
    ours = study.optuna_study.trials[claim.number]
    theirs = optuna.create_study(
        study_name=fresh("theirs"), storage=study.database.optuna_storage, direction="maximize"
    )
    theirs.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=ours.params,
            distributions=ours.distributions,
            system_attrs={"grid_id": ours.system_attrs["grid_id"], "search_space": SPACE},
        )
    )
    asked = theirs.ask()
    asked.report(float("nan"), 0)
    asked.report(0.75, 1)
    for key, value in {"worker": "w", "metric": "f1", "metric_names": ["f1"], "f1": 0.75}.items():
        asked.set_user_attr(key, value)
    theirs.tell(asked, 0.75)
    [expected] = theirs.trials
    assert comparable(ours, but=("elsa:claim",)) == comparable(expected)
    assert ours.duration is not None
    assert abs((ours.datetime_complete - expected.datetime_complete).total_seconds()) < 10  # type: ignore[operator]


def test_optuna_respects_our_claim_and_we_respect_its(study: StoredStudy) -> None:
    storage = study.database.optuna_storage
    claim = study.claim("w")
    assert claim is not None
    assert storage.set_trial_state_values(claim.trial_id, TrialState.RUNNING) is False
    claim.finish(TrialRecord(metric="f1", score=0.5))
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        storage.set_trial_state_values(claim.trial_id, TrialState.RUNNING)
    asked = study.optuna_study.ask()
    assert asked.params in [cell.parameters() for cell in CELLS]
    assert asked.suggest_int("frozen_layers", 0, 12) == asked.params["frozen_layers"]
    taken = []
    while (other := study.claim("w")) is not None:
        taken.append(other)
    assert len(taken) == len(CELLS) - 2
    assert asked._trial_id not in {other.trial_id for other in taken}
    for other in taken:
        other.release()


def test_heartbeats_are_optunas(study: StoredStudy) -> None:
    """Plain Optuna with heartbeats on sees our lease, and we see its."""
    storage = study.database.optuna_storage
    claim = study.claim("w")
    assert claim is not None
    storage.heartbeat_interval, storage.grace_period = 1, 60
    assert storage._get_stale_trial_ids(study.study_id) == []
    heartbeats = schema.HEARTBEATS
    with study.database.read() as connection:
        before = connection.scalar(
            select(heartbeats.c.heartbeat).where(heartbeats.c.trial_id == claim.trial_id)
        )
    storage.record_heartbeat(claim.trial_id)
    with study.database.read() as connection:
        after = connection.scalar(
            select(heartbeats.c.heartbeat).where(heartbeats.c.trial_id == claim.trial_id)
        )
    assert before is not None
    assert after is not None
    assert 0 <= (after - before).total_seconds() < 10, "the same clock and the same time zone"
    claim.release()
    storage.heartbeat_interval = None


def test_leftovers_of_other_tools_do_not_block_a_claim(study: StoredStudy) -> None:
    storage = study.database.optuna_storage
    asked = study.optuna_study.ask()
    asked.set_user_attr("worker", "theirs")
    storage.record_heartbeat(asked._trial_id)
    storage.set_trial_state_values(asked._trial_id, TrialState.WAITING)
    cells = []
    while (claim := study.claim("w")) is not None:
        cells.append(claim.cell)
        claim.finish(TrialRecord(metric="f1", score=0.5))
    assert sorted(cells) == sorted(CELLS)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_retries_carry_optunas_names(study: StoredStudy) -> None:
    first = study.claim("w")
    assert first is not None
    first.fail("again")
    retry = study.optuna_study.trials[-1]
    history = optuna.storages.RetryHeartbeatStaleTrialCallback.retry_history(retry)
    assert history == [first.number]
    assert optuna.storages.RetryHeartbeatStaleTrialCallback.retried_trial_number(retry) == first.number
    assert retry.params == first.cell.parameters()
