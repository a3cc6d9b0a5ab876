"""The adaptive search: the operating point at one threshold for a fraction of the grid's work.

Its settings, its budget and what it says of itself; `moves` decides what to run next. Every decision is read
from the outcomes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from objectives.contract import Cell, Outcome, UsageError
from study.analysis.choices import Select
from study.protocols.adaptive_settings import AdaptiveSettings, asked
from study.protocols.base import Defaults, Protocol, Subject
from study.protocols.belief import Belief
from study.protocols.budget import Purse
from study.protocols.evidence import FULL, Evidence, tuned_layers
from study.protocols.moves import next_cells
from study.specs.study_spec import StudySpec


def _check_depths(spec: StudySpec) -> None:
    """Refuse a spec whose question has no answer."""
    if FULL not in spec.frozen_layers:
        raise UsageError(
            f"--protocol {spec.protocol} compares with the full model: add 0 to --frozen-layers "
            f"{','.join(map(str, spec.frozen_layers))}"
        )
    if set(spec.frozen_layers) == {FULL}:
        raise UsageError(f"--protocol {spec.protocol} has no depth to try: --frozen-layers names 0 alone")
    if not Purse(spec, ()).affords_a_full_run:
        raise UsageError(
            f"--budget {asked(spec).budget} is less than one run of the full model: name a larger budget"
        )


def believe(spec: StudySpec, outcomes: Sequence[Outcome], train_size: int | None = None) -> Belief | None:
    """What the finished outcomes say; None while the full model has no complete run."""
    evidence = Evidence.of(spec, train_size, outcomes)
    return Belief(evidence) if any(depth == FULL for depth, _ in evidence.runs) else None


def _evidence(spec: StudySpec, size: int | None, outcomes: Iterable[Outcome], flying: list[Cell]) -> Evidence:
    evidence = Evidence.of(spec, size, outcomes)
    known = set(evidence.rates)
    evidence.predict(cell for cell in flying if cell.learning_rate in known)
    return evidence


def _explain_size(spec: StudySpec, outcomes: Sequence[Outcome], size: int | None) -> str:
    where = "" if size is None else f"train size {size}: "
    belief = believe(spec, outcomes, size)
    mine = [outcome for outcome in outcomes if outcome.cell.train_size == size]
    if belief is None:
        left = any(o.state in ("WAITING", "RUNNING") for o in mine) or not mine
        return where + ("no full-model run yet" if left else "every full-model run failed: no answer")
    told = f", {len(mine)} cells" + _ending(spec, outcomes, mine, size, belief.probability)
    frozen = belief.frozen_layers
    if frozen is None:
        return f"{where}no answer: {belief.no_answer}{told}"
    answer = f"{frozen} frozen ({tuned_layers(spec.total_layers, frozen)} tuned)"
    sure = "" if belief.probability is None else f", probability {belief.probability:.2f}"
    return f"{where}answer {answer} at {asked(spec).threshold:.0%}{sure}{told}"


def _ending(
    spec: StudySpec,
    outcomes: Sequence[Outcome],
    mine: list[Outcome],
    size: int | None,
    probability: float | None,
) -> str:
    if any(outcome.state in ("WAITING", "RUNNING") for outcome in mine):
        return ", searching"
    cells = next_cells(_evidence(spec, size, mine, []))
    purse = Purse(spec, outcomes)
    if cells and purse.afford(cells):
        return ", searching"
    confidence = asked(spec).confidence
    sure = probability is not None and probability >= confidence
    if cells:
        name = "budget" if purse.stated else "default budget"
        return (
            f"; stopped: the {name} of {purse.limit:.4g} {purse.unit} is spent"
            + ("" if sure else f" before confidence {confidence:g}")
            + ("" if purse.stated else "; --budget allows more")
        )
    if not sure:
        return f"; stopped: no seed is left that would help, confidence {confidence:g} not reached"
    return f"; confidence {confidence:g} reached"


class Adaptive(Protocol):
    name = "adaptive"
    summary = "only the cells that the answer at --threshold depends on"
    settings = AdaptiveSettings
    phased = True
    adds_seeds = True
    remark = (
        "The adaptive search ran only the cells that its threshold needed: an exhaustive grid may give "
        "another answer, and elsa simulate counts how often."
    )

    def defaults(self, subject: Subject) -> Defaults:
        # Seeds are the most that may be used: the search adds one only where the answer is still open.
        return Defaults(frozen_layers=subject.upper_half, seeds=tuple(range(1, 11)))

    def wanted(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
        """Cells in flight, and the next ones where nothing waits for a worker.

        A worker that asks while others run gets what would be wanted if their cells came back as predicted.
        """
        _check_depths(spec)
        cells: list[Cell] = []
        purse = Purse(spec, outcomes)
        for size in spec.train_sizes:
            mine = [outcome for outcome in outcomes if outcome.cell.train_size == size]
            flying = sorted(outcome.cell for outcome in mine if outcome.state in ("WAITING", "RUNNING"))
            cells += flying
            if not any(outcome.state == "WAITING" for outcome in mine):
                cells += purse.afford(next_cells(_evidence(spec, size, mine, flying)))
        return cells

    def explain(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
        return "adaptive: " + "; ".join(_explain_size(spec, outcomes, size) for size in spec.train_sizes)

    def check(self, spec: StudySpec) -> None:
        super().check(spec)
        _check_depths(spec)

    def outlook(self, spec: StudySpec) -> str:
        purse = Purse(spec, [])
        unit = "cells" if purse.unit == "cells" else "full fine-tunings' worth of work"
        return f"then as many as it takes to be sure, within a budget of {purse.limit:.3g} {unit}"

    def most_work(self, spec: StudySpec) -> float | None:
        return Purse(spec, []).limit

    def thresholds(self, spec: StudySpec) -> tuple[float, ...] | None:
        return (asked(spec).threshold,)

    def select(self, spec: StudySpec) -> Select | None:
        return asked(spec).select
