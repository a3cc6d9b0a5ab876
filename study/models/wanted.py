"""Which run of a study is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from objectives import settings
from objectives.settings import setting
from study.analysis.choices import THRESHOLDS

DEFAULT_THRESHOLD = THRESHOLDS[0]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    threshold: float | None = setting(
        None,
        metavar="SHARE",
        help="of the full quality that is kept",
        default_text=f"{DEFAULT_THRESHOLD:g}",
        above=0,
        most=1,
    )
    frozen_layers: int | None = setting(None, metavar="N", help="this depth, whatever it keeps")
    seed: int | None = setting(None, help="this seed", default_text="the one of median score")
    best: bool = setting(False, help="the seed with the best score")
    train_size: int | None = setting(
        None, metavar="N", help="of a study of several", default_text="the largest"
    )

    def __post_init__(self) -> None:
        settings.check(self)
        settings.check_alone(self, "threshold", "frozen_layers")
        settings.check_alone(self, "seed", "best")
