"""What a trial costs in the database: ours, Optuna's GridSampler, and enqueue + ask, side by side.

Each study is met half done, as workers meet it most of the time. `claim+tell/s` is of all workers together,
each on its own process; the milliseconds are of one worker alone.
"""

# ruff: noqa: E402 - the test servers are found by path
from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import optuna
from optuna.storages._rdb.models import TrialValueModel
from optuna.trial import TrialState
from servers import KINDS, Absent, running
from sqlalchemy import update

from objectives.contract import Cell, TrialRecord
from storage import rows
from storage.database import Database
from storage.parameters import Grid, cell_of
from storage.planning import _new_trial
from storage.schema import TRIALS, VALUES
from storage.studies import StoredStudy

EXAMPLES = """examples:
  python scripts/bench_storage.py --database sqlite --sizes 100,1000
  python scripts/bench_storage.py --json storage.json
"""

TABLE = "{:<10} {:>6}  {:<13} {:>7} {:>12} {:>9} {:>8} {:>7} {:>10} {:>7}"
HEADINGS = (
    *("database", "cells", "way", "workers", "claim+tell/s", "ms/claim", "ms/tell"),
    *("trials", "collisions", "plan s"),
)

FORK = multiprocessing.get_context("fork")
Step = Callable[[], tuple[float, float] | None]
"""One trial: seconds of claim (or ask) and of tell, or None when there is nothing left."""


class Collision(Exception):
    """Two workers got the same trial."""


@dataclass(frozen=True, kw_only=True)
class Row:
    database: str
    cells: int
    way: str
    workers: int
    per_second: float
    claim_ms: float
    tell_ms: float
    trials: int
    """How many were measured with all workers; fewer where the time was up."""
    collisions: int
    """Trials that two workers got."""
    plan_seconds: float | None = None


def space_of(cells: int) -> dict[str, list[float | int]]:
    depths, rates = 5, 4
    return {
        "frozen_layers": list(range(depths)),
        "learning_rate": [1e-5, 2e-5, 3e-5, 4e-5],
        "seed": list(range(1, cells // (depths * rates) + 1)),
    }


def half_done(database: Database, name: str, cells: int, way: str) -> StoredStudy:
    """A study whose first half is complete; the second waits in the form that `way` expects."""
    study = database.create_study(name, {})
    grid = Grid(space_of(cells))
    names = list(grid.space)
    order = [cell for point in grid._ids if (cell := cell_of(dict(zip(names, point, strict=True))))]
    done = cells // 2
    with database.write() as connection:
        rows.lock_study(connection, study.study_id, study.name)
        rows.insert_waiting(connection, study.study_id, [_new_trial(cell, grid) for cell in order[:done]])
        now = rows.utc_now()
        connection.execute(
            update(TRIALS)
            .where(TRIALS.c.study_id == study.study_id)
            .values(state=TrialState.COMPLETE, datetime_start=now, datetime_complete=now)
        )
        ids = connection.scalars(TRIALS.select().where(TRIALS.c.study_id == study.study_id)).all()
        value = {"objective": 0, "value": 0.5, "value_type": TrialValueModel.TrialValueType.FINITE}
        rows.insert_many(connection, VALUES, [{"trial_id": trial_id, **value} for trial_id in ids])
        if way == "enqueue + ask":
            queued = [rows.NewTrial([], {"fixed_params": cell.parameters()}) for cell in order[done:]]
            rows.insert_waiting(connection, study.study_id, queued)
    return study


def ours(database: Database, name: str, cells: int) -> Step:
    study = database.study(name)
    record = TrialRecord(metric="f1", score=0.5, metrics={"f1": 0.5, "accuracy": 0.5}, train_seconds=1.0)

    def step() -> tuple[float, float] | None:
        began = time.perf_counter()
        claim = study.claim("bench")
        claimed = time.perf_counter()
        if claim is None:
            return None
        claim.finish(record)
        return claimed - began, time.perf_counter() - claimed

    return step


def stock(database: Database, name: str, cells: int, sampler: optuna.samplers.BaseSampler) -> Step:
    """Plain Optuna: its own engine settings, but a patient SQLite."""
    arguments: dict[str, Any] = {"connect_args": {"timeout": 60}} if database.address.kind == "sqlite" else {}
    storage = optuna.storages.RDBStorage(database.address.text, engine_kwargs=arguments)
    study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
    space = space_of(cells)

    def step() -> tuple[float, float] | None:
        began = time.perf_counter()
        trial = study.ask()
        enqueued = "fixed_params" in trial._cached_frozen_trial.system_attrs
        if isinstance(sampler, optuna.samplers.RandomSampler) and not enqueued:
            study.tell(trial, state=TrialState.FAIL)
            return None
        try:
            trial.suggest_int("frozen_layers", 0, int(max(space["frozen_layers"])))
            trial.suggest_float("learning_rate", 1e-5, 4e-5, log=True)
            trial.suggest_int("seed", 1, int(max(space["seed"])))
            asked = time.perf_counter()
            study.tell(trial, 0.5)
        except (RuntimeError, ValueError) as error:
            if "stop" in str(error):
                # How GridSampler says, outside of optimize, that its grid is exhausted.
                return None
            raise Collision from error
        return asked - began, time.perf_counter() - asked

    return step


WAYS: dict[str, Callable[[Database, str, int], Step]] = {
    "ours": ours,
    "GridSampler": lambda database, name, cells: stock(
        database, name, cells, optuna.samplers.GridSampler(space_of(cells))
    ),
    "enqueue + ask": lambda database, name, cells: stock(
        database, name, cells, optuna.samplers.RandomSampler()
    ),
}


def repeat(step: Step, trials: int, seconds: float) -> tuple[list[tuple[float, float]], int]:
    deadline = time.monotonic() + seconds
    found: list[tuple[float, float]] = []
    collisions = 0
    while len(found) < trials and time.monotonic() < deadline:
        try:
            one = step()
        except Collision:
            collisions += 1
            continue
        if one is None:
            break
        found.append(one)
    return found, collisions


def _worker(
    url: str, name: str, cells: int, way: str, share: int, seconds: float, ready: Any, out: Any
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    database = Database.open(url)
    step = WAYS[way](database, name, cells)
    ready.wait()
    began = time.monotonic()
    found: list[Any] = []
    collisions = 0
    try:
        found, collisions = repeat(step, share, seconds)
    finally:
        out.put((len(found), collisions, began, time.monotonic()))
        out.close()
        out.join_thread()
        os._exit(0)


def measure(url: str, kind: str, cells: int, way: str, workers: int, trials: int, seconds: float) -> Row:
    database = Database.open(url, create=True)
    began = time.monotonic()
    plan_seconds = None
    for purpose in ("alone", "together"):
        study = half_done(database, f"{way} {cells} {purpose}", cells, way)
        if way == "ours":
            names, lists = zip(*space_of(cells).items(), strict=True)
            found = [cell_of(dict(zip(names, point, strict=True))) for point in itertools.product(*lists)]
            grid = [cell for cell in found if cell]
            began = time.monotonic()

            def wanted(_outcomes: object, grid: list[Cell] = grid) -> list[Cell]:
                return grid

            study.plan(wanted, space=space_of(cells))
            plan_seconds = time.monotonic() - began
    step = WAYS[way](database, f"{way} {cells} alone", cells)
    step()
    alone, _ = repeat(step, min(trials, cells // 2 - 1), seconds)
    ready, out = FORK.Barrier(workers), FORK.Queue()
    share = min(trials, cells // 2) // workers
    arguments = (url, f"{way} {cells} together", cells, way, share, seconds, ready, out)
    processes = [FORK.Process(target=_worker, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    try:
        answers = [out.get(timeout=seconds + 120) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    database.close()
    elapsed = max(end for *_, end in answers) - min(begin for *_, begin, _ in answers)
    count = sum(number for number, *_ in answers)
    return Row(
        database=kind,
        cells=cells,
        way=way,
        workers=workers,
        per_second=round(count / elapsed, 1),
        claim_ms=round(1000 * sum(claim for claim, _ in alone) / len(alone), 2),
        tell_ms=round(1000 * sum(tell for _, tell in alone) / len(alone), 2),
        trials=count,
        collisions=sum(collisions for _, collisions, *_ in answers),
        plan_seconds=None if plan_seconds is None else round(plan_seconds, 2),
    )


@contextmanager
def fresh_database(kind: str) -> Iterator[str]:
    """Durable: every commit reaches the disk, as it would in earnest."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db"
        return
    with running(KINDS[kind], durable=True) as server:
        yield server.new_url()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("sqlite", *KINDS), action="append")
    parser.add_argument("--sizes", default="100,200,1000,10000", help="cells of the studies")
    parser.add_argument("--ways", default=",".join(WAYS), help="of ours,GridSampler,enqueue + ask")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument(
        "--stock-cells", type=int, default=1000, help="above this, stock Optuna is measured with one worker"
    )
    parser.add_argument("--trials", type=int, default=400, help="most trials to measure per study")
    parser.add_argument("--seconds", type=float, default=15, help="most time to spend on one measurement")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: list[Row] = []
    print(TABLE.format(*HEADINGS))
    for kind in options.database or ["sqlite", *KINDS]:
        try:
            with fresh_database(kind) as url:
                for cells, way in itertools.product(
                    map(int, options.sizes.split(",")), options.ways.split(",")
                ):
                    few = way != "ours" and cells > options.stock_cells
                    workers = 1 if few else options.workers
                    row = measure(url, kind, cells, way, workers, options.trials, options.seconds)
                    found.append(row)
                    values = ("" if value is None else value for value in asdict(row).values())
                    print(TABLE.format(*values), flush=True)
        except Absent as absent:
            print(f"{kind}: skipped: {absent}")
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
