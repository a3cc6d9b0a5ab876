"""The command `operating_points`: how many layers must be tuned, printed and as JSON.

It reads trial tables and studies, and prints what the analysis found; it computes nothing itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from study.cli.command import new_parser, run
from study.cli.files import check_file
from study.cli.flags import made
from study.reporting.analysing import Analysing, add_analysis, read_and_analyse
from study.reporting.report_files import write_json

EXAMPLES = """\
  elsa operating_points trials.csv
  elsa operating_points trials.csv --as-paper --json points.json
  elsa operating_points --storage sqlite:///elsa.db
  elsa operating_points postgresql://user@host/db --thresholds 0.9,0.97
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "operating_points",
        "The fewest tuned layers that keep 90, 95 or 99 % of the full model's quality.",
        EXAMPLES,
    )
    add_analysis(parser)
    parser.add_argument("--json", metavar="PATH", help="write the operating points as JSON")
    arguments = parser.parse_args(argv)
    asked = made(Analysing, arguments)
    if arguments.json:
        check_file(arguments.json, "--json")
    reading, analysis = read_and_analyse(arguments.sources, arguments.storage, asked)
    if arguments.json:
        write_json(analysis, arguments.json)
    from study.reporting.content import telling
    from study.reporting.terminal import terminal

    said = telling(analysis, reading.table, reading.provenance)
    print(terminal(said, shutil.get_terminal_size().columns))
    return 0


if __name__ == "__main__":
    run(main)
