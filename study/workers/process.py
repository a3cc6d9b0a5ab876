"""One worker process: alone, as the leader of a process group, or as one of its ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from study.workers.jobs import Job, load_jobs
from study.workers.options import Places, Working
from study.workers.parent import follow_parent

PATIENCE_SECONDS = 600.0
"""A worker may start while the database restarts; its launcher has seen that there is one."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one worker is to do."""

    studies: tuple[str, ...]
    storage: str
    worker: str
    """Its name in the database and on displays."""
    working: Working
    places: Places

    @contextmanager
    def jobs(self) -> Iterator[list[Job]]:
        """The studies, with the database open."""
        from storage.database import Database

        with Database.open(self.storage, patience_seconds=PATIENCE_SECONDS) as database:
            yield load_jobs(database, self.studies, self.places)


def main(assignment: Assignment, argv: Sequence[str]) -> int:
    """Work until the studies are done; the exit code. `argv` are this process's own arguments."""
    from study.workers import process_group, ranks

    if process_group.RANK in os.environ:
        return ranks.take_part(assignment, int(os.environ[process_group.RANK]))
    follow_parent()
    if assignment.working.processes_per_trial > 1:
        return process_group.lead(argv, assignment.working.processes_per_trial)
    from study.workers.event_lines import EventWriter
    from study.workers.tracking import tracked
    from study.workers.worker import run_worker

    write = EventWriter()
    with (
        assignment.jobs() as jobs,
        tracked(jobs, assignment.places.keeping, write, assignment.worker) as on_event,
    ):
        summary = run_worker(
            jobs,
            worker=assignment.worker,
            on_event=on_event,
            join_only=assignment.working.join_only,
            trial_timeout=assignment.working.trial_timeout,
        )
    return summary.exit_code
