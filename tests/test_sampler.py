"""The adaptive search as an Optuna sampler: the protocol's own cells, each once, and then it stops."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from processes import CLEAN

from objectives.contract import Cell, Outcome, UsageError
from study.protocols import adaptive
from study.protocols.sampler import CELL, AdaptiveSampler

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
SEEDS = tuple(range(1, 6))
QUALITY = {0: 1.0, 6: 0.99, 7: 0.98, 8: 0.96, 9: 0.93, 10: 0.86, 11: 0.8, 12: 0.6}

SEARCH = adaptive.Adaptive()


def make_sampler(**settings: Any) -> AdaptiveSampler:
    return AdaptiveSampler.over(
        total_layers=12,
        frozen_layers=tuple(QUALITY),
        learning_rates=RATES,
        seeds=SEEDS,
        select="full-model",
        **settings,
    )


def score(cell: Cell) -> float:
    rate = 1 - 0.01 * abs(cell.learning_rate * 1e5 - 3)
    return 0.8 * QUALITY[cell.frozen_layers] * rate + 0.001 * (cell.seed % 3)


def objective(trial: optuna.Trial) -> float:
    return score(
        Cell(
            trial.suggest_int("frozen_layers", 0, 12),
            trial.suggest_float("learning_rate", 1e-5, 5e-5, log=True),
            trial.suggest_int("seed", 1, 5),
        )
    )


def slow_objective(trial: optuna.Trial) -> float:
    value = objective(trial)
    time.sleep(0.03)
    return value


def make_study(storage: str | None = None, **settings: Any) -> optuna.Study:
    return optuna.create_study(
        storage=storage, study_name="s", load_if_exists=True, sampler=make_sampler(), **settings
    )


def cells(study: optuna.Study) -> list[Cell]:
    return [Cell(**t.params) for t in study.trials if t.state == TrialState.COMPLETE]


def protocol_cells() -> list[Cell]:
    """What the pure function wants when one worker runs it."""
    outcomes: list[Outcome] = []
    spec = make_sampler().spec
    while True:
        done = {outcome.cell for outcome in outcomes}
        left = [cell for cell in SEARCH.wanted(spec, outcomes) if cell not in done]
        if not left:
            return [outcome.cell for outcome in outcomes]
        outcomes.append(Outcome(left[0], "COMPLETE", score(left[0])))


@pytest.mark.parametrize("database", [False, True])
def test_runs_the_protocols_cells_and_stops(tmp_path: Path, database: bool) -> None:
    study = make_study(f"sqlite:///{tmp_path}/s.db" if database else None, direction="maximize")
    study.optimize(objective, timeout=600)
    assert cells(study) == protocol_cells()
    assert "answer 9 frozen" in make_sampler().explain(study)
    assert "confidence 0.9 reached" in make_sampler().explain(study)


def test_a_settled_study_runs_nothing_more() -> None:
    study = make_study(direction="maximize")
    study.optimize(objective, timeout=600)
    before = len(study.trials)
    study.optimize(objective, timeout=600)
    assert [t.state for t in study.trials[before:]] == [TrialState.PRUNED]


@pytest.mark.slow
def test_goes_on_where_another_process_stopped(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/s.db"
    make_study(storage, direction="maximize").optimize(objective, n_trials=4)
    study = make_study(storage, direction="maximize")
    study.optimize(objective, timeout=600)
    assert cells(study) == protocol_cells()


def work(storage: str) -> None:
    make_study(storage, direction="maximize").optimize(slow_objective, timeout=600)


@pytest.mark.slow
def test_two_processes_share_a_study_without_running_a_cell_twice(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/s.db"
    study = make_study(storage, direction="maximize")
    workers = [CLEAN.Process(target=work, args=(storage,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(cells(study)) == len(set(cells(study)))
    assert {t.state for t in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert "answer 9 frozen" in make_sampler().explain(study)


def test_threads_run_at_once_and_never_a_cell_twice() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def counted(trial: optuna.Trial) -> float:
        nonlocal running, most
        value = objective(trial)
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return value

    study = make_study(direction="maximize")
    study.optimize(counted, n_jobs=4, timeout=600)
    assert len(cells(study)) == len(set(cells(study)))
    assert most > 1
    assert "answer 9 frozen" in make_sampler().explain(study)


def test_goes_on_without_failed_trials() -> None:
    def failing(trial: optuna.Trial) -> float:
        value = objective(trial)
        if trial.params["seed"] == 1:
            raise RuntimeError("diverged")
        return value

    study = make_study(direction="maximize")
    study.optimize(failing, timeout=600, catch=(RuntimeError,))
    tried = [Cell(**t.params) for t in study.trials]
    assert len(tried) == len(set(tried))
    assert "answer 9 frozen" in make_sampler().explain(study)


def test_an_enqueued_cell_counts_and_is_not_run_again() -> None:
    first = protocol_cells()[0]
    study = make_study(direction="maximize")
    study.enqueue_trial(first.parameters())
    study.optimize(objective, timeout=600)
    assert sorted(cells(study)) == sorted(protocol_cells())


def test_ask_and_tell() -> None:
    study = make_study(direction="maximize")
    for cell in protocol_cells():
        trial = study.ask()
        assert Cell(**study.trials[trial.number].system_attrs[CELL]) == cell
        study.tell(trial, objective(trial))
    surplus = study.ask()
    assert study.trials[surplus.number].system_attrs[CELL] is None


def test_leaves_a_study_whose_last_trial_never_ends() -> None:
    study = make_study(direction="maximize")
    study.sampler = AdaptiveSampler(make_sampler(budget="1").spec, patience=0.2)
    study.ask()
    study.optimize(objective, timeout=600)
    assert [t.state for t in study.trials] == [TrialState.RUNNING, TrialState.PRUNED]


def test_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="add 0 to --frozen-layers"):
        AdaptiveSampler.over(total_layers=12, frozen_layers=(6, 12), learning_rates=RATES, seeds=SEEDS)
    with pytest.raises(UsageError, match="direction='maximize'"):
        make_study(direction="minimize").optimize(objective, n_trials=1)
    study = make_study(direction="maximize")
    with pytest.raises(UsageError, match="no 'dropout'"):
        study.optimize(lambda trial: trial.suggest_float("dropout", 0, 1), n_trials=1)
    with pytest.raises(UsageError, match="outside of"):
        study.optimize(lambda trial: trial.suggest_int("seed", 7, 9), n_trials=1)
    study.enqueue_trial({"seed": 1})
    with pytest.raises(UsageError, match="enqueued trial must name every parameter"):
        study.optimize(objective, n_trials=1)
