"""The command `operating_points`: how many layers must be tuned, printed and as JSON.

It reads trial tables and studies, and prints what the analysis found; it computes nothing itself.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.cli.command import add_storage, new_parser, run
from study.reporting.files import check_file
from study.reporting.report_files import write_json

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis.analyse import Analysis
    from study.trials.provenance import Provenance
    from study.trials.sources import Reading

MOST_DRAWS = 1_000_000
EXAMPLES = """\
  elsa operating_points trials.csv
  elsa operating_points trials.csv --as-paper --json points.json
  elsa operating_points --storage sqlite:///elsa.db
  elsa operating_points postgresql://user@host/db --thresholds 0.9,0.97
"""


def analyse(table: pd.DataFrame, **options: Any) -> Analysis:
    """The analysis of a trial table; see `study.analysis.analyse.analyse` for the options."""
    from study.analysis.analyse import analyse as whole

    return whole(table, **options)


def render(
    analysis: Analysis,
    table: pd.DataFrame | None = None,
    provenance: Provenance | None = None,
    *,
    width: int | None = None,
) -> str:
    """The analysis as text for a terminal, as wide as it is; what it saves needs the table."""
    from study.reporting.content import telling
    from study.reporting.terminal import terminal

    return terminal(telling(analysis, table, provenance), width or shutil.get_terminal_size().columns)


def thresholds(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of shares such as 0.9,0.95") from None
    if not all(0 < value <= 1 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} must lie above 0 and up to 1: 0.9 is 90 %")
    return values


def draws(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST_DRAWS or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {MOST_DRAWS}")
    return int(text)


def add_analysis_options(parser: argparse.ArgumentParser) -> None:
    """The options every command that analyses a table shares."""
    parser.add_argument(
        "sources", nargs="*", metavar="TABLE|STORAGE|STUDY", help="CSV files, storage URLs or study names"
    )
    add_storage(parser)
    parser.add_argument(
        "--select",
        choices=("per-depth", "full-model"),
        help="learning rate: the best at each depth, or the full model's best everywhere (default: as an "
        "adaptive study was searched, else per-depth)",
    )
    parser.add_argument(
        "--outliers",
        choices=("none", "paper"),
        default="none",
        help="paper: leave out zeros and runs at or below 0.9 of the cell's best, instead of collapsed runs",
    )
    parser.add_argument(
        "--as-paper",
        action="store_true",
        help="as the paper did: --select full-model --outliers paper, CoLA left out of a model's number",
    )
    parser.add_argument(
        "--thresholds",
        type=thresholds,
        help="shares of the full model's quality (default: 0.9,0.95,0.99; of adaptive searches, their own)",
    )
    parser.add_argument(
        "--draws", type=draws, default=10_000, help="draws behind each probability (default 10000)"
    )
    parser.add_argument(
        "--pairing",
        choices=("auto", "paired", "independent"),
        default="auto",
        help="whether runs with one seed are compared with each other; auto: unless a seed has two scores",
    )


def load_and_analyse(arguments: argparse.Namespace) -> tuple[Reading, Analysis]:
    """The trials that the shared options name, and their analysis."""
    from study.reporting.content import analyse_studies
    from study.trials.sources import read

    reading = read(arguments.sources, arguments.storage, predictions=True)
    if arguments.as_paper and arguments.select == "per-depth":
        raise UsageError(
            "--as-paper takes the full model's rate at every depth: leave out --select per-depth"
        )
    given = {name: getattr(arguments, name) for name in ("outliers", "draws", "pairing", "as_paper")}
    chosen = {name: value for name in ("thresholds", "select") if (value := getattr(arguments, name))}
    return reading, analyse_studies(reading, **given, **chosen)


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "operating_points",
        "The fewest tuned layers that keep 90, 95 or 99 % of the full model's quality.",
        EXAMPLES,
    )
    add_analysis_options(parser)
    parser.add_argument("--json", metavar="PATH", help="write the operating points as JSON")
    arguments = parser.parse_args(argv)
    if arguments.json:
        check_file(arguments.json, "--json")
    reading, analysis = load_and_analyse(arguments)
    if arguments.json:
        write_json(analysis, arguments.json)
    print(render(analysis, reading.table, reading.provenance))
    return 0


if __name__ == "__main__":
    run(main)
