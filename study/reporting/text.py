"""A document as Markdown, and its tables as CSV.

Whatever a name contains, it is shown as it is written: it makes no HTML, no link and no formula.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from objectives.table_contract import safe_cell
from study.reporting.document import Block, Bullets, Chart, Code, Column, Document, Row, Table, Words

WORD_JOINER = "\u2060"
"""Of no width: an address with it reads as before, and is none."""


def markdown(document: Document, images: Mapping[str, str] | None = None) -> str:
    """`images` are the exported figures by chart name, as paths beside the text."""
    badges = "".join(f"**{badge.upper()}** " for badge in document.badges)
    parts = [f"# {badges}How many layers need fine-tuning? {escape(document.title)}"]
    parts += [f"> {escape(warning)}" for warning in document.warnings]
    for answer in document.answers:
        parts.append(f"**{escape(answer.headline)}**")
        parts += ["\n".join(f"- {escape(name)}: {escape(text)}" for name, text in answer.parts)]
    parts += [_list(f"{value} {label}" for value, label in document.facts)] if document.facts else []
    for section in document.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [_block(block, images or {}) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text within a line of Markdown: no HTML, no emphasis, no link, no line of its own."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"[`*~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    # Escapes do not keep readers such as the dashboard's from making links of addresses.
    text = re.sub(r"\b(?:(?:https?|ftp):(?=//)|www(?=\.))", rf"\g<0>{WORD_JOINER}", text, flags=re.IGNORECASE)
    return re.sub(r"\](?=[(\[:])", r"\\]", text)


def _paragraph(text: str) -> str:
    """Text at the start of a line, where some characters would begin a heading or a list."""
    return re.sub(r"^(?:(\d+)(?=[.)])|(?=[#>+=|-]))", r"\g<1>\\", escape(text))


def comma_separated(table: Table) -> str:
    """Raw values under the contract's column names; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kept = [column for column in table.columns if column.csv]
    writer.writerow([safe_cell(column.name) for column in kept])
    for row in table.rows:
        values = [column.value(row.item) for column in kept]
        writer.writerow(["" if value is None else safe_cell(value) for value in values])
    return out.getvalue()


def _block(block: Block, images: Mapping[str, str]) -> str:
    match block:
        case Words():
            return _paragraph(block.text)
        case Code():
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
            return f"{fence}\n{block.text}\n{fence}"
        case Bullets():
            return _list(item.told() for item in block.items)
        case Table():
            return markdown_table(block)
        case Chart():
            return _chart(block, images)


def _chart(chart: Chart, images: Mapping[str, str]) -> str:
    path = images.get(chart.name)
    body = f"![{escape(chart.title)}]({path})" if path else _list(panel.alt for panel in chart.panels)
    return f"### {escape(chart.title)}\n\n{body}\n\n{_paragraph(chart.caption)}"


def markdown_table(table: Table) -> str:
    shown = table.shown
    grouped = any(row.group for row in table.rows)
    lines = [
        _line([*([""] if grouped else []), *(escape(column.title) for column in shown)]),
        _line([*(["---"] if grouped else []), *("---:" if column.number else "---" for column in shown)]),
    ]
    group = None
    for row in table.rows:
        cells = [_cell(table, row, column) for column in shown]
        if grouped:
            cells.insert(0, "" if row.group == group else escape(row.group or ""))
            group = row.group
        lines.append(_line(cells))
    note = f"\n\n{_paragraph(' '.join(table.footnotes))}" if table.footnotes else ""
    return f"### {escape(table.title)}\n\n" + "\n".join(lines) + note


def _cell(table: Table, row: Row, column: Column) -> str:
    text = escape(column.text(row.item))
    marked = column.name in row.marked
    if marked and table.mark == "differs":
        text = f"{text} †"
    return f"**{text}**" if row.strong or (marked and table.mark == "best") else text


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_paragraph(item)}" for item in items)
