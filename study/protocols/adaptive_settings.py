"""What the adaptive search is asked: the settings that it alone has."""

from __future__ import annotations

from dataclasses import dataclass

from objectives.settings import setting
from study.analysis.choices import THRESHOLDS, Select
from study.analysis.planner import SETTLED
from study.protocols.base import settings_of
from study.specs.study_spec import StudySpec


def budget_of(text: str) -> tuple[float, str]:
    """Amount and unit of `60` (cells) or `40units`."""
    number = text.removesuffix("units")
    try:
        return float(number), "cells" if number == text else "units"
    except ValueError:
        raise ValueError("use a number of cells, or of full fine-tunings as 40units") from None


def read_budget(text: str) -> str:
    """`60` cells, or `40units`: as much work as 40 fine-tunings of the full model."""
    amount, _ = budget_of(text)
    if not 0 < amount < 1e12:
        raise ValueError("use a positive number of cells, or of full fine-tunings as 40units")
    return text


@dataclass(frozen=True, kw_only=True)
class AdaptiveSettings:
    threshold: float = setting(
        THRESHOLDS[0],
        help="adaptive: fraction of the full model's quality to keep",
        above=0,
        below=1,
    )
    confidence: float = setting(
        SETTLED, help="adaptive: stop when the answer's probability reaches this", above=0, below=1
    )
    budget: str | None = setting(
        None,
        metavar="N",
        help="adaptive: maximum cost, as a number of cells (60) or of full fine-tunings (40units)",
        default_text="55% of what the paper's protocol costs",
        read=read_budget,
    )
    select: Select = setting(
        "per-depth",
        help="adaptive: try other learning rates where the answer lies (per-depth), or keep the full model's",
    )


def asked(spec: StudySpec) -> AdaptiveSettings:
    """Of this study; the defaults where another protocol runs it."""
    found: AdaptiveSettings = settings_of(AdaptiveSettings, spec.protocol_settings)
    return found
