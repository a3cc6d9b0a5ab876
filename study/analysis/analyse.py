"""The whole analysis of a trial table: curves, operating points and one number per model.

Pure: a table in, dataclasses out, and their JSON. Printing and reading belong to the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.analysis.choices import DRAWS, THRESHOLDS, Outliers, Pairing, Select
from study.analysis.estimate import Estimate
from study.analysis.example_noise import ExampleNoise, Stored
from study.analysis.measure import Measured, measure
from study.analysis.model_points import ModelPoint, model_points
from study.analysis.planner import SettlePlan, settle_plan
from study.analysis.points import OperatingPoint, operating_point
from study.analysis.quality import Curve, curve
from study.analysis.runs import groups
from study.analysis.samples import Counts, total

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Analysis:
    select: Select
    outliers: Outliers
    pairing: Pairing
    as_paper: bool
    """The tasks that the paper leaves out are left out of a model's one number."""
    draws: int
    thresholds: tuple[float, ...]
    curves: tuple[Curve, ...]
    points: tuple[OperatingPoint, ...]
    """By curve, then threshold."""
    models: tuple[ModelPoint, ...]
    trials: int
    skipped: tuple[str, ...]
    """Studies of other software in the same storage."""
    estimates: tuple[Estimate, ...]
    """By curve: the joint distributions that everything else is read from."""

    @property
    def counts(self) -> Counts:
        return total([curve.counts for curve in self.curves])

    @property
    def demo(self) -> bool:
        return any(curve.demo for curve in self.curves)

    def settle_plan(self, point: OperatingPoint) -> SettlePlan | None:
        """What would settle this point's answer; None where it is settled, or has none."""
        for found, estimate in zip(self.curves, self.estimates, strict=True):
            if (found.study, *_place(found)) == (point.study, *_place(point)):
                return settle_plan(point, found, estimate)
        return None

    def point(
        self, model: str, task: str, threshold: float, train_size: int | None = None
    ) -> OperatingPoint | None:
        wanted = (model, task, threshold, train_size)
        return next((p for p in self.points if (p.model, p.task, p.threshold, p.train_size) == wanted), None)


def analyse(
    table: pd.DataFrame,
    *,
    select: Select = "per-depth",
    outliers: Outliers = "none",
    thresholds: Sequence[float] = THRESHOLDS,
    draws: int = DRAWS,
    pairing: Pairing = "auto",
    as_paper: bool = False,
    seed: int = 0,
    predictions: Stored | None = None,
) -> Analysis:
    """Everything the table can say; what it cannot is None with a note, never a guess.

    With the trials' packed predictions, by study and trial, all claims include the variation over test
    examples.
    """
    for threshold in thresholds:
        if not 0 < threshold <= 1:
            raise UsageError(f"threshold {threshold:g} is not a share of the full quality: use 0.9 for 90 %")
    if draws < 1:
        raise UsageError(f"--draws {draws} is too few: use at least 1, better 1000")
    if as_paper:
        select, outliers = "full-model", "paper"
    curves: list[Curve] = []
    points: list[OperatingPoint] = []
    estimates: list[Estimate] = []
    examples = ExampleNoise(table, predictions) if predictions else None
    for group in groups(table, outliers):
        measured = measure(group, select, pairing, examples.covariance if examples else None)
        found = curve(measured, select, pairing)
        curves.append(found)
        estimates.append(measured.estimate)
        points += _points(found, measured, thresholds, draws, seed)
    return Analysis(
        select=select,
        outliers=outliers,
        pairing=pairing,
        as_paper=as_paper,
        draws=draws,
        thresholds=tuple(thresholds),
        curves=tuple(curves),
        points=tuple(points),
        models=tuple(model_points(points, as_paper=as_paper)),
        trials=len(table),
        skipped=tuple(table.attrs.get("skipped", ())),
        estimates=tuple(estimates),
    )


def _place(part: Curve | OperatingPoint) -> tuple[str, str, int | None, str]:
    return part.model, part.task, part.train_size, part.metric


def _points(
    found: Curve, measured: Measured, thresholds: Sequence[float], draws: int, seed: int
) -> list[OperatingPoint]:
    estimate = measured.estimate
    drawn = seeds = None
    if found.undefined is None and estimate.certain:
        drawn = estimate.draws(draws, seed)
        seeds = None if estimate.over_examples is None else estimate.seeds_alone().draws(draws, seed)
    return [operating_point(found, estimate, drawn, threshold, seeds) for threshold in thresholds]


def to_json(analysis: Analysis) -> dict[str, Any]:
    """The operating-points contract, with further keys beside the contract's own."""
    return {
        "points": [_point_json(point) for point in analysis.points],
        "models": [_model_json(model) for model in analysis.models],
        "curves": [_curve_json(curve) for curve in analysis.curves],
        "settings": {
            "select": analysis.select,
            "outliers": analysis.outliers,
            "pairing": analysis.pairing,
            "as_paper": analysis.as_paper,
            "draws": analysis.draws,
        },
        "counts": asdict(analysis.counts) | {"trials": analysis.trials},
        "skipped_studies": list(analysis.skipped),
        "demo": analysis.demo,
    }


def _point_json(point: OperatingPoint) -> dict[str, Any]:
    data = asdict(point)
    data["probability"] = {str(depth): p for depth, p in point.probability.items()}
    data["note"] = "; ".join(data.pop("notes")) or None
    return data


def _model_json(model: ModelPoint) -> dict[str, Any]:
    probability = {str(tuned): p for tuned, p in model.probability.items()}
    return asdict(model) | {"probability": probability}


def _curve_json(curve: Curve) -> dict[str, Any]:
    data = asdict(curve)
    for depth in data["depths"]:
        depth["trials"] = len(depth.pop("scores"))
        del depth["rates"], depth["seeds"]
    return data | {"notes": list(curve.notes)}
