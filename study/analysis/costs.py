"""What each depth costs: parameters, training time, memory and storage, and what is worth its cost.

Measured where the trials recorded it, counted from published configurations otherwise, else None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from objectives.depths import layers_frozen
from objectives.tasks import metrics
from study.analysis.analyse import Analysis
from study.analysis.published import model_key
from study.analysis.quality import Curve

if TYPE_CHECKING:
    import pandas as pd

CostName = Literal["trainable_share", "seconds", "peak_memory_bytes", "storage_bytes"]
COSTS: tuple[CostName, ...] = ("trainable_share", "seconds", "peak_memory_bytes", "storage_bytes")
BYTES_PER_PARAMETER = 4
_RECORDED = (
    "trainable_parameters",
    "total_parameters",
    "train_seconds",
    "prefix_seconds",
    "peak_memory_bytes",
)

BACKBONES: dict[str, tuple[int, int, int, int]] = {
    "bert-base": (12, 23_837_184, 7_087_872, 590_592),
    "bert-large": (24, 31_782_912, 12_596_224, 1_049_600),
    "roberta-base": (12, 39_000_576, 7_087_872, 590_592),
    "roberta-large": (24, 52_000_768, 12_596_224, 1_049_600),
}
"""Layers, then parameters of embeddings, one layer and pooler, from the published configurations."""


@dataclass(frozen=True, kw_only=True)
class DepthCost:
    """The cost of one depth; the median over its complete runs, at every learning rate."""

    frozen_layers: int
    runs: int
    trainable_parameters: int | None
    total_parameters: int | None
    trainable_share: float | None
    train_seconds: float | None
    prefix_seconds: float | None
    """Of the frozen layers' states, computed once and shared by all trials; the most that any recorded."""
    seconds: float | None
    """train_seconds + prefix_seconds: what one fine-tuning at this depth alone would take."""
    peak_memory_bytes: float | None
    storage_bytes: int | None
    """What must be kept per task beside the shared frozen part, at 4 bytes a parameter."""
    relative: dict[CostName, float]
    """Each cost as a share of the full model's, where both are known."""


@dataclass(frozen=True, kw_only=True)
class CurveCosts:
    study: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    parameters: Literal["measured", "counted", "unknown"]
    depths: tuple[DepthCost, ...]
    pareto: dict[CostName, tuple[int, ...]]
    """Frozen layers on the front of quality against each cost: nothing is both cheaper and better."""
    notes: tuple[str, ...]

    def at(self, frozen_layers: int) -> DepthCost | None:
        return next((d for d in self.depths if d.frozen_layers == frozen_layers), None)


def costs(table: pd.DataFrame, analysis: Analysis) -> tuple[CurveCosts, ...]:
    """The costs of every curve, in the order of the curves."""
    recorded, machines = _recorded(table)
    return tuple(_curve_costs(curve, recorded, machines) for curve in analysis.curves)


def pareto_front(points: Sequence[tuple[int, float, float]]) -> tuple[int, ...]:
    """Of (name, cost, quality): the names that no other beats on one without losing on the other."""
    return tuple(
        name
        for name, cost, quality in points
        if not any(
            other_cost <= cost and other >= quality and (other_cost < cost or other > quality)
            for _, other_cost, other in points
        )
    )


def _recorded(table: pd.DataFrame) -> tuple[dict[Any, dict[str, Any]], dict[Any, int]]:
    import pandas as pd

    complete = table[table["state"] == "COMPLETE"]
    keyed = pd.DataFrame(
        {name: pd.to_numeric(complete[name], errors="coerce") for name in _RECORDED if name in complete}
        | {name: complete[name] for name in ("device", "host") if name in complete}
        | {name: complete[name] for name in ("model", "task", "metric", "frozen_layers")}
        | {"size": complete["train_size"].astype("Float64").fillna(-1).astype(float)}
    )
    keyed["study"] = complete["study"].fillna("").astype(str) if "study" in complete else ""
    place = ["study", "model", "task", "size", "metric"]
    how = {name: "max" if name == "prefix_seconds" else "median" for name in _RECORDED if name in keyed}
    grouped = keyed.groupby([*place, "frozen_layers"])
    found: dict[Any, dict[str, Any]] = {key: {"runs": int(n)} for key, n in grouped.size().items()}
    if how:
        for key, row in grouped.agg(how).to_dict("index").items():
            found[key] |= row
    named = [name for name in ("device", "host") if name in keyed]
    machines: dict[Any, int] = {}
    if named:
        machines = keyed.drop_duplicates([*place, *named]).groupby(place).size().to_dict()
    return found, machines


def _curve_costs(curve: Curve, recorded: dict[Any, dict[str, Any]], machines: dict[Any, int]) -> CurveCosts:
    size = -1.0 if curve.train_size is None else float(curve.train_size)
    place = (curve.study or "", curve.model, curve.task, size, curve.metric)
    depths = [
        _depth_cost(curve, d.frozen_layers, recorded.get((*place, d.frozen_layers), {})) for d in curve.depths
    ]
    full = next((d for d in depths if d.frozen_layers == 0), None)
    depths = [_relative(depth, full) for depth in depths]
    measured = any("trainable_parameters" in recorded.get((*place, d.frozen_layers), {}) for d in depths)
    known = any(d.trainable_share is not None for d in depths)
    about = metrics.describe(curve.metric)
    qualities = {
        d.frozen_layers: None if d.score is None else about.quality(d.score, curve.chance)
        for d in curve.depths
    }
    notes = []
    if machines.get(place, 1) > 1:
        notes.append(f"seconds and memory come from {machines[place]} machines or devices, together")
    return CurveCosts(
        study=curve.study,
        model=curve.model,
        task=curve.task,
        train_size=curve.train_size,
        metric=curve.metric,
        parameters="measured" if measured and known else "counted" if known else "unknown",
        depths=tuple(depths),
        pareto={name: _front(depths, qualities, name) for name in COSTS},
        notes=tuple(notes),
    )


def _front(
    depths: Sequence[DepthCost], qualities: dict[int, float | None], name: CostName
) -> tuple[int, ...]:
    points = []
    for depth in depths:
        cost, quality = getattr(depth, name), qualities[depth.frozen_layers]
        if cost is not None and quality is not None:
            points.append((depth.frozen_layers, cost, quality))
    return pareto_front(points)


def _depth_cost(curve: Curve, frozen: int, row: dict[str, Any]) -> DepthCost:
    def value(name: str) -> float | None:
        number = row.get(name)
        return None if number is None or not np.isfinite(number) else float(number)

    trainable, total = value("trainable_parameters"), value("total_parameters")
    if trainable is None or total is None:
        trainable, total = _counted(curve, frozen)
    train, prefix = value("train_seconds"), value("prefix_seconds")
    return DepthCost(
        frozen_layers=frozen,
        runs=int(row.get("runs", 0)),
        trainable_parameters=None if trainable is None else int(trainable),
        total_parameters=None if total is None else int(total),
        trainable_share=trainable / total if trainable is not None and total else None,
        train_seconds=train,
        prefix_seconds=prefix,
        seconds=None if train is None else train + (prefix or 0.0),
        peak_memory_bytes=value("peak_memory_bytes"),
        storage_bytes=None if trainable is None else int(trainable) * BYTES_PER_PARAMETER,
        relative={},
    )


def _counted(curve: Curve, frozen: int) -> tuple[float | None, float | None]:
    """Without the classifier, whose size depends on the task and is next to nothing."""
    name = model_key(curve.model)
    if name is None or BACKBONES[name][0] != curve.total_layers:
        return None, None
    layers, embeddings, layer, pooler = BACKBONES[name]
    total = embeddings + layers * layer + pooler
    if frozen == 0:
        return total, total
    return total - embeddings - layers_frozen(frozen) * layer, total


def _relative(depth: DepthCost, full: DepthCost | None) -> DepthCost:
    if full is None:
        return depth
    shares: dict[CostName, float] = {}
    for name in COSTS:
        here, there = getattr(depth, name), getattr(full, name)
        if here is not None and there:
            shares[name] = here / there
    return replace(depth, relative=shares)
