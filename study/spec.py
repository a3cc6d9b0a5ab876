"""The StudySpec: the immutable description of one study, its fingerprint and its differences.

It is validated when it is made, before anything is written, and stored on the Optuna study.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from objectives.contract import Recipe, UsageError

PROTOCOLS = ("grid", "paper", "low-resource", "adaptive")


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    task: str
    metric: str
    """The primary metric, the study's value."""
    model: str
    """As a person names it; `model_fingerprint` is what counts."""
    model_fingerprint: str
    data: str
    data_fingerprint: str
    total_layers: int
    protocol: str = "grid"
    frozen_layers: tuple[int, ...]
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    train_sizes: tuple[int | None, ...] = (None,)
    """(None,) is all of the data; only the low-resource protocol has sizes."""
    recipe: Recipe
    threshold: float = 0.9
    """Adaptive: the share of the full model's quality whose operating point is sought."""
    confidence: float = 0.9
    """Adaptive: the bootstrap probability of the answer at which the search stops."""
    select: str = "per-depth"
    """Adaptive: "per-depth" tries other learning rates where the answer lies, "full-model" keeps its rate."""
    budget: float | None = None
    """Adaptive: the most it may spend, in `budget_unit`."""
    budget_unit: str = "cells"
    """"cells" or "units" (training units: one full-model trial is 1)."""
    demo: bool = False
    recorded: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(f"unknown protocol {self.protocol!r}: choose from {', '.join(PROTOCOLS)}")
        for name in ("frozen_layers", "learning_rates", "seeds", "train_sizes"):
            values = getattr(self, name)
            if not values:
                raise UsageError(f"empty grid: --{name.replace('_', '-')} names no value")
            if len(set(values)) != len(values):
                raise UsageError(f"--{name.replace('_', '-')} names a value twice: {values}")
        for n in self.frozen_layers:
            if not -1 <= n <= self.total_layers:
                raise UsageError(
                    f"--frozen-layers {n} is beyond {self.model}, which has {self.total_layers} layers: "
                    f"use -1 to {self.total_layers}"
                )
        for rate in self.learning_rates:
            if not 0 < rate < 1:
                raise UsageError(f"--learning-rates {rate:g} is not between 0 and 1")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StudySpec:
        data = json.loads(text)
        known = {f.name for f in fields(cls)}
        data = {name: value for name, value in data.items() if name in known}
        for name in ("frozen_layers", "learning_rates", "seeds", "train_sizes"):
            data[name] = tuple(data[name])
        data["recipe"] = Recipe(**data["recipe"])
        return cls(**data)

    def fingerprint(self) -> str:
        """Of everything that makes trials comparable; where model and data lie does not count."""
        identity = replace(self, model="", data="")
        return hashlib.sha256(identity.to_json().encode()).hexdigest()[:16]

    def differences(self, other: StudySpec) -> list[str]:
        """One line per field that differs, as `name: here -> there`."""
        return [
            f"{name}: {_short(mine)} -> {_short(theirs)}"
            for (name, mine), theirs in zip(
                _flat(asdict(self)).items(), _flat(asdict(other)).values(), strict=True
            )
            if mine != theirs and name not in ("model", "data")
        ]


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}.{inner}" if inner else name: value
        for name, branch in tree.items()
        for inner, value in (branch.items() if isinstance(branch, Mapping) else [("", branch)])
    }


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
