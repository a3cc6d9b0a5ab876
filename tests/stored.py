"""A study in a database, filled through the storage's own calls with made-up records and learning curves."""

from __future__ import annotations

import numpy as np

from objectives.contract import Cell, CurvePoint, Recipe, TrialRecord
from storage.database import Database
from storage.studies import StoredStudy
from study.protocols.plan import plan_study
from study.specs.study_spec import StudySpec


def make_spec(**changes: object) -> StudySpec:
    settings: dict[str, object] = {
        "task": "mrpc",
        "metric": "f1",
        "model": "bert-tiny",
        "model_fingerprint": "m",
        "data": "glue/mrpc",
        "data_fingerprint": "d",
        "total_layers": 6,
        "protocol": "grid",
        "frozen_layers": (0, 2, 3, 4, 5, 6),
        "learning_rates": (1e-4, 3e-4),
        "seeds": (1, 2, 3),
        "recipe": Recipe(epochs=3),
        "recorded": True,
    }
    return StudySpec(**(settings | changes))  # type: ignore[arg-type]


def create(database: Database, name: str = "mrpc-tiny", spec: StudySpec | None = None) -> StoredStudy:
    spec = spec or make_spec()
    study = database.create_study(name, {"spec": spec.to_json()})
    plan_study(study, spec)
    return study


def run(study: StoredStudy, spec: StudySpec | None = None, *, cells: int | None = None) -> None:
    """End as many waiting cells as asked for, in any order; seed 3 at 5 frozen and the low rate fails."""
    spec = spec or make_spec()
    done = 0
    while (cells is None or done < cells) and (claim := study.claim("tester")) is not None:
        done += 1
        if claim.cell.frozen_layers == 5 and claim.cell.seed == 3 and claim.cell.learning_rate < 2e-4:
            claim.fail("CUDA out of memory", retry=False)
        else:
            claim.finish(record(claim.cell, spec))


def record(cell: Cell, spec: StudySpec) -> TrialRecord:
    random = np.random.default_rng([cell.frozen_layers + 1, cell.seed, round(cell.learning_rate * 1e6)])
    share = max(cell.frozen_layers, 0) / spec.total_layers
    reach = 0.89 - 0.09 * share**3 - (0.01 if cell.learning_rate > 2e-4 else 0.0) + random.normal(0, 0.004)
    curve = tuple(
        CurvePoint(
            epoch=float(epoch),
            step=100 * epoch,
            train_loss=0.7 / epoch,
            metrics={spec.metric: float(reach - 0.06 / epoch + 0.02)},
        )
        for epoch in (1, 2, 3)
    )
    total = 4_000_000
    trained = int(total * (1 - 0.9 * share))
    return TrialRecord(
        metric=spec.metric,
        score=curve[-1].metrics[spec.metric],
        metrics={spec.metric: curve[-1].metrics[spec.metric], "accuracy": float(reach - 0.05)},
        curve=curve,
        chance=0.70,
        trainable_parameters=trained,
        total_parameters=total,
        train_seconds=10 + 20 * (1 - share),
        prefix_seconds=0.5,
        peak_memory_bytes=int(2**28 * (1 + 3 * (1 - share))),
        device="Made-up GPU",
        host="node-1",
        versions={"torch": "2.9.0", "transformers": "5.1.0"},
    )
