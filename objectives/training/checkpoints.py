"""Checkpoints of unfinished trials in a folder that workers share: which there are, and which are no use.

A file belongs to one attempt at a cell, by the token in its name, so that nobody writes over another's; the
lease decides who may write at all. Whoever tries the cell next goes on from the one that came furthest.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from objectives.contract import Cell
from objectives.private_files import is_own

_NAME = re.compile(r"(?P<token>[0-9a-z]+)-(?P<step>\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """Of one study."""

    folder: Path
    every_seconds: float
    identity: str
    """Of all that a cell's training depends on beside the cell."""
    say: Callable[[str], None]

    def place(self, cell: Cell) -> Path:
        return self.folder / cell.file_name()

    def path(self, cell: Cell, token: str, step: int) -> Path:
        return self.place(cell) / f"{token}-{step:09d}.safetensors"

    def found(self, cell: Cell) -> list[Path]:
        """What this user has written of the cell, that which came furthest first."""
        try:
            own = [path for path in self.place(cell).iterdir() if _NAME.fullmatch(path.name) and is_own(path)]
        except OSError:
            return []
        return sorted(own, key=lambda path: path.stem.rpartition("-")[2], reverse=True)

    def written(self, cell: Cell, token: str) -> list[Path]:
        """By one attempt."""
        return [path for path in self.found(cell) if path.name.startswith(f"{token}-")]

    def remove(self, cell: Cell) -> None:
        """A finished cell needs none."""
        shutil.rmtree(self.place(cell), ignore_errors=True)

    def remove_all(self) -> None:
        """Nor does a finished study."""
        shutil.rmtree(self.folder, ignore_errors=True)
