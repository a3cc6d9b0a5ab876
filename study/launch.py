"""The `launch` command: plans the studies that are asked for, runs their cells, ends with the answer."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import SpecMismatch, UsageError
from study import command
from study.arguments import make_parser
from study.spec import StudySpec
from study.streams import outliving_their_readers
from study.workers.process import PATIENCE_SECONDS

if TYPE_CHECKING:
    from storage.database import Database
    from study.request import StudyRequest
    from study.workers.devices import Share
    from study.workers.worker import Job


def main(argv: Sequence[str] | None = None) -> int:
    # `launch | head` or a lost terminal: the study goes on, and the exit code tells of it alone.
    with outliving_their_readers():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(given: list[str]) -> int:
    arguments = make_parser().parse_args(given)
    _check(arguments)
    if arguments.worker_name:
        from study.workers import process as worker_process

        return worker_process.main(arguments, given)
    from study import request

    shares = _shares(arguments)
    requests = request.resolve(arguments)
    if arguments.dry_run:
        from study.dry_run import dry_run

        print(dry_run(requests, arguments))
        return 0
    from storage.database import Database

    database = Database.open(
        command.storage_url(arguments.storage),
        create=not (arguments.join_only or arguments.joined),
        heartbeat_seconds=arguments.heartbeat,
        grace_seconds=arguments.grace,
        max_retries=arguments.max_retries,
        # A job of a cluster may start while the database is away; a person wants to know at once.
        patience_seconds=PATIENCE_SECONDS if arguments.joined else 0.0,
    )
    try:
        jobs = join(database, requests, arguments)
        return _run(arguments, database, jobs, lambda: _work(arguments, jobs, given, shares))
    finally:
        database.close()


def _shares(arguments: argparse.Namespace) -> list[Share]:
    """What each worker gets of this machine; none where the workers run on a cluster."""
    from study.workers import devices

    if arguments.slurm:
        from study.workers import slurm

        slurm.check(arguments)
        return []
    return devices.plan(
        devices.find(),
        workers=arguments.workers,
        workers_per_gpu=arguments.workers_per_gpu,
        processes_per_trial=arguments.processes_per_trial,
        cores=devices.cores(),
    )


def _check(arguments: argparse.Namespace) -> None:
    least = {"workers": 0, "workers_per_gpu": 1, "processes_per_trial": 1, "max_retries": 0}
    for name, lowest in least.items():
        value = getattr(arguments, name)
        if value is not None and value < lowest:
            raise UsageError(f"--{name.replace('_', '-')} {value}: at least {lowest}")
    if arguments.extend and arguments.join_only:
        raise UsageError("--extend plans and --join-only never does: leave one of them out")
    if not 0 <= arguments.recorded_failure_rate < 1:
        raise UsageError(f"--recorded-failure-rate {arguments.recorded_failure_rate}: a share below 1")


def join(database: Database, requests: Sequence[StudyRequest], arguments: argparse.Namespace) -> list[Job]:
    """Create or join each study and plan its cells; all specs are compared before the first write."""
    from study import extension
    from study.planning import plan_study, search_space
    from study.workers.worker import Job

    helps = arguments.joined or bool(arguments.worker_name)
    specs = {request.name: request.spec for request in requests}
    existing = set(database.study_names())
    for request in requests:
        if request.name not in existing:
            continue
        stored = StudySpec.from_json(_stored_spec(database, request.name))
        if helps and extension.covers(stored, request.spec):
            # Extended since its launcher began.
            specs[request.name] = stored
        elif arguments.extend:
            extension.check(request.name, stored, request.spec)
        else:
            _compare(request, stored, database)
    jobs = []
    for request in requests:
        spec = specs[request.name]
        if arguments.join_only or helps:
            study = database.study(request.name)
        else:
            study = database.create_study(request.name, _attributes(spec))
            if arguments.extend:
                study.extend(_attributes(spec), search_space(spec), extension.checker(request.name, spec))
            # Whoever created it in the meantime may have done so from another spec.
            _compare(request, StudySpec.from_json(study.attributes()["spec"]), database)
            plan_study(
                study,
                spec,
                max_retries=study.terms.max_retries,
                retry_failed=arguments.retry_failed,
                cells=request.cells,
            )
        jobs.append(Job(study=study, spec=spec, make_objective=request.make_objective, cells=request.cells))
    return jobs


def _attributes(spec: StudySpec) -> dict[str, str | bool | int]:
    """What a study carries: the whole spec, and for people the part that a dashboard shows best."""
    shown: dict[str, str | bool | int] = {
        "spec": spec.to_json(),
        "fingerprint": spec.fingerprint(),
        "task": spec.task,
        "model": spec.model,
        "metric": spec.metric,
        "protocol": spec.protocol,
        "total_layers": spec.total_layers,
    }
    return shown | ({"demo": True} if spec.demo else {}) | ({"recorded": True} if spec.recorded else {})


def _stored_spec(database: Database, name: str) -> str:
    attributes = database.study(name).attributes()
    if "spec" not in attributes:
        raise SpecMismatch(
            f"{name} in {database.display_url} is no study of this software: choose another --study"
        )
    return attributes["spec"]


def _compare(request: StudyRequest, stored: StudySpec, database: Database) -> None:
    differences = stored.differences(request.spec)
    if differences:
        raise SpecMismatch(
            f"{request.name} in {database.display_url} was made from another spec: {'; '.join(differences)} "
            "(there -> here). Repeat its settings, add --extend if only depths, rates or seeds are to be "
            "added, or choose another --study"
        )


def _run(
    arguments: argparse.Namespace, database: Database, jobs: Sequence[Job], work: Callable[[], int | None]
) -> int:
    counts = [job.study.counts() for job in jobs]
    waiting = sum(found.open for found in counts)
    total = waiting + sum(found.complete + found.failed for found in counts)
    names = ", ".join(job.study.name for job in jobs)
    for line in _introduction(jobs):
        print(line)
    if arguments.workers == 0:
        print(f"planned: {names} in {database.display_url}, {waiting} cells wait; start workers to run them")
        return 0
    if waiting == 0:
        print(f"nothing is missing: all cells of {names} are in {database.display_url}")
        if arguments.joined:
            return 0
    else:
        print(f"{names} in {database.display_url}: {waiting} of {total} cells to run")
        with _publishing(jobs):
            code = work()
        if code is not None:
            return code
        if _has_dashboard():
            from study.publish import publish_last

            publish_last([(job.study, _now(job)) for job in jobs], command.note)
    return finish(arguments, database, jobs)


def _publishing(jobs: Sequence[Job]) -> AbstractContextManager[object]:
    """Keep the studies' notes and figures fresh for whoever looks at them in optuna-dashboard."""
    if not _has_dashboard():
        return nullcontext()
    from study.publish import Publisher

    name = f"{socket.gethostname()}-{os.getpid()}"
    return Publisher(lambda: [(job.study, _now(job)) for job in jobs], name=name, on_trouble=command.note)


def _now(job: Job) -> StudySpec:
    """The study's spec, which another launcher may have extended."""
    return StudySpec.from_json(job.study.attributes()["spec"])


def _has_dashboard() -> bool:
    return find_spec("optuna_dashboard") is not None


def _introduction(jobs: Sequence[Job]) -> list[str]:
    lines = []
    if any(job.spec.demo for job in jobs):
        lines.append("DEMO: a tiny model and a made-up language; the numbers say nothing about real tasks")
    if any(job.spec.recorded for job in jobs):
        lines.append("RECORDED: cells are answered from a trial table; nothing is trained")
    return lines


def _work(
    arguments: argparse.Namespace, jobs: Sequence[Job], argv: Sequence[str], shares: Sequence[Share]
) -> int | None:
    """Have the cells run, in this process or others; None when all are done and the answer is wanted."""
    from study.workers import devices
    from study.workers.interrupts import STOPPED

    if arguments.slurm:
        from study.workers import slurm

        code = slurm.run(arguments, argv, jobs)
        return code if code or not arguments.wait else None
    if len(shares) == 1 and arguments.processes_per_trial == 1 and not arguments.joined:
        if shares[0].devices:
            # As any other worker is told; nothing has asked for a GPU yet.
            os.environ[devices.VISIBLE] = ",".join(shares[0].devices)
        code = _work_here(arguments, jobs)
    else:
        from study.workers import supervise
        from study.workers.live_table import Board, display

        logs = supervise.log_folder(arguments.cache_dir)
        workers = f"{len(shares)} worker{'s' if len(shares) > 1 else ''}"
        print(f"{workers}: {'; '.join(map(str, dict.fromkeys(shares)))}; logs in {logs}", flush=True)
        with display(Board(jobs, len(shares))) as shown:
            code = supervise.supervise(supervise.worker_command(argv), shares, shown, logs)
    if code in STOPPED:
        command.note("stopped; run the same command again to go on where it left")
    return code if code or arguments.joined else None


def _work_here(arguments: argparse.Namespace, jobs: Sequence[Job]) -> int:
    from study.estimate import Pace
    from study.workers.progress import ProgressLine
    from study.workers.worker import run_worker

    return run_worker(
        jobs,
        worker=f"{socket.gethostname()}-{os.getpid()}",
        on_event=ProgressLine(jobs, {job.study.name: Pace.of(job.study, job.spec) for job in jobs}),
        join_only=arguments.join_only,
    ).exit_code


def finish(arguments: argparse.Namespace, database: Database, jobs: Sequence[Job]) -> int:
    """The answer on screen, the report on disk, and an exit code that tells of cells without a result."""
    from study import operating_points, protocols, provenance, report, trial_table

    for job in jobs:
        print(f"{job.study.name}: {protocols.explain(_now(job), job.study.outcomes())}")
    names = [job.study.name for job in jobs]
    url = command.storage_url(arguments.storage)
    try:
        table = trial_table.load(names, url)
    except UsageError as error:
        command.note(str(error))
        return 1
    # A search ran what its own threshold needs: of any other it could say next to nothing.
    searched = {job.spec.threshold for job in jobs if job.spec.protocol == "adaptive"}
    analysis = (
        operating_points.analyse(table, thresholds=sorted(searched))
        if all(job.spec.protocol == "adaptive" for job in jobs)
        else operating_points.analyse(table)
    )
    print(f"\n{operating_points.render(analysis)}\n")
    folder = Path(arguments.out) / (names[0] if len(names) == 1 else "")
    page, *_ = report.write(table, analysis, folder, provenance=provenance.read(names, url))
    print(f"report: {page}")
    failed = sum(job.study.counts().failed for job in jobs)
    if failed:
        command.note(
            f"{failed} cells ended without a result; see `elsa status`, or run again with --retry-failed"
        )
        return 0 if arguments.accept_failed else 1
    return 0


if __name__ == "__main__":
    command.run(main)
