"""Every error that a command can end with, and its exit code; and the failure of a single trial."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

LONGEST_MESSAGE = 1500
_USER_ALONE = r"[\w.%+-]*(?::\*\*\*)?@[^\s@]*(?:\s|$)"
_SECRET = re.compile(rf"://(?!{_USER_ALONE})\S*@")
"""What stands between :// and the last @ of a word, unless it is a user's name without a password."""


def printable(text: str) -> str:
    """On one line, with escapes for what no terminal, file or database can take."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in line)


def one_line(text: str) -> str:
    """Whatever a value at fault holds: on one line, printable, without a password, and not without end."""
    shown = _SECRET.sub("://***@", printable(text))
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]}…"


def did_you_mean(word: str, known: Collection[str], otherwise: str | None = None) -> str:
    """What may have been meant by a word that is not known; else what there is to choose from."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else otherwise or f"choose from {', '.join(known)}"


class ElsaError(Exception):
    """Anything that ends a command: one line for stderr and an exit code."""

    exit_code = 1

    def __str__(self) -> str:
        return one_line(super().__str__())


class UsageError(ElsaError):
    """The request itself is wrong; the message names the value at fault and what to do."""

    exit_code = 2


class HubError(ElsaError):
    """A model or a data set could not be fetched."""

    exit_code = 3


class StorageError(ElsaError):
    """The database cannot be opened, read or written."""

    exit_code = 4


class SpecMismatch(ElsaError):
    """The study in the database was made from a different spec."""

    exit_code = 5


class NotReady(ElsaError):
    """The objective could not be made (no memory, no device): nothing that its cell is to blame for."""

    exit_code = 6


GROUP_BROKEN = 75
"""Exit code of a process group that lost one of its processes."""
TIMED_OUT = 76
"""Exit code of a worker process whose trial ran too long."""


class TrialFailed(Exception):
    """One trial could not be measured; it is recorded as FAIL with this reason and the study goes on."""

    def __init__(self, reason: str, *, retry: bool = True):
        super().__init__(reason)
        self.reason = printable(reason)
        self.retry = retry
        """False where another try must end the same way (a diverged run with its fixed seed)."""
