"""The command `report`: a page, a text, tables and figures of studies, made from their trial table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from study.command import new_parser, note, run
from study.operating_points import add_analysis_options, load_and_analyse

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis.analyse import Analysis
    from study.provenance import Provenance

EXAMPLES = """\
  python -m study.report --out report
  python -m study.report mrpc-bert-base-grid --storage sqlite:///elsa.db --out report
  python -m study.report trials.csv --select full-model --outliers paper --out report
"""


def write(
    table: pd.DataFrame,
    analysis: Analysis,
    folder: Path,
    *,
    provenance: Provenance | None = None,
    images: bool = False,
) -> list[Path]:
    """report.html, report.md, tables/*.csv and with `images` figures/*.svg and *.png; the first is the page.

    `provenance` adds what only the database knows: learning curves, specs, versions, machines.
    """
    from study.operating_points import write_json
    from study.reporting.content import document
    from study.reporting.images import export
    from study.reporting.page import page
    from study.reporting.text import comma_separated, markdown
    from study.table import to_csv

    content = document(table, analysis, provenance)
    exported: dict[str, list[Path]] = {}
    if images:
        exported, reason = export(content.charts, folder / "figures", content.badges)
        if reason is not None:
            note(f"figures were not exported as SVG and PNG: {reason}")
    links = {name: found[0].relative_to(folder).as_posix() for name, found in exported.items()}
    paths = [
        _write(folder / "report.html", page(content)),
        _write(folder / "report.md", markdown(content, links)),
        _write(folder / "tables" / "trials.csv", to_csv(table)),
        *(_write(folder / "tables" / part.file, comma_separated(part)) for part in content.tables),
        folder / "tables" / "operating_points.json",
        *(path for found in exported.values() for path in found),
    ]
    write_json(analysis, str(folder / "tables" / "operating_points.json"))
    return paths


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
    parser = new_parser("report", "One page, one text, tables and figures of one or many studies.", EXAMPLES)
    add_analysis_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", default="report", help="the report's folder (default: report)"
    )
    parser.add_argument(
        "--no-images", action="store_true", help="do not export the figures as SVG and PNG as well"
    )
    arguments = parser.parse_args(argv)
    from study import provenance

    table, analysis = load_and_analyse(arguments)
    paths = write(
        table,
        analysis,
        Path(arguments.out),
        provenance=provenance.read(arguments.sources, arguments.storage),
        images=not arguments.no_images,
    )
    tables = sum(path.suffix == ".csv" for path in paths)
    figures = sum(path.suffix in (".svg", ".png") for path in paths)
    print(f"report: {paths[0]}")
    print(f"        {paths[1].name}, {tables} tables, {figures} figure files beside it")
    return 0


if __name__ == "__main__":
    run(main)
