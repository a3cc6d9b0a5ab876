"""The commands and Python snippets of the documentation, as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "*/*.md", "*/*/README.md")
    for path in ROOT.glob(pattern)
    if path.name == path.name.upper().replace(".MD", ".md") and not path.parent.name.startswith(".")
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`((?:elsa|python|bash|pytest|pip|scripts/\w+\.(?:py|sh)) [^`]+)`")
_NAMED = ("elsa launch", "elsa export")
"""Commands that need arguments: without any, a page only speaks of them."""
PLACEHOLDERS = {
    "STUDY…": "mrpc-bert-base-grid reviews-bert-base-grid",
    "STUDY": "mrpc-bert-base-grid",
    "FOLDER": "further-model",
}


def blocks(text: str, *languages: str) -> list[str]:
    return [block for language, block in _BLOCK.findall(text) if language in languages]


def in_block(block: str) -> list[str]:
    """The commands of a shell block, one per line, without their comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [" ".join(line.partition(" #")[0].split()) for line in lines if shlex.split(line, comments=True)]


def _on_page(text: str) -> Iterator[str]:
    for block in blocks(text, "bash"):
        yield from in_block(block)
    for block in blocks(text, ""):
        yield from (line[2:] for line in block.splitlines() if line.startswith("$ "))
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        yield " ".join(span.split())


def commands() -> list[str]:
    """Each once, with placeholders filled in."""
    found = []
    for page in PAGES:
        for command in _on_page(page.read_text()):
            for word, value in PLACEHOLDERS.items():
                command = re.sub(rf"(?<!\S){word}(?!\S)", value, command)
            found.append(command)
    return [command for command in dict.fromkeys(found) if command not in _NAMED]


if __name__ == "__main__":
    print("\n".join(commands()))
