"""A study's note and figures in optuna-dashboard, kept up to date while the study runs.

Publishing reads the study and writes its note and plots; it never changes a trial and never fails a run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from objectives.contract import UsageError

if TYPE_CHECKING:
    from storage.reading import Counts
    from storage.studies import StoredStudy
    from study.analysis.analyse import Analysis
    from study.reporting.document import Figure
    from study.specs.study_spec import StudySpec
    from study.trials.sources import Reading

EVERY_SECONDS = 20.0
LARGEST_SHARE = 0.05
"""Of the time may be spent publishing: a study that takes long to analyse is published less often."""
STAMP = "published"
"""The study's attribute that says who published last, when, and at which counts."""
KEEP = "\n---\n\n*What you write below this line is kept.*\n\n"
TROUBLE = "could not update the study's note in the dashboard: {}"
MISSING = "the dashboard needs optuna-dashboard: pip install 'elsa-study[dashboard]'"


def publish(study: StoredStudy, reading: Reading | None = None) -> None:
    """Update the study's note and figures from its trials: as they were read, or as they are now."""
    notes, plots = _dashboard_module("_note"), _dashboard_module("_custom_plot_data")
    from study.reporting.content import analyse_studies
    from study.reporting.note import note
    from study.trials.sources import read_studies

    own = read_studies([study]) if reading is None else reading.of(study.name)
    analysis = analyse_studies(own) if len(own.table) else None
    before = notes.get_note(study.optuna_study)
    _, line, below = before.partition(KEEP)
    # A note without our line was written by a person.
    kept = below if line else before
    notes.save_note(study.optuna_study, f"{note(study, own, analysis)}{KEEP}{kept}")
    for identity, figure in _figures(analysis, own.spec(study.name)).items():
        plots.save_plotly_graph_object(study.optuna_study, _Drawn(figure), graph_object_id=identity)


@cache
def _dashboard_module(name: str) -> ModuleType:
    """A module of optuna-dashboard by itself: the package also imports its web server and scikit-learn,
    which takes several seconds."""
    package = find_spec("optuna_dashboard")
    if package is None or package.origin is None:
        raise UsageError(MISSING)
    found = spec_from_file_location(f"_optuna_dashboard{name}", Path(package.origin).with_name(f"{name}.py"))
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


class _Drawn:
    """A figure with the one method that the dashboard calls: importing Plotly takes a second."""

    def __init__(self, figure: Figure):
        self._figure = figure

    def to_json(self) -> str:
        return json.dumps(self._figure, allow_nan=False, separators=(",", ":"))


def _figures(analysis: Analysis | None, spec: StudySpec) -> dict[str, Figure]:
    """Quality, and score by depth and rate: one figure per panel, since the dashboard's places are small."""
    from study.cli.wording import slug
    from study.reporting import figure_quality, figure_rates
    from study.reporting.composite import single
    from study.reporting.page import rounded

    if analysis is None:
        return {}
    measured = any(curve.undefined is None for curve in analysis.curves)
    charts = [
        figure_quality.by_task(analysis, analysis.curves) if measured else None,
        figure_rates.depth_by_rate(analysis.curves),
    ]
    return {
        f"elsa-{slug(panel.name)}": rounded(single(chart, i, badges=spec.marks))
        for chart in charts
        if chart is not None
        for i, panel in enumerate(chart.panels)
    }


class Publisher:
    """Publishes studies in a thread, for as long as the block lasts.

    At most every `every_seconds`, only when a trial has ended, and by one launcher at a time.
    """

    def __init__(
        self,
        studies: Callable[[], Sequence[StoredStudy]],
        *,
        name: str,
        on_trouble: Callable[[str], None],
        every_seconds: float = EVERY_SECONDS,
    ):
        self._studies = studies
        self._name = name
        self._on_trouble = on_trouble
        self._every = every_seconds
        self._stopped = threading.Event()
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop without waiting for a database that is away."""
        self._stopped.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        # Not at once: the workers start first, and a short run needs only the note at its end.
        pause = min(1.0, self._every)
        while not self._stopped.wait(pause):
            began = time.monotonic()
            self._round()
            pause = max(self._every, (time.monotonic() - began) / LARGEST_SHARE)

    def _round(self) -> None:
        try:
            for study in self._studies():
                if self._stopped.is_set():
                    return
                publish_if_due(study, name=self._name, every_seconds=self._every)
        except Exception as error:
            # No error here may stop the study: report it once and continue.
            if not self._troubled and not self._stopped.is_set():
                self._on_trouble(TROUBLE.format(_one_line(error)))
            self._troubled = True
        else:
            self._troubled = False


def publish_last(
    studies: Sequence[StoredStudy], on_trouble: Callable[[str], None], reading: Reading | None = None
) -> None:
    """At the end of a run: the final note, whoever published before."""
    for study in studies:
        try:
            publish(study, reading)
        except Exception as error:
            on_trouble(TROUBLE.format(_one_line(error)))
            return


def publish_if_due(study: StoredStudy, *, name: str, every_seconds: float) -> bool:
    """Publish unless no trial has ended since the last time, or another process is publishing."""
    counts = study.counts()
    if not _due(study.attributes().get(STAMP), counts, name, every_seconds):
        return False
    with study.database.lock(f"publish {study.name}"):
        # Another launcher may have published while this one waited for the lock.
        if not _due(study.attributes().get(STAMP), counts, name, every_seconds):
            return False
        study.set_attribute(STAMP, {"by": name, "at": time.time(), "finished": _finished(counts)})
    # From here on the stamp keeps others away; planners need the lock, too.
    try:
        publish(study)
    except Exception:
        with suppress(Exception):
            study.set_attribute(STAMP, {"by": name, "at": time.time(), "finished": None})
        raise
    return True


def _due(stamp: dict[str, object] | None, counts: Counts, name: str, every_seconds: float) -> bool:
    if stamp is None:
        return True
    if stamp.get("finished") == _finished(counts):
        return False
    at = stamp.get("at")
    age = time.time() - at if isinstance(at, int | float) else every_seconds
    # A time in the future comes from a machine whose clock is wrong.
    return stamp.get("by") == name or not 0 <= age < every_seconds


def _finished(counts: Counts) -> int:
    return counts.complete + counts.failed


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
