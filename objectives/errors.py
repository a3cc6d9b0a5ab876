"""Every error that a command can end with, and its exit code; and the failure of a single trial."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

LONGEST_MESSAGE = 1500
# fmt: off
HARMLESS = frozenset({
    "application_name", "charset", "client_encoding", "connect_timeout", "host", "port", "read_timeout",
    "sslmode", "target_session_attrs", "timeout", "unix_socket", "write_timeout",
})
"""Options of database URLs whose values may be shown; any other may be a password, or hold one."""
# fmt: on
_WEB = ("http", "https", "file", "s3", "gs", "hf")
_SCHEME = re.compile(
    r"\b(?:([a-z][a-z0-9+.-]*)://|(?:postgres|postgresql|mysql|mariadb)(?:\+\w+)?:(?=[^\s…]))", re.IGNORECASE
)
"""The start of a URL; of a database's also with a slash missing, or both."""
_PROPER = re.compile(
    r"(?:[\w.%+-]*(?::\*\*\*)?@)?(?:[\w.-]*|\[[\w:.%]*\])(?::\d{1,5})?(?:/[^\s:@?]*)?(?:\?[^\s@]*)?"
    r"(?=[\s'\"`,;)…]|:\s|:?$)"
)
"""What may follow :// to be shown: a user's name, no password, a host, a port, a database, options."""
_BARE = re.compile(r"(?<![\w:/*.@-])(?!hub:)/{0,2}[\w.%+-]+:(?!//|\*\*\*@)[^\s@]*@(?:[^\s@]*@)*")
"""A user's name and a password without any scheme."""
_OPTION = re.compile(r"(?<=[?&])([\w-]+)=([^\s&'\"]+)")


def printable(text: str) -> str:
    """On one line, with escapes for what no terminal, file or database can take."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in line)


def masked(text: str) -> str:
    """Without whatever may be a password: of what is no proper URL the scheme alone is shown."""
    text = _OPTION.sub(lambda option: option[0] if option[1] in HARMLESS else f"{option[1]}=***", text)
    parts, at = [], 0
    while start := _SCHEME.search(text, at):
        parts.append(text[at : start.end()])
        at, hidden = _hidden(text, start)
        parts.append(hidden)
    return _BARE.sub("***@", "".join([*parts, text[at:]]))


def _hidden(text: str, start: re.Match[str]) -> tuple[int, str]:
    """Where to go on behind the start of a URL, and what to show of what is left out."""
    scheme, at = (start[1] or "").lower(), start.end()
    if scheme and (_PROPER.match(text, at) or (scheme.startswith("sqlite") and text.startswith("/", at))):
        return at, ""
    rest = re.search(r"\s|$", text[at:])
    word = at + (rest.start() if rest else 0)
    # A password may hold spaces, and @ itself.
    last = text.rfind("@", at, word if scheme in _WEB else len(text))
    if last >= 0:
        return last, "***"
    return (at, "") if scheme in _WEB else (word, "…")


def one_line(text: str) -> str:
    """A value at fault for a message: on one line, printable, with passwords removed, truncated."""
    shown = masked(printable(text))
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
