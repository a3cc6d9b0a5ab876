"""Kills workers and restarts the database in the middle of a recorded study, then counts what was lost.

Everything is real: worker processes, kill -9, database servers. Nothing may be lost, nothing completed twice.
"""

# ruff: noqa: E402 - the test servers are found by path

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from servers import KINDS, Absent, running

from objectives.contract import Cell, Recipe
from objectives.recorded import RecordedObjective, RecordedPair, RecordedRun
from storage.database import Database
from study.planning import plan_study
from study.spec import StudySpec
from study.workers.worker import Job, run_worker

EXAMPLES = """examples:
  python scripts/chaos.py --database sqlite
  python scripts/chaos.py --cells 1000 --workers 8 --kills 10 --restarts 1 --json chaos.json
"""

FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What to run, and what to do to it."""

    cells: int = 1000
    workers: int = 8
    delay_seconds: float = 0.05
    kills: int = 10
    restarts: int = 1
    down_seconds: float = 3.0
    heartbeat_seconds: float = 2.0
    grace_seconds: float = 10.0
    second_launcher: bool = True
    failure_rate: float = 0.0
    max_retries: int = 20
    """More than enough for one cell to be killed again and again."""
    seed: int = 0


@dataclass(kw_only=True)
class Verdict:
    database: str
    cells: int
    complete: int
    lost: int
    """Cells without a complete trial."""
    twice: int
    """Cells with more than one."""
    junk: int
    """Trials that are neither complete nor failed with a reason."""
    duplicates: int
    """Cells planned again although they had a trial that was not failed."""
    added_by_second_launcher: int
    kills: int
    restarts: int
    retried: int
    recovery_seconds: list[float] = field(default_factory=list)
    """From the kill to the cell waiting again, without the time that the database was away."""
    recovery_limit_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        nothing = (self.lost, self.twice, self.junk, self.duplicates, self.added_by_second_launcher)
        slow = [seconds for seconds in self.recovery_seconds if seconds > self.recovery_limit_seconds]
        return not any(nothing) and not slow


def recorded_pair(cells: int) -> RecordedPair:
    """A made-up table with as many cells as wanted: 10 depths, 5 rates, and seeds for the rest."""
    grid = itertools.product(range(1, cells // 50 + 2), range(10), (1e-5, 2e-5, 3e-5, 4e-5, 5e-5))
    draw = random.Random(0)
    runs = [
        RecordedRun(
            cell=Cell(frozen_layers=depth, learning_rate=rate, seed=seed),
            state="COMPLETE",
            metric="f1",
            score=draw.random(),
            protocol="",
            reason="",
            measured={"train_seconds": 1.5, "trainable_parameters": 1000},
        )
        for seed, depth, rate in itertools.islice(grid, cells)
    ]
    return RecordedPair(task="made-up", model="none", total_layers=12, metric="f1", runs=tuple(runs))


def spec_of(pair: RecordedPair) -> StudySpec:
    return StudySpec(
        task=pair.task,
        metric=pair.metric,
        model=pair.model,
        model_fingerprint="",
        data="recorded",
        data_fingerprint=pair.fingerprint(),
        total_layers=pair.total_layers,
        frozen_layers=pair.frozen_layers,
        learning_rates=pair.learning_rates,
        seeds=pair.seeds,
        recipe=Recipe(),
        recorded=True,
    )


def open_database(url: str, trouble: Trouble) -> Database:
    return Database.open(
        url,
        create=True,
        heartbeat_seconds=trouble.heartbeat_seconds,
        grace_seconds=trouble.grace_seconds,
        patience_seconds=60,
    )


def work(url: str, study: str, pair: RecordedPair, trouble: Trouble, name: str) -> None:
    """A worker process."""
    database = open_database(url, trouble)
    objective = RecordedObjective(
        pair=pair, delay_seconds=trouble.delay_seconds, failure_rate=trouble.failure_rate
    )
    job = Job(study=database.study(study), spec=spec_of(pair), make_objective=lambda: objective)
    summary = run_worker(
        [job],
        worker=name,
        on_event=lambda event: None,
        max_retries=trouble.max_retries,
        poll_seconds=min(1.0, trouble.heartbeat_seconds / 2),
    )
    sys.exit(summary.exit_code)


class Crew:
    """Keeps the wanted number of workers alive, as a launcher does."""

    def __init__(self, size: int, start: Callable[[str], multiprocessing.process.BaseProcess]):
        self._start = start
        self._names = (f"worker-{number}" for number in itertools.count(1))
        self.members: dict[str, multiprocessing.process.BaseProcess] = {}
        self.killed: dict[str, datetime] = {}
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        name = next(self._names)
        self.members[name] = self._start(name)

    def kill(self, draw: random.Random) -> None:
        name = draw.choice([name for name, process in self.members.items() if process.is_alive()])
        process = self.members.pop(name)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        self.killed[name] = datetime.now(UTC)
        process.join()
        self._add()

    def failed(self) -> list[int]:
        return [code for process in self.members.values() if (code := process.exitcode)]

    def alive(self) -> bool:
        return any(process.is_alive() for process in self.members.values())

    def end(self) -> None:
        for process in self.members.values():
            if process.is_alive():
                process.kill()
            process.join()


def run(url: str, trouble: Trouble, restart: Callable[[], None] | None, kind: str) -> Verdict:
    """One study from planning to the last cell, with its troubles spread over the run."""
    pair = recorded_pair(trouble.cells)
    draw = random.Random(trouble.seed)
    database = open_database(url, trouble)
    name = f"chaos-{trouble.cells}-{trouble.seed}"
    study = database.create_study(name, {"spec": spec_of(pair).to_json()})
    plan_study(study, spec_of(pair), max_retries=trouble.max_retries)
    began = time.monotonic()

    def start(worker: str) -> multiprocessing.process.BaseProcess:
        process = FORK.Process(target=work, args=(url, name, pair, trouble, worker))
        process.start()
        return process

    troubles: list[str] = ["kill"] * trouble.kills + ["restart"] * (trouble.restarts if restart else 0)
    draw.shuffle(troubles)
    at = [trouble.cells * (0.1 + 0.8 * index / max(1, len(troubles))) for index in range(len(troubles))]
    if trouble.second_launcher:
        troubles.insert(len(troubles) // 2, "second")
        at.insert(len(at) // 2, trouble.cells / 2)
    added = 0
    away: list[tuple[datetime, datetime]] = []
    crew = Crew(trouble.workers, start)
    try:
        while crew.alive():
            done = study.counts().complete
            while troubles and done >= at[0]:
                at.pop(0)
                match troubles.pop(0):
                    case "kill":
                        crew.kill(draw)
                    case "restart":
                        assert restart is not None
                        gone = datetime.now(UTC)
                        restart()
                        away.append((gone, datetime.now(UTC)))
                    case _:
                        added += plan_study(study, spec_of(pair), max_retries=trouble.max_retries)
            if crew.failed():
                raise RuntimeError(f"workers ended with {crew.failed()}")
            time.sleep(0.05)
    finally:
        crew.end()
    verdict = judge(database, name, pair, crew.killed, away, trouble)
    verdict.database, verdict.added_by_second_launcher = kind, added
    verdict.seconds = time.monotonic() - began
    database.close()
    return verdict


def judge(
    database: Database,
    name: str,
    pair: RecordedPair,
    killed: dict[str, datetime],
    away: Sequence[tuple[datetime, datetime]],
    trouble: Trouble,
) -> Verdict:
    trials = database.study(name).trials()
    complete = Counter(trial.cell for trial in trials if trial.state == "COMPLETE")
    rows = Counter(trial.cell for trial in trials)
    failures = Counter(trial.cell for trial in trials if trial.state == "FAIL" and trial.reason)
    recovery = [
        reachable_seconds(killed[trial.worker], trial.ended, away)
        for trial in trials
        if trial.state == "FAIL" and trial.worker in killed and trial.ended is not None
    ]
    return Verdict(
        database="",
        cells=len(pair.cells),
        complete=len(complete),
        lost=len(set(pair.cells) - set(complete)),
        twice=sum(count > 1 for count in complete.values()),
        junk=sum(
            trial.state not in ("COMPLETE", "FAIL") or (trial.state == "FAIL" and not trial.reason)
            for trial in trials
        ),
        duplicates=sum(rows[cell] - failures[cell] > 1 for cell in rows),
        added_by_second_launcher=0,
        kills=len(killed),
        restarts=len(away),
        retried=sum(failures.values()),
        recovery_seconds=sorted(round(seconds, 2) for seconds in recovery),
        recovery_limit_seconds=trouble.grace_seconds + trouble.heartbeat_seconds,
    )


def reachable_seconds(begin: datetime, end: datetime, away: Sequence[tuple[datetime, datetime]]) -> float:
    missing = sum(max(0.0, (min(end, back) - max(begin, gone)).total_seconds()) for gone, back in away)
    return (end - begin).total_seconds() - missing


@contextmanager
def fresh_database(kind: str) -> Iterator[tuple[str, Callable[[float], None] | None]]:
    """A URL, and how to take the database away for some seconds (SQLite has no server to restart)."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/chaos.db", None
        return
    with running(KINDS[kind]) as server:

        def restart(seconds: float) -> None:
            server.stop()
            time.sleep(seconds)
            server.start()

        yield server.new_url(), restart


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("sqlite", *KINDS), action="append")
    parser.add_argument("--json", help="write the verdicts to this file")
    for name, default in asdict(Trouble()).items():
        if not isinstance(default, bool):
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args(argv))
    output, chosen = options.pop("json"), options.pop("database") or ["sqlite", *KINDS]
    trouble = Trouble(**options)
    verdicts = []
    for kind in chosen:
        try:
            with fresh_database(kind) as (url, restart):
                again = None if restart is None else lambda r=restart: r(trouble.down_seconds)
                verdict = run(url, trouble, again, kind)
        except Absent as absent:
            print(f"{kind}: skipped: {absent}")
            continue
        verdicts.append(verdict)
        print(
            f"{kind}: {'good' if verdict.good else 'BAD'}: {verdict.complete}/{verdict.cells} cells, "
            f"{verdict.lost} lost, {verdict.twice} twice, {verdict.junk} junk, {verdict.kills} kills, "
            f"{verdict.restarts} restarts, {verdict.retried} retried, recovery at most "
            f"{max(verdict.recovery_seconds, default=0):.1f} s of {verdict.recovery_limit_seconds:g} s, "
            f"{verdict.seconds:.1f} s",
            flush=True,
        )
    if output:
        Path(output).write_text(
            json.dumps([asdict(verdict) | {"good": verdict.good} for verdict in verdicts])
        )
    return 0 if all(verdict.good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
