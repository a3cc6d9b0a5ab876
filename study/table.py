"""The command `table`: every trial of studies or files as one CSV, failures included."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from study.cli.command import add_storage, new_parser, note, run
from study.cli.files import check_file, write_text
from study.cli.wording import counted

EXAMPLES = """\
  elsa table > trials.csv
  elsa table mrpc-bert-base-grid --out trials.csv
  elsa table first.csv second.csv --out both.csv
"""


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
    if arguments.out:
        check_file(arguments.out, "--out")
    from study.trials.sources import read
    from study.trials.trial_table import to_csv

    table = read(arguments.sources, arguments.storage).table
    skipped = table.attrs.get("skipped")
    if skipped:
        note(f"skipped studies of other software: {', '.join(skipped)}")
    if arguments.out:
        write_text(arguments.out, to_csv(table))
        print(f"{counted(len(table), 'trial')} written to {arguments.out}")
    else:
        sys.stdout.write(to_csv(table))
    return 0


if __name__ == "__main__":
    run(main)
