"""Creates or joins the studies that were asked for and plans their cells; compares all specs first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from objectives.contract import SpecMismatch
from objectives.tasks.metrics import describe
from study import protocols
from study.launching.request import StudyRequest
from study.launching.settling import Settling, settling, tell
from study.protocols.plan import plan_study
from study.specs.study_spec import StudySpec, check_extension
from study.workers.jobs import stored_spec

if TYPE_CHECKING:
    from storage.database import Database
    from storage.studies import StoredStudy


def join(
    database: Database,
    requests: Sequence[StudyRequest],
    *,
    extend: bool = False,
    settle: bool = False,
    join_only: bool = False,
    retry_failed: bool = False,
) -> list[StoredStudy]:
    """The studies, planned; nothing is written if any of them was made from another spec."""
    existing = set(database.study_names())
    requests = [_in_its_precision(database, one) if one.name in existing else one for one in requests]
    for request in requests:
        if request.name in existing:
            _accept(database, request, stored_spec(database.study(request.name)), extend=extend)
    if join_only:
        return [database.study(request.name) for request in requests]
    added = [settling(database, request) for request in requests] if settle else []
    for found, request in zip(added, requests, strict=False):
        tell(found)
        _add(database.study(request.name), found)
    return [_planned(database, request, extend, retry_failed) for request in requests]


def _in_its_precision(database: Database, request: StudyRequest) -> StudyRequest:
    """A study keeps the precision that it was planned in, whatever this machine's devices do best."""
    if request.precision_chosen:
        return request
    kept = stored_spec(database.study(request.name)).recipe.mixed_precision
    return replace(
        request, spec=replace(request.spec, recipe=replace(request.spec.recipe, mixed_precision=kept))
    )


def _add(study: StoredStudy, found: Settling) -> None:
    """Write the wider spec, unless somebody has changed it since it was read."""

    def check(kept: Mapping[str, Any]) -> None:
        if StudySpec.from_json(kept["spec"]).extra != found.before.extra:
            raise SpecMismatch(f"{study.name} was changed by another launch just now: run this again")

    if found.cells:
        study.extend(_attributes(found.spec), found.spec.space(), check)


def _planned(database: Database, request: StudyRequest, extend: bool, retry_failed: bool) -> StoredStudy:
    metric = request.spec.metric
    minimize = not describe(metric).higher_is_better
    study = database.create_study(request.name, _attributes(request.spec), metric=metric, minimize=minimize)
    if extend:
        lists = protocols.get(request.spec.protocol).extendable

        def check(kept: Mapping[str, Any]) -> None:
            """Of the attributes as they are at the moment of writing: others may extend it, too."""
            check_extension(request.name, StudySpec.from_json(kept["spec"]), request.spec, lists)

        wider = request.spec.with_extra(stored_spec(study).extra_cells)
        study.extend(_attributes(wider), wider.space(), check)
    # Another launcher may have created it from another spec in the meantime.
    stored = stored_spec(study)
    _accept(database, request, stored, extend=False)
    spec = request.spec.with_extra(stored.extra_cells)
    plan_study(study, spec, retry_failed=retry_failed, cells=request.cells)
    return study


def _accept(database: Database, request: StudyRequest, stored: StudySpec, *, extend: bool) -> None:
    if extend:
        lists = protocols.get(request.spec.protocol).extendable
        check_extension(request.name, stored, request.spec, lists)
    elif differences := stored.differences(request.spec):
        raise SpecMismatch(
            f"{request.name} in {database.display_url} was made from another spec: {'; '.join(differences)} "
            "(there -> here). Repeat its settings, use --extend to add depths, rates or seeds, "
            "or choose another --study"
        )


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
