"""A few cells claimed and finished in a database, as a worker does, in a study that is removed again."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

from objectives.contract import Cell, ElsaError, TrialRecord
from study.diagnosis.finding import Finding, failed

CELLS = 10
SLOW_SECONDS = 0.25
"""A claim and its result; hundreds of workers share the database."""


def check_storage(url: str) -> Finding:
    """A SQLite file is tried beside the one that is named, which need not exist and is not touched."""
    from storage.address import Address

    address = Address.parse(url)
    if address.kind == "sqlite":
        folder = Path(address.path).absolute().parent
        try:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".elsa-doctor-") as inside:
                return _round_trip(f"sqlite:///{inside}/doctor.db", f"SQLite in {folder}")
        except OSError as error:
            return failed("database", f"{folder}: {error.strerror}", "choose a folder that can be written")
    return _round_trip(url, address.display)


def _round_trip(url: str, shown: str) -> Finding:
    from storage.database import Database

    name = f"elsa-doctor-{uuid.uuid4().hex[:12]}"
    cells = [Cell(number, 1e-3, 1) for number in range(CELLS)]
    space: dict[str, list[int | float | None]] = {
        "frozen_layers": [cell.frozen_layers for cell in cells],
        "learning_rate": [1e-3],
        "seed": [1],
    }
    try:
        database = Database.open(url, create=True, outage_seconds=10)
        try:
            study = database.create_study(name, {})
            try:
                study.plan(lambda outcomes: cells if not outcomes else [], space=space)
                began, done = time.perf_counter(), 0
                while claim := study.claim("doctor"):
                    done += claim.finish(TrialRecord(metric="accuracy", score=0.5))
                seconds = (time.perf_counter() - began) / CELLS
                counts = study.counts()
            finally:
                database.delete_study(name)
        finally:
            database.close()
    except ElsaError as error:
        return failed("database", error, "check --storage, the server and its permissions")
    details = {"claim_and_finish_seconds": round(seconds, 5)}
    if done != CELLS or counts.complete != CELLS:
        return failed(
            "database",
            f"{shown}: {counts.complete} of {CELLS} cells finished",
            "report it as a bug",
            **details,
        )
    words = f"{shown}: {1000 * seconds:.1f} ms to claim and finish a cell"
    if seconds > SLOW_SECONDS:
        return Finding(
            check="database",
            verdict="slow",
            found=words,
            next_step="use a database nearer to the workers, or on a local disk",
            details=details,
        )
    return Finding(check="database", found=words, details=details)
