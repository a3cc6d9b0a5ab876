"""The report on disk: the page, the text, the tables as CSV and JSON, and the figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from study.cli.command import note
from study.cli.files import write_text

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis.analyse import Analysis
    from study.trials.provenance import Provenance


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
    from study.reporting.content import document
    from study.reporting.images import export
    from study.reporting.page import page
    from study.reporting.text import comma_separated, markdown
    from study.trials.trial_table import to_csv

    content = document(table, analysis, provenance)
    exported: dict[str, list[Path]] = {}
    if images:
        exported, reason = export(content.charts, folder / "figures", content.badges)
        if reason is not None:
            note(f"figures were not exported as SVG and PNG: {reason}")
    links = {name: found[0].relative_to(folder).as_posix() for name, found in exported.items()}
    paths = [
        write_text(folder / "report.html", page(content)),
        write_text(folder / "report.md", markdown(content, links)),
        write_text(folder / "tables" / "trials.csv", to_csv(table)),
        *(write_text(folder / "tables" / part.file, comma_separated(part)) for part in content.tables),
        folder / "tables" / "operating_points.json",
        *(path for found in exported.values() for path in found),
    ]
    write_json(analysis, folder / "tables" / "operating_points.json")
    return paths


def write_json(analysis: Analysis, path: str | os.PathLike[str]) -> None:
    from study.analysis.analyse import to_json

    write_text(path, json.dumps(to_json(analysis), indent=1, allow_nan=False) + "\n")
