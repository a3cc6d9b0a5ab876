"""TrialRecord <-> Optuna user attributes: one readable attribute per scalar, compact JSON for the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from objectives.contract import CurvePoint, TrialRecord

MOST_BYTES = 60_000
"""Per attribute; MariaDB's TEXT ends at 65,535 bytes, and fails."""

NESTED = ("metrics", "curve", "versions", "predictions")
PREDICTIONS = "elsa:predictions"
"""System attributes, which no table and no dashboard reads: `elsa:predictions`, then `elsa:predictions:2` …
"""
SCALARS = tuple(f.name for f in fields(TrialRecord) if f.name not in (*NESTED, "score"))
RESERVED = frozenset((*SCALARS, *NESTED, "score", "metric_names", "worker", "reason"))


def loaded(text: str) -> Any:
    """An attribute's value; halves of characters, which JSON can hold and nothing can print, are replaced."""
    value = json.loads(text)
    if "\\ud" in text.lower():
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def to_attributes(record: TrialRecord) -> dict[str, Any]:
    """Everything of the record but its score, which is the trial's value."""
    attributes: dict[str, Any] = {
        name: value for name in SCALARS if (value := getattr(record, name)) is not None
    }
    attributes["metric_names"] = sorted(record.metrics)
    for name, value in record.metrics.items():
        attributes[_metric_key(name)] = _plain(value)
    if record.versions:
        attributes["versions"] = dict(record.versions)
    for part, points in enumerate(_parts(record.curve), start=1):
        attributes["curve" if part == 1 else f"curve_{part}"] = _columns(points)
    return attributes


def from_attributes(attributes: Mapping[str, Any], score: float) -> TrialRecord:
    found: dict[str, Any] = {name: attributes[name] for name in SCALARS if name in attributes}
    curve = list(_points(attributes.get("curve", {})))
    part = 2
    while f"curve_{part}" in attributes:
        curve += _points(attributes[f"curve_{part}"])
        part += 1
    return TrialRecord(
        **{"metric": "score", **found},
        score=score,
        metrics={name: _number(attributes[_metric_key(name)]) for name in attributes.get("metric_names", ())},
        curve=tuple(curve),
        versions=attributes.get("versions", {}),
    )


def _metric_key(name: str) -> str:
    return f"metric_{name}" if name in RESERVED else name


def _parts(curve: Sequence[CurvePoint]) -> list[Sequence[CurvePoint]]:
    """The curve in as many pieces as the size of an attribute asks for."""
    if not curve:
        return []
    if len(json.dumps(_columns(curve))) <= MOST_BYTES or len(curve) == 1:
        return [curve]
    half = len(curve) // 2
    return [*_parts(curve[:half]), *_parts(curve[half:])]


def _columns(curve: Sequence[CurvePoint]) -> dict[str, Any]:
    names = sorted({name for point in curve for name in point.metrics})
    return {
        "epoch": [_plain(point.epoch) for point in curve],
        "step": [point.step for point in curve],
        "train_loss": [_plain(point.train_loss) for point in curve],
        "metrics": {name: [_plain(point.metrics.get(name)) for point in curve] for name in names},
    }


def _points(columns: Mapping[str, Any]) -> list[CurvePoint]:
    if not columns:
        return []
    return [
        CurvePoint(
            epoch=_number(epoch),
            step=step,
            train_loss=_number(loss),
            metrics={
                name: _number(values[index])
                for name, values in columns["metrics"].items()
                if values[index] is not None
            },
        )
        for index, (epoch, step, loss) in enumerate(
            zip(columns["epoch"], columns["step"], columns["train_loss"], strict=True)
        )
    ]


def _plain(value: float | None) -> float | str | None:
    """JSON has no NaN; the dashboard's browser would choke on Python's."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value


def to_system_attributes(record: TrialRecord) -> dict[str, str]:
    """The packed predictions, in as many pieces as the size of an attribute asks for."""
    text = record.predictions or ""
    pieces = [text[start : start + MOST_BYTES] for start in range(0, len(text), MOST_BYTES)]
    return {PREDICTIONS if i == 0 else f"{PREDICTIONS}:{i + 1}": piece for i, piece in enumerate(pieces)}


def joined_predictions(pieces: Mapping[str, str]) -> str | None:
    """Of one trial's system attributes."""
    found = pieces.get(PREDICTIONS)
    part = 2
    while found is not None and f"{PREDICTIONS}:{part}" in pieces:
        found += pieces[f"{PREDICTIONS}:{part}"]
        part += 1
    return found
