"""The end of a launch: the answer on screen, the report on disk, the dashboard's note, the exit code."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from study import protocols
from study.cli.command import note
from study.cli.wording import counted, size_text
from study.launching.inputs import Launching
from study.workers.jobs import kept_models
from study.workers.options import Caching, Places

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def publishing(studies: Sequence[StoredStudy]) -> AbstractContextManager[object]:
    """Keeps the studies' notes and figures for optuna-dashboard up to date while the block runs."""
    if not _has_dashboard():
        return nullcontext()
    from study.reporting.publish import Publisher

    name = f"{socket.gethostname()}-{os.getpid()}"
    return Publisher(lambda: studies, name=name, on_trouble=note)


def _has_dashboard() -> bool:
    return find_spec("optuna_dashboard") is not None


def finish(studies: Sequence[StoredStudy], launching: Launching, places: Places) -> int:
    """Print the answer, write the report; 1 where cells have no result. The database is read once."""
    from study.cli.wording import slug
    from study.reporting.content import analyse_studies, telling
    from study.reporting.publish import publish_last
    from study.reporting.report_files import write
    from study.reporting.terminal import terminal
    from study.trials.sources import read_studies

    reading = read_studies(studies)
    for study in studies:
        spec = reading.spec(study.name)
        print(f"{study.name}: {protocols.explained(spec, reading.outcomes[study.name])}")
    if not (reading.table["state"] == "COMPLETE").any():
        note("no trial is complete: see `elsa status`, or run again with --retry-failed")
        return 1
    analysis = analyse_studies(reading)
    said = telling(analysis, reading.table, reading.provenance)
    print(f"\n{terminal(said, shutil.get_terminal_size().columns, brief=True)}\n")
    folder = Path(launching.out) / (slug(studies[0].name) if len(studies) == 1 else "")
    page, *_ = write(reading.table, analysis, folder, provenance=reading.provenance)
    print(f"report: {page}")
    for study in studies:
        kept = kept_models(study.name, reading.spec(study.name), places)
        if kept is not None and kept.folder.is_dir():
            print(
                f"models: {size_text(kept.bytes())} in {kept.folder}, for elsa export; delete the folder "
                "when you have what you need"
            )
    if _has_dashboard():
        publish_last(studies, note, reading)
    failed = sum(outcome.state == "FAIL" for found in reading.outcomes.values() for outcome in found)
    if failed:
        note(
            f"{counted(failed, 'cell')} ended without a result; see `elsa status`, "
            f"or run again with --retry-failed"
        )
        return 0 if launching.accept_failed else 1
    return 0


def tell_cache(studies: Sequence[StoredStudy], caching: Caching) -> None:
    """States stay, so that more seeds or rates can follow; they are the first to go when room is needed."""
    from objectives.prefix.contents import contents

    folder = Path(caching.cache_dir).expanduser()
    names = {study.name for study in studies}
    size = sum(one.bytes for one in contents(folder) if one.finished and names.intersection(one.studies))
    if size:
        which = f"--remove {shlex.quote(studies[0].name)}" if len(studies) == 1 else "--finished"
        print(
            f"cache: {size_text(size)} of cached hidden states remain in {folder} until space is needed; "
            f"`elsa cache {which}` removes them"
        )
