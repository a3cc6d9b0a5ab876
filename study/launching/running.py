"""One launch from request to answer: plan, have the cells run, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from study.cli.wording import counted
from study.launching import here
from study.launching.arguments import LaunchRequest
from study.launching.finishing import finish, publishing, tell_cache
from study.launching.joining import join
from study.launching.memory import Memory
from study.launching.request import StudyRequest, resolve
from study.specs.study_spec import MARKS
from study.workers.jobs import make_job
from study.workers.packing import Need, packed
from study.workers.slurm_settings import Asked

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.workers.devices import Share


def launch(request: LaunchRequest) -> int:
    """The exit code."""
    asked = _asked(request)
    # Refused now rather than after the data are read.
    shares = [] if asked else here.shares(request.working)
    requests = resolve(request)
    if request.launching.dry_run and request.launching.settle:
        from study.launching.settling import tell_all

        tell_all(request.storage, requests)
        return 0
    if request.launching.dry_run:
        from study.launching.dry_run import dry_run

        memory = Memory.of(request)
        print(dry_run(requests, request.places, max(1, request.working.workers or 1), memory))
        return 0
    with planned(request, requests) as studies:
        if not asked:
            shares = here.shares(packed(request.working, lambda: _needs(request, requests, studies)))
        return _run(request, requests, studies, shares, asked)


@contextmanager
def planned(request: LaunchRequest, requests: Sequence[StudyRequest]) -> Iterator[list[StoredStudy]]:
    """The studies in the database, with their cells planned; refused first where they cannot fit."""
    from storage.database import Database

    memory = Memory.of(request)
    for one in requests:
        memory.check(one)
    leasing, launching = request.leasing, request.launching
    with Database.open(
        request.storage,
        create=not request.working.join_only,
        heartbeat_seconds=leasing.heartbeat,
        grace_seconds=leasing.grace,
        max_retries=leasing.max_retries,
    ) as database:
        yield join(
            database,
            requests,
            extend=launching.extend,
            settle=launching.settle,
            join_only=request.working.join_only,
            retry_failed=launching.retry_failed,
        )


def _needs(
    request: LaunchRequest, requests: Sequence[StudyRequest], studies: Sequence[StoredStudy]
) -> list[Need]:
    memory = Memory.of(request)
    return [memory.need(study, one) for study, one in zip(studies, requests, strict=True)]


def _asked(request: LaunchRequest) -> Asked | None:
    """What each Slurm job asks for; None where workers run here."""
    if not request.slurm.slurm:
        return None
    from study.workers import slurm

    asked = Asked(
        slurm=request.slurm,
        processes=request.working.processes_per_trial,
        trains=request.inputs.recorded is None,
    )
    slurm.check(asked, request.places.caching.cache_dir)
    return asked


def _run(
    request: LaunchRequest,
    requests: Sequence[StudyRequest],
    studies: Sequence[StoredStudy],
    shares: Sequence[Share],
    asked: Asked | None,
) -> int:
    counts = [study.counts() for study in studies]
    waiting = sum(found.open for found in counts)
    total = waiting + sum(found.complete + found.failed for found in counts)
    names = ", ".join(study.name for study in studies)
    where = studies[0].database.display_url
    for line in introduction(requests):
        print(line)
    if request.working.workers == 0:
        print(
            f"planned: {names} in {where}, {counted(waiting, 'cell')} to run. "
            f"Run them with: {_work_command(studies)}"
        )
        return 0
    if waiting == 0:
        print(f"nothing to run: all cells of {names} in {where} are finished")
    else:
        print(f"{names} in {where}: {waiting} of {counted(total, 'cell')} to run")
        with publishing(studies):
            code = _work(request, studies, shares, asked)
        if code is not None:
            return code
    code = finish(studies, request.launching, request.places)
    tell_cache(studies, request.places.caching)
    return code


def introduction(requests: Sequence[StudyRequest]) -> list[str]:
    """What the data were taken to be, what is unusual about them, and what was chosen."""
    marks = dict.fromkeys(mark for request in requests for mark in request.spec.marks)
    lines = [f"{mark.upper()}: {MARKS[mark]}" for mark in marks]
    for request in {request.spec.task: request for request in requests}.values():
        lines += [f"{request.spec.task}: {request.told}"] if request.told else []
        lines += [f"note: {remark}" for remark in request.spec.remarks]
    lines += [f"{request.name}: {choice}" for request in requests for choice in request.chosen]
    return lines


def _work_command(studies: Sequence[StoredStudy]) -> str:
    from study.workers.join_command import join_command

    return join_command(studies)


def _work(
    request: LaunchRequest, studies: Sequence[StoredStudy], shares: Sequence[Share], asked: Asked | None
) -> int | None:
    """Have the cells run, here or on a cluster; None when all are finished and the answer is wanted."""
    if asked is None:
        code = here.run_workers(studies, shares, request.working, request.places, request.storage)
        return code or None
    from study.workers import slurm

    words = here.work_arguments(
        [study.name for study in studies], replace(request.working, workers=None), request.places
    )
    ids, folder = slurm.submit(
        asked, words, here.environment(request.storage), request.places.caching.cache_dir
    )
    array = slurm.announce(asked, ids, folder, studies[0].database.display_url)
    if not request.slurm.wait:
        print("this terminal may be closed; run the same command without --slurm for the answer at the end")
        return 0
    jobs = [make_job(study, request.places) for study in studies]
    return slurm.wait(jobs, array, plans=not request.working.join_only) or None
