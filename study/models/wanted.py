"""Which run of a study is the threshold."""

from __future__ import annotations

from dataclasses import dataclass

from objectives import settings
from objectives.settings import setting
from study.analysis.choices import THRESHOLDS


@dataclass(frozen=True, kw_only=True)
class Wanted(settings.Checked):
    alone = (("threshold", "frozen_layers"), ("seed", "best"))

    threshold: float | None = setting(
        None,
        metavar="SHARE",
        help="operating point to export, as a fraction of full quality",
        default_text=f"{THRESHOLDS[0]:g}",
        above=0,
        most=1,
    )
    frozen_layers: int | None = setting(
        None, metavar="N", help="export this depth instead of an operating point"
    )
    seed: int | None = setting(None, help="this seed", default_text="the one of median score")
    best: bool = setting(False, help="the seed with the best score")
    train_size: int | None = setting(
        None,
        metavar="N",
        help="training size to export, if the study has several",
        default_text="the largest",
    )
