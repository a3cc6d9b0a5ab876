"""What the commands that analyse trials share: their sources, their settings, and reading them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives import settings
from objectives.contract import UsageError
from objectives.settings import setting
from study.analysis.choices import DRAWS, THRESHOLDS, Outliers, Pairing, Select
from study.cli import flags, lists
from study.cli.command import add_storage

if TYPE_CHECKING:
    from study.analysis.analyse import Analysis
    from study.trials.sources import Reading


@dataclass(frozen=True, kw_only=True)
class Analysing:
    select: Select | None = setting(
        None,
        help="learning rate: the best at each depth, or the full model's best everywhere",
        default_text="as a search chose its cells, else per-depth",
    )
    outliers: Outliers = setting(
        "none",
        help="paper: leave out zeros and runs at or below 0.9 of the cell's best, instead of collapsed runs",
    )
    as_paper: bool = setting(
        False,
        help="as the paper did: --select full-model --outliers paper; CoLA and WNLI are excluded from the "
        "per-model result",
    )
    thresholds: tuple[float, ...] | None = setting(
        None,
        metavar="LIST",
        help="shares of the full model's quality",
        default_text=f"{','.join(map(str, THRESHOLDS))}; of searches, their own",
        read=lists.shares,
        above=0,
        most=1,
    )
    draws: int = setting(DRAWS, help="draws behind each probability", least=1, most=1_000_000)
    pairing: Pairing = setting(
        "auto",
        help="compare runs of the same seed with each other; auto: yes, unless a seed occurs twice",
    )

    def __post_init__(self) -> None:
        settings.check(self)
        if self.as_paper and self.select == "per-depth":
            raise UsageError(
                "--as-paper takes the full model's rate at every depth: leave out --select per-depth"
            )


def add_analysis(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="*", metavar="TABLE|STORAGE|STUDY", help="CSV files, storage URLs or study names"
    )
    add_storage(parser)
    flags.add_settings(parser, "the analysis", Analysing)


def read_and_analyse(sources: list[str], storage: str | None, asked: Analysing) -> tuple[Reading, Analysis]:
    """The trials of these sources, and their analysis."""
    from study.reporting.content import analyse_studies
    from study.trials.sources import read

    reading = read(sources, storage, predictions=True)
    given = {name: value for name, value in vars(asked).items() if value is not None}
    return reading, analyse_studies(reading, **given)
