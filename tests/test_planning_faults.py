"""Plans that end, whatever fails meanwhile, whatever becomes of a number, however large the grid is."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator

import optuna
import pytest
from sqlalchemy import delete, func, select

from objectives.contract import Cell, Outcome, StorageError
from storage import parameters
from storage.database import Database
from storage.parameters import GRID_ID, SEARCH_SPACE
from storage.schema import PARAMETERS, SYSTEM_ATTRIBUTES, TRIALS
from storage.studies import StoredStudy

Space = dict[str, list[float]]
SPACE: Space = {"frozen_layers": [0, 1, 2], "learning_rate": [1e-5, 3e-5], "seed": [1, 2]}
WIDER: Space = {**SPACE, "seed": [1, 2, 3]}


def cells(space: Space) -> list[Cell]:
    return [Cell(int(d), r, int(s)) for d, r, s in itertools.product(*space.values())]


@pytest.fixture
def study(shared_url: str) -> Iterator[StoredStudy]:
    database = Database.open(shared_url, create=True, max_retries=1000)
    yield database.create_study(f"plans-{uuid.uuid4().hex[:8]}", {})
    database.close()


def rows_of(study: StoredStudy, key: str) -> list[object]:
    table = SYSTEM_ATTRIBUTES
    with study.database.read() as connection:
        found = connection.execute(
            select(table.c.value_json)
            .join(TRIALS, TRIALS.c.trial_id == table.c.trial_id)
            .where(TRIALS.c.study_id == study.study_id, table.c.key == key)
        )
        return [json.loads(row[0]) for row in found]


def test_failures_while_planning_do_not_start_the_plan_over(study: StoredStudy) -> None:
    study.plan(lambda outcomes: cells(SPACE), space=SPACE)
    rounds = 0

    def wanted(outcomes: list[Outcome]) -> list[Cell]:
        nonlocal rounds
        rounds += 1
        assert rounds < 5, "the plan begins again for every trial that fails"
        claim = study.claim("unlucky")
        assert claim is not None
        assert claim.fail("out of memory")
        return cells(WIDER)

    assert study.plan(wanted, space=WIDER) == 6
    assert rounds == 1
    assert sorted(study.trials(), key=lambda trial: trial.number)[-1].cell.seed == 3
    assert len({outcome.cell for outcome in study.outcomes()}) == 18
    assert study.counts().waiting == 18


def test_a_cell_that_somebody_else_plans_meanwhile_is_planned_once(
    study: StoredStudy, shared_url: str
) -> None:
    """A planner whose lock was lost with its connection."""
    other = Database.open(shared_url)
    rival = other.study(study.name)
    seen: list[int] = []

    def wanted(outcomes: list[Outcome]) -> list[Cell]:
        seen.append(len(outcomes))
        if len(seen) == 1:
            from storage import planning

            planning.plan(rival, lambda found: cells(SPACE)[:4], parameters.Grid(SPACE), retry_failed=False)
        return cells(SPACE)

    assert study.plan(wanted, space=SPACE) == 8
    assert seen == [0, 4]
    assert sorted(trial.cell for trial in study.trials()) == sorted(cells(SPACE))
    other.close()


def test_a_cell_that_the_database_cannot_keep_is_refused(study: StoredStudy) -> None:
    space: Space = {**SPACE, "seed": [1, 2**53 + 1]}
    with pytest.raises(StorageError, match="9007199254740993 exactly"):
        study.plan(lambda outcomes: cells(space), space=space)
    assert study.trials() == []


def test_a_cell_is_never_planned_twice(study: StoredStudy) -> None:
    study.plan(lambda outcomes: cells(SPACE), space=SPACE)
    with study.database.write() as connection:
        trial_id = connection.scalar(
            select(func.max(TRIALS.c.trial_id)).where(TRIALS.c.study_id == study.study_id)
        )
        for table in (SYSTEM_ATTRIBUTES, PARAMETERS, TRIALS):
            connection.execute(delete(table).where(table.c.trial_id == trial_id))
    with pytest.raises(StorageError, match="was planned before"):
        study.plan(lambda outcomes: cells(SPACE), space=SPACE)
    assert len(study.trials()) == 11


def test_an_extension_gives_every_trial_the_marks_of_the_wider_grid(study: StoredStudy) -> None:
    study.plan(lambda outcomes: cells(SPACE), space=SPACE)
    claim = study.claim("w")
    assert claim is not None
    assert claim.fail("diverged")
    study.extend({"wider": True}, WIDER, lambda attributes: None)
    study.plan(lambda outcomes: cells(WIDER), space=WIDER)
    assert rows_of(study, SEARCH_SPACE) == [WIDER] * 18
    assert sorted(map(str, rows_of(study, GRID_ID))) == sorted(map(str, range(18)))
    sampler = optuna.samplers.GridSampler(WIDER)
    while (left := study.claim("w")) is not None:
        assert left.fail("end", retry=False)
    assert sampler._get_unvisited_grid_ids(study.optuna_study) == []
    ranges = {trial.distributions["seed"] for trial in study.optuna_study.trials}
    assert ranges == {optuna.distributions.IntDistribution(1, 3)}


def test_a_large_grid_is_not_repeated_with_every_trial(
    study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.plan(lambda outcomes: cells(SPACE), space=SPACE)
    monkeypatch.setattr(parameters, "MOST_MARKS_BYTES", 1000)
    study.extend({"wider": True}, WIDER, lambda attributes: None)
    assert study.plan(lambda outcomes: cells(WIDER), space=WIDER) == 6
    assert rows_of(study, SEARCH_SPACE) == rows_of(study, GRID_ID) == []
    with pytest.raises(ValueError, match="not in the search space"):
        study.plan(lambda outcomes: [Cell(0, 1e-5, 4)], space=WIDER)


def test_many_rows_at_once_come_back_as_they_went(study: StoredStudy) -> None:
    space: Space = {"frozen_layers": [-1, 0], "learning_rate": [1e-5, 0.1 + 0.2], "seed": [*range(50)]}
    assert study.plan(lambda outcomes: cells(space), space=space) == 200
    assert sorted(trial.cell for trial in study.trials()) == sorted(cells(space))
    assert [trial.params for trial in study.optuna_study.trials] == [
        trial.cell.parameters() for trial in study.trials()
    ]
