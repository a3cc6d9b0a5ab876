"""The command `table`: every trial of studies or files as one CSV, failures included."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from study.command import add_storage, new_parser, run

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = """\
  python -m study.table > trials.csv
  python -m study.table mrpc-bert-base-grid --storage sqlite:///elsa.db --out trials.csv
  python -m study.table first.csv second.csv --out both.csv
"""


def to_csv(table: pd.DataFrame) -> str:
    """The table's own columns; numbers as written by Python, so that reading gives the same ones."""
    from study.trial_table import ORIGIN

    text = table.drop(columns=[ORIGIN], errors="ignore").to_csv(index=False)
    assert isinstance(text, str)
    return text


def write_csv(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Written beside and renamed, so that a reader never sees half of it."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(to_csv(table), encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"--out {path} cannot be written: {error.strerror}") from error


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("table", "The trial table as CSV: one row per trial, failures included.", EXAMPLES)
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="STUDY|STORAGE|TABLE",
        help="study names, storage URLs or CSV files (default: every study in the storage)",
    )
    add_storage(parser)
    parser.add_argument("--out", metavar="PATH", help="write to a file instead of standard output")
    arguments = parser.parse_args(argv)
    from study import trial_table

    table = trial_table.load(arguments.sources, arguments.storage)
    skipped = table.attrs.get("skipped")
    if skipped:
        print(f"elsa: skipped studies of other software: {', '.join(skipped)}", file=sys.stderr)
    if arguments.out:
        write_csv(table, arguments.out)
        print(f"{len(table)} trials written to {arguments.out}")
    else:
        sys.stdout.write(to_csv(table))
    return 0


if __name__ == "__main__":
    run(main)
