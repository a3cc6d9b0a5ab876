"""Which run of a study is asked for."""

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
        help="of the full quality that is kept",
        default_text=f"{THRESHOLDS[0]:g}",
        above=0,
        most=1,
    )
    frozen_layers: int | None = setting(None, metavar="N", help="this depth, whatever it keeps")
    seed: int | None = setting(None, help="this seed", default_text="the one of median score")
    best: bool = setting(False, help="the seed with the best score")
    train_size: int | None = setting(
        None, metavar="N", help="of a study of several", default_text="the largest"
    )
