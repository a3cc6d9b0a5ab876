"""From a spec to WAITING trials: asks the study's protocol what it wants and has the storage add it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def search_space(spec: StudySpec) -> dict[str, list[int | float]]:
    """The study's grid as Optuna parameters; `train_size` is one only where the spec names sizes."""
    space: dict[str, list[int | float]] = {
        "frozen_layers": list(spec.frozen_layers),
        "learning_rate": list(spec.learning_rates),
        "seed": list(spec.seeds),
    }
    sizes = [size for size in spec.train_sizes if size is not None]
    return {**space, "train_size": [*sizes]} if sizes else space


def plan_study(study: StoredStudy, spec: StudySpec, *, max_retries: int, retry_failed: bool = False) -> int:
    """Add what the protocol wants now; the number of trials added."""
    from study import protocols

    wanted = protocols.get(spec.protocol)
    return study.plan(
        lambda outcomes: wanted(spec, outcomes),
        space=search_space(spec),
        max_retries=max_retries,
        retry_failed=retry_failed,
    )
