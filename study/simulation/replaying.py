"""The settings of a replay."""

from __future__ import annotations

from dataclasses import dataclass

from objectives import settings
from objectives.contract import Recipe
from objectives.settings import setting
from study import protocols
from study.protocols.adaptive_settings import AdaptiveSettings
from study.protocols.units import Prefix


@dataclass(frozen=True, kw_only=True)
class Replaying(AdaptiveSettings, settings.Checked):
    """What is replayed, and how often; threshold and rates are asked of every protocol's runs."""

    protocol: str = setting(
        protocols.Adaptive.name, metavar="NAME", help="which cells are run, as elsa launch --help lists them"
    )
    workers: int = setting(1, metavar="K", help="cells that run at once", least=1, most=4096)
    repeats: int = setting(50, metavar="R", help="resampled studies per pair", least=1, most=100_000)
    prefix: Prefix = setting(Recipe.prefix, help="how frozen layers are run, for the compute")
    seed: int = setting(0, help="of the resampling", least=0, most=2**32 - 1)
    json: str | None = setting(None, metavar="OUT", help="write the results as JSON")
