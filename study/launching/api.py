"""Studies from Python: describe one, run it, ask it. For notebooks and scripts.

    from study import Study

    study = Study(task="mrpc", model="bert-base", seeds=3)
    study.run(workers=2)
    study.operating_points()

Settings have the names of the command line's flags, `frozen_layers` for --frozen-layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import ElsaError, SpecMismatch, UsageError
from study.cli import command
from study.launching import here
from study.launching.arguments import LaunchRequest, from_values
from study.launching.memory import Memory, stored_needs
from study.launching.request import StudyRequest, resolve
from study.launching.running import introduction, planned
from study.workers.options import Places
from study.workers.packing import Need, packed

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from storage.studies import StoredStudy
    from study.analysis.analyse import Analysis
    from study.analysis.points import OperatingPoint
    from study.progress.standing import Standing
    from study.trials.sources import Reading


class StudyStopped(ElsaError):
    """The workers ended before all cells were finished."""


_FLAG = re.compile(r"--(?=[a-z])([a-z-]+)")


@contextmanager
def _settings_by_name() -> Iterator[None]:
    """Errors name settings as they are called here: frozen_layers, not --frozen-layers."""
    try:
        yield
    except (UsageError, SpecMismatch) as error:
        raise type(error)(_FLAG.sub(lambda found: found[1].replace("-", "_"), str(error))) from None


class Study:
    """One study of one model and one task, in a database that others may share."""

    def __init__(self, **settings: Any):
        """As `elsa launch` with the same settings; nothing is read or written yet."""
        with _settings_by_name():
            self._request: LaunchRequest | None = from_values(settings)
        self._storage = self._request.storage
        self._name: str | None = self._request.inputs.study

    @classmethod
    def open(cls, name: str, storage: str | None = None) -> Study:
        """A study that is in the database already."""
        study = cls.__new__(cls)
        study._request, study._storage, study._name = None, command.storage_url(storage), name
        with study._stored():
            return study

    @cached_property
    def _asked(self) -> StudyRequest:
        assert self._request is not None
        with _settings_by_name():
            found = resolve(self._request)
        if len(found) != 1:
            names = ", ".join(one.name for one in found)
            raise UsageError(f"a Study is of one model and one task, but these were asked for: {names}")
        return found[0]

    @property
    def name(self) -> str:
        return self._name or self._asked.name

    @contextmanager
    def _stored(self) -> Iterator[StoredStudy]:
        from storage.database import Database

        with Database.open(self._storage) as database:
            yield database.study(self.name)

    def run(self, workers: int | None = None) -> Study:
        """Plan what is missing and run it on this machine; returns when all cells are finished."""
        if self._request is None:
            with self._stored() as study:
                request, places = LaunchRequest(), Places()
                needs = partial(stored_needs, [study], request.working, places)
                return self._work(study, request, places, workers, needs)
        with _settings_by_name(), planned(self._request, [self._asked]) as (study,):
            for line in introduction([self._asked]):
                print(line)
            memory = Memory.of(self._request)
            places = self._request.places
            return self._work(
                study, self._request, places, workers, lambda: [memory.need(study, self._asked)]
            )

    def _work(
        self,
        study: StoredStudy,
        request: LaunchRequest,
        places: Places,
        workers: int | None,
        needs: Callable[[], Sequence[Need]],
    ) -> Study:
        if study.counts().open:
            working = request.working if workers is None else replace(request.working, workers=workers)
            shares = here.shares(packed(working, needs))
            code = here.run_workers([study], shares, working, places, self._storage)
            if code:
                raise StudyStopped(
                    f"the workers of {self.name} ended with exit code {code} before all cells were finished: "
                    "call run() again to resume"
                )
        return self

    def status(self) -> Standing:
        """Cells by state, pace, time left; prints as `elsa status` does."""
        from study.progress.standing import read_standing

        with self._stored() as study:
            return read_standing(study)

    def _read(self) -> Reading:
        from study.trials.sources import read_studies

        with self._stored() as study:
            return read_studies([study])

    def table(self) -> pd.DataFrame:
        """Every trial, failures included."""
        return self._read().table

    def analysis(self, **options: Any) -> Analysis:
        """Everything that is said of the trials; see `study.analysis.analyse.analyse` for the options."""
        return self._analysed(**options)[1]

    def _analysed(self, **options: Any) -> tuple[Reading, Analysis]:
        from study.reporting.content import analyse_studies

        reading = self._read()
        if not (reading.table["state"] == "COMPLETE").any():
            raise UsageError(f"{self.name} has no complete trial yet: call run() first")
        return reading, analyse_studies(reading, **options)

    def operating_points(self, thresholds: Sequence[float] | None = None) -> tuple[OperatingPoint, ...]:
        """The most layers frozen that keep each share of the full model's quality."""
        return self.analysis(**({"thresholds": thresholds} if thresholds else {})).points

    def answer(self) -> str:
        """The answer as `elsa operating_points` prints it."""
        from study.reporting.content import telling
        from study.reporting.terminal import terminal

        reading, analysis = self._analysed()
        return terminal(telling(analysis, reading.table, reading.provenance), 100)

    def figure(self) -> Figure:
        """Quality against frozen layers, as a Plotly figure."""
        from plotly.graph_objects import Figure

        from study.reporting.composite import composite
        from study.reporting.figure_quality import by_task

        _, analysis = self._analysed()
        chart = by_task(analysis, analysis.curves)
        if not chart.panels:
            raise UsageError(
                "no figure: without runs of the full model that learned, no share of its quality is known"
            )
        return Figure(composite(chart))

    def report(self, folder: str | Path = "report") -> Path:
        """Write the report; the path of its page."""
        from study.reporting.report_files import write

        reading, analysis = self._analysed()
        return write(reading.table, analysis, Path(folder), provenance=reading.provenance)[0]

    def export(
        self,
        out: str | Path,
        *,
        threshold: float | None = None,
        frozen_layers: int | None = None,
        seed: int | None = None,
        best: bool = False,
        train_size: int | None = None,
        tuned_only: bool = False,
    ) -> Path:
        """Write the fine-tuned model of an operating point, as `elsa export` does; its folder."""
        from study.cli.files import check_new_folder
        from study.models.export_study import export
        from study.models.wanted import Wanted

        folder = Path(out)
        check_new_folder(folder, "--out")
        wanted = Wanted(
            threshold=threshold, frozen_layers=frozen_layers, seed=seed, best=best, train_size=train_size
        )
        places = Places() if self._request is None else self._request.places
        with _settings_by_name(), self._stored() as study:
            export(study, wanted, places, folder, tuned_only=tuned_only)
        return folder

    def __repr__(self) -> str:
        return f"Study({self.name!r}, storage={_display(self._storage)!r})"

    def _ipython_display_(self) -> None:
        """In a notebook: the answer and the figure, or how far the study is."""
        from IPython.display import display  # type: ignore[import-not-found]

        for show in (self.answer, self.figure):
            try:
                shown: Any = show()
            except ElsaError as error:
                print(f"{self!r}: {error}")
                return
            _show(display, shown)


def _show(display: Callable[[Any], None], shown: Any) -> None:
    print(shown) if isinstance(shown, str) else display(shown)


def _display(storage: str) -> str:
    from storage.address import Address

    return Address.parse(storage).display
