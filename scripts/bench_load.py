"""A large study under load: what a launch needs beside the storage alone, and how fast it hears.

For each number of workers it measures: claims, reports and results of all cells by bare processes on the same
database (the storage alone); a launch of the same cells; the database connections that each worker holds
meanwhile; and how long the death of a worker and an interrupt stay unnoticed. Then planning, extending,
showing and analysing: `--large` cells, all of them complete.
"""

# ruff: noqa: E402 - the test servers are found by path

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import launches
from bench_storage import fresh_database
from optuna.storages._rdb.models import TrialValueModel
from optuna.trial import TrialState
from servers import KINDS
from sqlalchemy import select, text, update

from objectives.contract import TrialRecord
from storage import rows
from storage.attributes import to_attributes
from storage.database import Database
from storage.schema import TRIALS, USER_ATTRIBUTES, VALUES
from study.launching.arguments import parse
from study.launching.joining import join
from study.launching.request import resolve

EXAMPLES = """examples:
  python scripts/bench_load.py
  python scripts/bench_load.py --database sqlite --cells 1000 --workers 8 --large 0
"""
FORK = multiprocessing.get_context("fork")
RECORD = TrialRecord(
    metric="f1",
    score=0.5,
    metrics={"f1": 0.5, "accuracy": 0.5},
    trainable_parameters=1000,
    total_parameters=2000,
    train_seconds=1.0,
    evaluation_seconds=0.1,
    device="cpu",
    host="bench",
)
DEPTHS = 10


@dataclass(kw_only=True)
class Load:
    """One number of workers."""

    database: str
    cells: int
    workers: int
    storage_seconds: float
    """All cells claimed, reported on once and finished by bare processes."""
    plan_seconds: float
    extend_seconds: float
    """Half as many seeds again, the plan of their cells included."""
    run_seconds: float
    """Of a launch: from the first claim to the last result."""
    launch_seconds: float
    """From the command to the report."""
    connections: dict[str, float] = field(default_factory=dict)
    """Per worker, the launcher's own included: the mean and the most; and how many are busy on average."""
    death_seconds: float
    """From kill -9 of a worker until the launcher says so."""
    interrupt_seconds: float
    """From SIGINT until the launcher and all workers are gone."""

    @property
    def ratio(self) -> float:
        return self.run_seconds / self.storage_seconds


def arguments(table: Path, url: str, seeds: int, *more: object) -> list[str]:
    words: list[object] = ["--recorded", table, "--storage", url, "--seeds", seeds, "--study", "load", *more]
    return [str(word) for word in words]


def plan(table: Path, url: str, seeds: int, *more: object) -> float:
    """Through the launcher's own code; the seconds it took."""
    request = parse(arguments(table, url, seeds, *more))
    requests = resolve(request)
    with Database.open(url, create=True) as database:
        began = time.monotonic()
        join(database, requests, extend=request.launching.extend)
        return time.monotonic() - began


def _bare(url: str, ready: Any) -> None:
    database = Database.open(url)
    study = database.study("load")
    ready.wait()
    while (claim := study.claim("bare")) is not None:
        # One point of a learning curve, as each trial of the launch has.
        claim.report(0, RECORD.score)
        claim.finish(RECORD)
    os._exit(0)


def storage_alone(url: str, workers: int) -> float:
    ready = FORK.Barrier(workers + 1)
    crew = [FORK.Process(target=_bare, args=(url, ready)) for _ in range(workers)]
    for one in crew:
        one.start()
    ready.wait()
    began = time.monotonic()
    for one in crew:
        one.join()
    return time.monotonic() - began


def run_seconds(url: str) -> float:
    with Database.open(url) as database:
        trials = database.study("load").trials()
    begun = [trial.started for trial in trials if trial.started is not None]
    ended = [trial.ended for trial in trials if trial.ended is not None]
    assert {trial.state for trial in trials} == {"COMPLETE"}, "not all cells are complete"
    return (max(ended) - min(begun)).total_seconds()


class Connections(threading.Thread):
    """Counts those of the workers, once a second."""

    def __init__(self, url: str, server: Any):
        super().__init__(daemon=True)
        self._name, self._server = url.rsplit("/", 1)[1], server
        self._over = threading.Event()
        self.seen: list[tuple[int, int]] = []

    def run(self) -> None:
        with self._server.connect() as owner:
            while not self._over.wait(1.0):
                found = owner.execute(
                    "SELECT state FROM pg_stat_activity WHERE datname = %s", (self._name,)
                ).fetchall()
                self.seen.append((len(found), sum(row[0] != "idle" for row in found)))

    def per(self, workers: int) -> dict[str, float]:
        self._over.set()
        self.join()
        middle = self.seen[len(self.seen) // 4 : -len(self.seen) // 4 or None]
        if not middle:
            return {}
        mean, busy = (sum(values) / len(middle) / workers for values in zip(*middle, strict=True))
        most = max(count for count, _ in self.seen) / workers
        return {"mean": round(mean, 2), "most": round(most, 2), "busy": round(busy, 2)}


def launched(
    table: Path, url: str, seeds: int, workers: int, folder: Path, server: Any
) -> tuple[float, float, dict[str, float]]:
    counter = None if server is None else Connections(url, server)
    began = time.monotonic()
    with (folder / "launch.log").open("w") as log:
        words = arguments(table, url, seeds, "--workers", workers)
        launcher = launches.start(words, folder, stdout=log)
        if counter is not None:
            counter.start()
        code = launcher.wait()
    seconds = time.monotonic() - began
    assert code == 0, (folder / "launch.log").read_text()[-2000:]
    return run_seconds(url), seconds, {} if counter is None else counter.per(workers)


def hearing(table: Path, url: str, seeds: int, workers: int, folder: Path) -> tuple[float, float]:
    """Kill a worker of a busy launch, then interrupt it."""
    log = folder / "hearing.log"
    with log.open("w") as out:
        words = arguments(table, url, seeds, "--workers", workers)
        launcher = launches.start(words, folder, stdout=out)
    with Database.open(url) as database:
        study = database.study("load")
        launches.wait_until(lambda: study.counts().complete > 20 * workers, "cells are done", 600)
    own = [
        pid
        for pid in launches.processes("-m", "study.work")
        if f"ELSA_STORAGE={url}" in launches.environment(pid)
    ]
    os.kill(own[0], signal.SIGKILL)
    death = _until(lambda: "was killed by SIGKILL" in log.read_text())
    launcher.send_signal(signal.SIGINT)
    stopped = _until(lambda: launcher.poll() is not None)
    assert launcher.returncode == 130, log.read_text()[-2000:]
    return death, stopped


def _until(true: Callable[[], bool], seconds: float = 300) -> float:
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            return float("inf")
        time.sleep(0.02)
    return time.monotonic() - began


def measure(kind: str, cells: int, workers: int) -> Load:
    seeds = cells // DEPTHS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = launches.write_table(folder / "table.csv", depths=DEPTHS, seeds=2 * seeds)
        with fresh(kind) as (new_url, server):
            url = new_url()
            plan_seconds = plan(table, url, seeds)
            alone = storage_alone(url, workers)
            extend_seconds = plan(table, url, seeds + seeds // 2, "--extend")
            url = new_url()
            plan(table, url, seeds)
            ran, whole, connections = launched(table, url, seeds, workers, folder, server)
            url = new_url()
            plan(table, url, seeds)
            death, interrupt = hearing(table, url, seeds, workers, folder)
    return Load(
        database=kind,
        cells=cells,
        workers=workers,
        storage_seconds=round(alone, 1),
        plan_seconds=round(plan_seconds, 1),
        extend_seconds=round(extend_seconds, 1),
        run_seconds=round(ran, 1),
        launch_seconds=round(whole, 1),
        connections=connections,
        death_seconds=round(death, 1),
        interrupt_seconds=round(interrupt, 1),
    )


@contextmanager
def fresh(kind: str) -> Iterator[tuple[Callable[[], str], Any]]:
    """How to get a new database, and the server where its connections can be counted."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            numbers = iter(range(1000))
            yield lambda: f"sqlite:///{folder}/load-{next(numbers)}.db", None
        return
    from servers import running

    with running(KINDS[kind], durable=True) as server:
        yield server.new_url, server if kind in ("postgresql", "pgbouncer") else None


def complete_all(url: str) -> None:
    """As workers would leave it, in bulk."""
    with Database.open(url) as database:
        study = database.study("load")
        now = rows.utc_now()
        with database.write() as connection:
            own = TRIALS.c.study_id == study.study_id
            done = {"state": TrialState.COMPLETE, "datetime_start": now, "datetime_complete": now}
            connection.execute(update(TRIALS).where(own).values(**done))
            ids = list(connection.scalars(select(TRIALS.c.trial_id).where(own)))
            kind = TrialValueModel.TrialValueType.FINITE
            values = [
                {"trial_id": i, "objective": 0, "value": 0.5 + i % 97 / 1000, "value_type": kind} for i in ids
            ]
            rows.insert_many(connection, VALUES, values)
            attributes = to_attributes(RECORD)
            rows.insert_attributes(connection, USER_ATTRIBUTES, [(i, attributes) for i in ids])
        if database.address.kind == "postgresql":
            with database.write() as connection:
                connection.execute(text("ANALYZE"))


def command(*words: str) -> tuple[float, int]:
    """Seconds, and megabytes at the most."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, words
    return round(time.monotonic() - began, 1), round(used.ru_maxrss / 1024)


def large(kind: str, cells: int) -> dict[str, Any]:
    """Planned by the launcher's code; shown and analysed by the commands."""
    seeds = cells // DEPTHS
    with tempfile.TemporaryDirectory() as name, fresh_database(kind) as url:
        table = launches.write_table(Path(name) / "table.csv", depths=DEPTHS, seeds=seeds)
        planned = plan(table, url, seeds)
        memory = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        waiting = command("study.status", "--storage", url)
        complete_all(url)
        found = {
            "plan": (round(planned, 1), memory),
            "status, all waiting": waiting,
            "status, all complete": command("study.status", "--storage", url),
            "operating_points": command("study.operating_points", "--storage", url),
            "table": command("study.table", "--storage", url, "--out", f"{name}/t.csv"),
            "report": command("study.report", "--storage", url, "--out", f"{name}/report"),
        }
    return {"database": kind, "cells": cells, **found}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("sqlite", *KINDS), action="append")
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, action="append", help="default: 8 and 32")
    parser.add_argument("--large", type=int, default=100_000, help="cells to plan, show and analyse; 0: none")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    options = parser.parse_args(argv)
    found: list[dict[str, Any]] = []
    for kind in options.database or ["postgresql"]:
        for workers in options.workers or [8, 32]:
            load = measure(kind, options.cells, workers)
            found.append(asdict(load) | {"ratio": round(load.ratio, 2)})
            print("\n".join(f"{key:>18}  {value}" for key, value in found[-1].items()), "\n", flush=True)
        if options.large:
            found.append(large(kind, options.large))
            print("\n".join(f"{key:>22}  {value}" for key, value in found[-1].items()), "\n", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
