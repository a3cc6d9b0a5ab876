"""A recorded study run by real launchers on a real database, and what is left of it after a fault.

Used by chaos.py and the tests. Launchers and workers are processes as people start them; a table of recorded
cells stands in for training, so that a study of hundreds of cells takes seconds.
"""

# ruff: noqa: E402 - the test servers are found by path

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import launches
from servers import Server

from objectives.contract import Cell, ElsaError
from storage.database import Database
from storage.overview import read_overview
from storage.reading import StoredTrial
from storage.studies import StoredStudy

STUDY = "chaos"
RATE = 3e-5
POLL_SECONDS = 0.15


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run, and on which terms."""

    depths: int = 10
    seeds: int = 20
    workers: int = 4
    delay_seconds: float = 0.05
    heartbeat_seconds: float = 1.0
    grace_seconds: float = 6.0
    max_retries: int = 20
    """More than enough for one cell to be killed again and again."""
    seed: int = 0
    limit_seconds: float = 300.0
    """After which a study that has not ended is taken to hang."""

    @property
    def slow_seconds(self) -> float:
        """The longest that a dead worker's trial may stay unnoticed: the grace period, a heartbeat, what the
        clocks of databases resolve, and a second for a busy machine."""
        return self.grace_seconds + self.heartbeat_seconds + 2.0


@dataclass(kw_only=True)
class Verdict:
    """What a fault cost."""

    database: str
    scenario: str
    cells: int
    lost: int
    """Cells without a complete trial."""
    twice: int
    """Cells with more than one."""
    left_over: int
    """Trials that are neither complete nor failed with a reason, and cells planned twice."""
    alive_reaped: int
    """Trials that were taken from a worker which was alive and could write."""
    retried: int
    recovery_seconds: float | None
    """The worst: from a death until the cell waits again, or from the end of a fault until work goes on."""
    limit_seconds: float
    relaunched: int
    """How often somebody had to start the launcher again."""
    seconds: float
    trouble: str = ""

    @property
    def good(self) -> bool:
        slow = self.recovery_seconds is not None and self.recovery_seconds > self.limit_seconds
        return not (self.lost or self.twice or self.left_over or self.alive_reaped or slow or self.trouble)


@dataclass
class Stage:
    url: str
    folder: Path
    size: Size
    server: Server | None = None
    launchers: list[subprocess.Popen[str]] = field(default_factory=list)
    victims: dict[int, datetime] = field(default_factory=dict)
    """Numbers of trials whose worker was killed or frozen, and when."""
    recoveries: list[float] = field(default_factory=list)
    away: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When the database could not be reached or written."""
    hopeless: set[Cell] = field(default_factory=set)
    """Cells that cannot be completed."""
    relaunched: int = 0
    seeds: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.size.seed)
        self.seeds = self.size.seeds
        self._began = time.monotonic()
        self.table = launches.write_table(
            self.folder / "table.csv", depths=self.size.depths, seeds=2 * self.size.seeds
        )

    @property
    def kind(self) -> str:
        return "sqlite" if self.server is None else self.server.kind

    @property
    def cells(self) -> set[Cell]:
        return {
            Cell(depth, RATE, seed) for depth in range(self.size.depths) for seed in range(1, self.seeds + 1)
        }

    # --- what people do ------------------------------------------------------------------------------------

    def launch(self, *more: object, workers: int | None = None, delay: float | None = None) -> None:
        size = self.size
        words: list[object] = ["--recorded", self.table, "--storage", self.url, "--study", STUDY]
        words += ["--workers", size.workers if workers is None else workers, "--seeds", self.seeds]
        words += ["--recorded-delay", size.delay_seconds if delay is None else delay]
        words += ["--heartbeat", size.heartbeat_seconds, "--grace", size.grace_seconds]
        words += ["--max-retries", size.max_retries, *more]
        with (self.folder / f"launch-{len(self.launchers)}.log").open("w") as log:
            self.launchers.append(launches.start(words, self.folder, stdout=log))

    def begin(self, *more: object, share: float = 0.1, **options: float) -> None:
        """A launcher, and the first cells done."""
        self.launch(*more, **options)  # type: ignore[arg-type]
        self.wait_for(lambda: self.complete() >= share * len(self.cells), "the first cells are done")

    # --- what one can see ----------------------------------------------------------------------------------

    @contextmanager
    def study(self) -> Iterator[StoredStudy]:
        with Database.open(self.url, patience_seconds=60) as database:
            yield database.study(STUDY)

    def complete(self) -> int:
        """0 before there is a study."""
        try:
            with self.study() as study:
                return study.counts().complete
        except ElsaError:
            return 0

    def workers(self) -> dict[str, int]:
        """Worker processes by name."""
        found = {}
        for pid, words in launches.processes("-m", "study.work").items():
            if f"ELSA_STORAGE={self.url}" in launches.environment(pid) and "--events" in words:
                found[words[words.index("--events") + 1]] = pid
        return found

    def running(self) -> dict[str, list[tuple[int, Cell]]]:
        """Numbers and cells of running trials by worker."""
        found: dict[str, list[tuple[int, Cell]]] = {}
        with self.study() as study:
            for trial in read_overview(study).running:
                found.setdefault(trial.worker, []).append((trial.number, trial.cell))
        return found

    def wait_for(self, true: Callable[[], object], what: str) -> None:
        deadline = self._began + self.size.limit_seconds
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {self.size.limit_seconds:g} s: {what}")
            time.sleep(POLL_SECONDS)

    # --- what happens to it --------------------------------------------------------------------------------

    def freeze_worker(self) -> int | None:
        """Stop one in the middle of whatever it does; the trials that it holds are now victims.

        None where the study ended before that.
        """
        self.wait_for(lambda: self.workers() or self._ended(), "a worker runs")
        for name, pid in self.draw.sample(found := sorted(self.workers().items()), min(1, len(found))):
            os.kill(pid, signal.SIGSTOP)
            now = datetime.now(UTC)
            self.victims.update({number: now for number, _ in self.running().get(name, ())})
            return pid
        return None

    def kill_worker(self) -> None:
        pid = self.freeze_worker()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def _ended(self) -> bool:
        return all(one.poll() is not None for one in self.launchers)

    def kill_launcher(self) -> None:
        self.launchers[-1].kill()
        self.launchers[-1].wait()

    @contextmanager
    def without_database(self) -> Iterator[None]:
        """A time in which nothing can go on; the recovery counts from its end."""
        gone = datetime.now(UTC)
        yield
        self.away.append((gone, datetime.now(UTC)))
        before, began = self.complete(), time.monotonic()
        if before < len(self.cells - self.hopeless):
            self.wait_for(lambda: self.complete() > before, "work goes on after the fault")
            self.recoveries.append(time.monotonic() - began)

    # --- how it ends ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until every cell has ended, launching again as a person would."""
        while True:
            self.wait_for(self._ended, "the launchers end")
            if self.complete() >= len(self.cells - self.hopeless):
                return
            self.relaunched += 1
            self.launch()

    def end(self) -> None:
        """Whatever still runs, frozen or not."""
        for pid in [*self.workers().values(), *(one.pid for one in self.launchers if one.poll() is None)]:
            for signum in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(pid, signum)
                except ProcessLookupError:
                    break
        for launcher in self.launchers:
            launcher.wait()

    def judge(self, scenario: str, trouble: str = "") -> Verdict:
        trials: list[StoredTrial] = []
        with suppress(ElsaError), self.study() as study:
            trials = study.trials()
        complete = Counter(trial.cell for trial in trials if trial.state == "COMPLETE")
        failed = [trial for trial in trials if trial.state == "FAIL" and trial.reason]
        rows, failures = Counter(trial.cell for trial in trials), Counter(trial.cell for trial in failed)
        reaped = {trial.number for trial in failed if "stopped answering" in (trial.reason or "")}
        deaths = [
            self._reachable(self.victims[trial.number], trial.ended)
            for trial in failed
            if trial.number in self.victims and trial.ended is not None
        ]
        odd = [trial for trial in trials if trial.state not in ("COMPLETE", "FAIL")]
        silent = [trial for trial in trials if trial.state == "FAIL" and not trial.reason]
        waits = [*deaths, *self.recoveries]
        return Verdict(
            database=self.kind,
            scenario=scenario,
            cells=len(self.cells),
            lost=len(self.cells - self.hopeless - set(complete)),
            twice=sum(count > 1 for count in complete.values()),
            left_over=len(odd) + len(silent) + sum(rows[cell] - failures[cell] > 1 for cell in rows),
            alive_reaped=len(reaped - set(self.victims)),
            retried=len(failed),
            recovery_seconds=round(max(waits), 1) if waits else None,
            limit_seconds=self.size.slow_seconds,
            relaunched=self.relaunched,
            seconds=round(time.monotonic() - self._began, 1),
            trouble=trouble,
        )

    def _reachable(self, begin: datetime, end: datetime) -> float:
        """Without the time that the database was away."""
        missing = sum(
            max(0.0, (min(end, back) - max(begin, gone)).total_seconds()) for gone, back in self.away
        )
        return (end - begin).total_seconds() - missing


def tails(folder: Path, names: Sequence[str] = ("launch-*.log",)) -> str:
    """The last lines of the launchers' logs, for a person who looks for the cause."""
    found = [path for name in names for path in sorted(folder.glob(name))]
    return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in found)
