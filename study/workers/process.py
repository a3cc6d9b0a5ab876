"""The process that `launch` starts for each of its workers: the same command, joining what was planned."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from study import command
from study.workers.parent import follow_parent

if TYPE_CHECKING:
    from study.workers.events import Event
    from study.workers.worker import Job

PATIENCE_SECONDS = 600.0
"""A worker may be started while the database is; the launcher has seen that there is one."""


def main(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    if arguments.rank is not None:
        from study.workers import ranks

        return ranks.take_part(arguments)
    follow_parent()
    if arguments.processes_per_trial > 1:
        from study.workers import process_group

        return process_group.lead(argv, arguments.processes_per_trial)
    from study.workers.event_lines import EventWriter

    return work(arguments, EventWriter())


def work(arguments: argparse.Namespace, on_event: Callable[[Event], None]) -> int:
    """Join the studies and work until they are done; the exit code."""
    from study.workers.worker import run_worker

    with joined(arguments) as jobs:
        summary = run_worker(
            jobs,
            worker=arguments.worker_name,
            on_event=on_event,
            join_only=arguments.join_only,
        )
    return summary.exit_code


@contextmanager
def joined(arguments: argparse.Namespace) -> Iterator[list[Job]]:
    """The studies that the launcher planned."""
    from storage.database import Database
    from study import launch, request

    requests = request.resolve(arguments)
    database = Database.open(
        command.storage_url(arguments.storage),
        heartbeat_seconds=arguments.heartbeat,
        grace_seconds=arguments.grace,
        max_retries=arguments.max_retries,
        patience_seconds=PATIENCE_SECONDS,
    )
    try:
        yield launch.join(database, requests, arguments)
    finally:
        database.close()
