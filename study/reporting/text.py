"""The report as Markdown, and its tables as CSV, from the same content as the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from study.reporting.document import Block, Bullets, Chart, Document, Table, Words


def markdown(document: Document, images: Mapping[str, str] | None = None) -> str:
    """`images` are the exported figures by chart name, as paths beside the text."""
    badges = "".join(f"**{badge.upper()}** " for badge in document.badges)
    parts = [f"# {badges}How many layers need fine-tuning? {document.title}"]
    parts += [f"> {warning}" for warning in document.warnings]
    parts += document.answers if len(document.answers) == 1 else [_list(document.answers)]
    parts.append(_list(f"{value} {label}" for value, label in document.facts))
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts += [_block(block, images or {}) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def comma_separated(table: Table) -> str:
    """Raw values under the contract's column names; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kept = [i for i, column in enumerate(table.columns) if column.raw]
    writer.writerow([table.columns[i].name for i in kept])
    for row in table.rows:
        writer.writerow(["" if row.values[i] is None else row.values[i] for i in kept])
    return out.getvalue()


def _block(block: Block, images: Mapping[str, str]) -> str:
    match block:
        case Words():
            return block.text
        case Bullets():
            return _list(block.items)
        case Table():
            return markdown_table(block)
        case Chart():
            return _chart(block, images)


def _chart(chart: Chart, images: Mapping[str, str]) -> str:
    path = images.get(chart.name)
    body = f"![{chart.title}]({path})" if path else _list(panel.alt for panel in chart.panels)
    return f"### {chart.title}\n\n{body}\n\n{chart.caption}"


def markdown_table(table: Table, *, level: int = 3) -> str:
    shown = table.shown
    grouped = any(row.group for row in table.rows)
    titles = [*([""] if grouped else []), *(column.title for _, column in shown)]
    rules = [*(["---"] if grouped else []), *("---:" if column.number else "---" for _, column in shown)]
    lines = [_line(titles), _line(rules)]
    group = None
    for row in table.rows:
        cells = []
        for i, column in shown:
            text = column.show(row.values[i])
            marked = i in row.marked
            text = f"{text} †" if marked and table.mark == "differs" else text
            cells.append(f"**{text}**" if row.strong or (marked and table.mark == "best") else text)
        if grouped:
            cells.insert(0, "" if row.group == group else row.group or "")
            group = row.group
        lines.append(_line(cells))
    note = f"\n\n{table.note}" if table.note else ""
    return f"{'#' * level} {table.title}\n\n" + "\n".join(lines) + note


def _line(cells: list[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
