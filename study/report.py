"""The command `report`: a page, a text, tables and figures of studies, made from their trial table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from study.cli.command import new_parser, run
from study.cli.files import check_folder
from study.cli.flags import made
from study.reporting.analysing import Analysing, add_analysis, read_and_analyse
from study.reporting.report_files import write

EXAMPLES = """\
  elsa report --out report
  elsa report mrpc-bert-base-grid --storage sqlite:///elsa.db
  elsa report trials.csv --as-paper --out report
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("report", "One page, one text, tables and figures of one or many studies.", EXAMPLES)
    add_analysis(parser)
    parser.add_argument(
        "--out", metavar="DIR", default="report", help="the report's folder (default: report)"
    )
    parser.add_argument(
        "--no-images", action="store_true", help="do not export the figures as SVG and PNG as well"
    )
    arguments = parser.parse_args(argv)
    asked = made(Analysing, arguments)
    check_folder(arguments.out, "--out")
    reading, analysis = read_and_analyse(arguments.sources, arguments.storage, asked)
    paths = write(
        reading.table,
        analysis,
        Path(arguments.out),
        provenance=reading.provenance,
        images=not arguments.no_images,
    )
    tables = sum(path.suffix == ".csv" for path in paths)
    figures = sum(path.suffix in (".svg", ".png") for path in paths)
    print(f"report: {paths[0]}")
    print(f"        {paths[1].name}, {tables} tables, {figures} figure files beside it")
    return 0


if __name__ == "__main__":
    run(main)
