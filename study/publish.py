"""The answer so far on the Optuna study itself, for optuna-dashboard: a note and our own figures.

Publishing reads the study and writes its note and plots; it never touches a trial and never fails a run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.reading import Counts
    from storage.studies import StoredStudy
    from study.analysis.analyse import Analysis
    from study.reporting.document import Chart, Figure

EVERY_SECONDS = 20.0
LARGEST_SHARE = 0.05
"""Of one core's time: a study that takes long to analyse is published less often."""
STAMP = "published"
"""The study's attribute that says who published last, when, and at which counts."""
KEEP = "\n---\n\n*What you write below this line is kept.*\n\n"
TROUBLE = "the study's note for the dashboard could not be refreshed: {}"
MISSING = "the dashboard needs optuna-dashboard: pip install 'elsa-study[dashboard]'"


def publish(study: StoredStudy, spec: StudySpec) -> None:
    """Refresh the study's note and figures from its trials, as they are now."""
    try:
        from optuna_dashboard import get_note, save_note, save_plotly_graph_object
    except ImportError as error:
        raise UsageError(MISSING) from error
    from study.analysis.analyse import analyse
    from study.note import note
    from study.trial_table import from_stored

    table = from_stored(study)
    analysis = analyse(table) if len(table) else None
    kept = _kept(get_note(study.optuna_study))
    save_note(study.optuna_study, f"{note(study, spec, table, analysis)}{KEEP}{kept}")
    for identity, figure in _figures(analysis, spec).items():
        shown: Any = _Drawn(figure)
        save_plotly_graph_object(study.optuna_study, shown, graph_object_id=identity)


class _Drawn:
    """A figure as the dashboard takes it, without Plotly's second of import or its large template."""

    def __init__(self, figure: Figure):
        self._figure = figure

    def to_json(self) -> str:
        return json.dumps(self._figure, allow_nan=False, separators=(",", ":"))


def _kept(existing: str) -> str:
    """What people wrote: below our line, or the whole of a note that is not ours."""
    _, line, below = existing.partition(KEEP)
    return below if line else existing


def _figures(analysis: Analysis | None, spec: StudySpec) -> dict[str, Figure]:
    """One per panel: the dashboard gives each the same small room."""
    from study.reporting.composite import single
    from study.reporting.document import slug
    from study.reporting.page import rounded

    badges = [*(["demo"] if spec.demo else []), *(["recorded"] if spec.recorded else [])]
    return {
        f"elsa-{slug(panel.name)}": rounded(single(chart, i, badges=badges))
        for chart in _charts(analysis)
        for i, panel in enumerate(chart.panels)
    }


def _charts(analysis: Analysis | None) -> list[Chart]:
    from study.reporting import figure_quality, figure_rates

    if analysis is None or not analysis.curves:
        return []
    found = [figure_rates.depth_by_rate(analysis.curves)]
    if any(curve.undefined is None for curve in analysis.curves):
        found.insert(0, figure_quality.by_task(analysis, analysis.curves))
    return [chart for chart in found if chart is not None]


class Publisher:
    """Publishes studies in the background of a launcher, for as long as the block lasts.

    At most every `every_seconds`, only when something finished, and of many launchers one at a time.
    """

    def __init__(
        self,
        studies: Callable[[], Sequence[tuple[StoredStudy, StudySpec]]],
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
        # Not at once: the workers' own start comes first, and a short run needs the last note only.
        pause = min(1.0, self._every)
        while not self._stopped.wait(pause):
            began = time.monotonic()
            self._round()
            pause = max(self._every, (time.monotonic() - began) / LARGEST_SHARE)

    def _round(self) -> None:
        try:
            for study, spec in self._studies():
                if self._stopped.is_set():
                    return
                publish_if_due(study, spec, name=self._name, every_seconds=self._every)
        except Exception as error:
            # A note is not worth a trial: whatever happened, say it once and go on.
            if not self._troubled and not self._stopped.is_set():
                self._on_trouble(TROUBLE.format(_one_line(error)))
            self._troubled = True
        else:
            self._troubled = False


def publish_last(studies: Sequence[tuple[StoredStudy, StudySpec]], on_trouble: Callable[[str], None]) -> None:
    """At the end of a run: the final note, whoever published before."""
    for study, spec in studies:
        try:
            publish(study, spec)
        except Exception as error:
            on_trouble(TROUBLE.format(_one_line(error)))
            return


def publish_if_due(study: StoredStudy, spec: StudySpec, *, name: str, every_seconds: float) -> bool:
    """Publish unless nothing finished since the last time, or somebody else is at it."""
    counts = study.counts()
    if not _due(study.attributes().get(STAMP), counts, name, every_seconds):
        return False
    with study.database.lock(f"publish {study.name}"):
        # Look again: another launcher may have been first while we waited.
        if not _due(study.attributes().get(STAMP), counts, name, every_seconds):
            return False
        study.set_attribute(STAMP, {"by": name, "at": time.time(), "finished": _finished(counts)})
    # The stamp keeps others away; the lock, which planners need too, is held for no longer than that.
    try:
        publish(study, spec)
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
    # A stamp from the future is another machine's wrong clock.
    return stamp.get("by") == name or not 0 <= age < every_seconds


def _finished(counts: Counts) -> int:
    return counts.complete + counts.failed


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
