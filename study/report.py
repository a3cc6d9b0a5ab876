"""The command `report`: one page, one text and the tables of a study, made from its trial table only."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from study.command import new_parser, run
from study.operating_points import add_analysis_options

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis import Analysis

EXAMPLES = """\
  python -m study.report --out report
  python -m study.report mrpc-bert-base-grid --storage sqlite:///elsa.db --out report
  python -m study.report trials.csv --select full-model --outliers paper --out report
"""


def write(table: pd.DataFrame, analysis: Analysis, folder: Path) -> list[Path]:
    """report.html, report.md and the tables, in `folder`; the paths written."""
    from study.answer import answers
    from study.costs import costs
    from study.operating_points import render

    text = render(analysis)
    said = answers(analysis, costs(table, analysis))
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in said)
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Layer-freezing study</title>"
        f"<body>{paragraphs}<pre>{html.escape(text)}</pre></body></html>"
    )
    return [
        _write(folder / "report.html", page),
        _write(folder / "report.md", "\n\n".join(said) + f"\n\n```\n{text}\n```\n"),
        _write(folder / "trials.csv", table.to_csv(index=False)),
    ]


def _write(path: Path, text: str) -> Path:
    """Beside, then renamed: a reader never sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("report", "Tables and figures of one or many studies.", EXAMPLES)
    add_analysis_options(parser)
    parser.add_argument("--out", metavar="DIR", default="report", help="the report's folder (default report)")
    arguments = parser.parse_args(argv)
    from study import trial_table
    from study.analysis import analyse

    table = trial_table.load(arguments.sources, arguments.storage)
    analysis = analyse(
        table,
        select=arguments.select,
        outliers=arguments.outliers,
        thresholds=arguments.thresholds,
        draws=arguments.draws,
        pairing=arguments.pairing,
    )
    for path in write(table, analysis, Path(arguments.out)):
        print(f"report: {path}")
    return 0


if __name__ == "__main__":
    run(main)
