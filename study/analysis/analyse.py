"""The whole analysis of a trial table: curves, operating points and one number per model.

Pure: a table in, dataclasses out, and their JSON. Printing and reading belong to the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.analysis.bootstrap import Resampler
from study.analysis.points import ModelPoint, OperatingPoint, model_points, operating_point
from study.analysis.quality import Curve, Pairing, measure
from study.analysis.runs import Counts, Outliers, groups, total
from study.analysis.selection import Select

if TYPE_CHECKING:
    import pandas as pd

THRESHOLDS = (0.90, 0.95, 0.99)
DRAWS = 10_000
FEW_RUNS = 10
"""With fewer runs behind it a bootstrap's probability claims too much."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    select: Select
    outliers: Outliers
    pairing: Pairing
    draws: int
    thresholds: tuple[float, ...]
    curves: tuple[Curve, ...]
    points: tuple[OperatingPoint, ...]
    """By curve, then threshold."""
    models: tuple[ModelPoint, ...]
    trials: int
    skipped: tuple[str, ...]
    """Studies of other software in the same storage."""

    @property
    def counts(self) -> Counts:
        return total([curve.counts for curve in self.curves])

    @property
    def overconfident(self) -> str | None:
        """What to know of probabilities from a few runs; None where none is."""
        runs = [min(p.trials, p.full_trials) for p in self.points if p.probability and p.trials]
        if not runs or min(runs) >= FEW_RUNS:
            return None
        return (
            f"probabilities from fewer than {FEW_RUNS} runs are overconfident: so few make a bootstrap too "
            "narrow; intervals and “confident” allow for it"
        )

    @property
    def demo(self) -> bool:
        return any(curve.demo for curve in self.curves)

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
    seed: int = 0,
) -> Analysis:
    """Everything the table can say; what it cannot is None with a note, never a guess."""
    for threshold in thresholds:
        if not 0 < threshold <= 1:
            raise UsageError(f"threshold {threshold:g} is not a share of the full quality: use 0.9 for 90 %")
    if draws < 1:
        raise UsageError(f"--draws {draws} is too few: use at least 1, better 1000")
    resampler = Resampler(draws, seed)
    curves: list[Curve] = []
    points: list[OperatingPoint] = []
    for group in groups(table, outliers):
        curve, drawn = measure(group, select, pairing, resampler)
        curves.append(curve)
        points += [operating_point(curve, drawn, threshold) for threshold in thresholds]
    return Analysis(
        select=select,
        outliers=outliers,
        pairing=pairing,
        draws=draws,
        thresholds=tuple(thresholds),
        curves=tuple(curves),
        points=tuple(points),
        models=tuple(model_points(points)),
        trials=len(table),
        skipped=tuple(table.attrs.get("skipped", ())),
    )


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
