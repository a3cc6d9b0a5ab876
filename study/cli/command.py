"""What all commands share: a parser, the storage option, one-line errors with exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from objectives.contract import ElsaError, UsageError
from objectives.errors import did_you_mean
from objectives.paths import path_text
from objectives.settings import shortened
from study.cli.streams import reader_has_left

DEFAULT_STORAGE = "sqlite:///elsa.db"

EVENTS = "--events"
"""The flag of a worker process that a supervisor started."""

Main = Callable[[Sequence[str] | None], int]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and that takes lists such as -1,0,2 as values."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        words: list[str] = []
        for word in sys.argv[1:] if args is None else args:
            check_word(word)
            if words and re.match(r"-\d", word) and re.fullmatch(r"--[a-z-]+", words[-1]):
                words[-1] += f"={word}"
            else:
                words.append(word)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        if unknown:
            hint = did_you_mean(unknown[1], self._option_string_actions, f"see {self.prog} --help")
            raise UsageError(f"unknown flag {unknown[1]}: {hint}")
        raise UsageError(f"{message} (see {self.prog} --help)")


def check_word(word: str) -> None:
    """Refuse what no name, path or address can hold."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{shortened(word)} is not UTF-8 text: rename it, or write it as UTF-8") from None
    if "\0" in word:
        raise UsageError(f"{shortened(word)} holds a zero byte: leave it out")
    if word.startswith("--") and word.endswith("=--"):
        # argparse takes it for the end of the flags, and gives the flag no value.
        raise UsageError(f"{shortened(word)} gives the flag no value: write one after =")


def path_word(text: str) -> str:
    """For `type=` of a flag: a path that a file or a folder can have."""
    try:
        return path_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{shortened(text)}: {error}") from None


def new_parser(name: str, description: str, examples: str) -> Parser:
    parser = Parser(
        prog=f"elsa {name}",
        description=textwrap.fill(" ".join(description.split()), 79),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--help-all", action="help", help="show every flag")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        metavar="URL",
        help=f"the shared database (default: $ELSA_STORAGE, else {DEFAULT_STORAGE})",
    )
    add_storage_file(parser)


def add_storage_file(parser: argparse.ArgumentParser, *, shown: bool = True) -> None:
    told = "read the database's URL from a file, so that no password is on the command line"
    parser.add_argument(
        "--storage-file",
        dest="storage",
        type=read_url,
        metavar="FILE",
        help=told if shown else argparse.SUPPRESS,
    )


def read_url(path: str) -> str:
    """The first line of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            url = file.readline().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--storage-file {path}: {getattr(error, 'strerror', None) or error}") from None
    if not url:
        raise UsageError(f"--storage-file {path} is empty: its first line must be the database's URL")
    return url


def storage_url(given: str | None) -> str:
    return given or os.environ.get("ELSA_STORAGE") or DEFAULT_STORAGE


def existing_storage(given: str | None) -> str:
    """The storage's URL; refused before anything heavy is imported where it is a file that does not exist."""
    from storage.address import check_place

    url = storage_url(given)
    check_place(url, create=False)
    return url


def default_display() -> str:
    """The storage that is used where none is named, as it is shown."""
    from storage.address import Address

    return Address.parse(storage_url(None)).display


def run(main: Main, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code; an ElsaError is one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = main(arguments)
        sys.stdout.flush()
    except ElsaError as error:
        if "--debug" in arguments:
            raise
        print(f"elsa: error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        if not reader_has_left():
            # Some other pipe broke, which is an error.
            raise
        # The reader has left (`| head`); there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if any(word.startswith(EVENTS) for word in arguments):
        # A worker process: nothing is left to clean up, and threads of libraries may abort the interpreter.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def duration(seconds: float) -> str:
    """`42s`, `3m20s`, `5h07m`, `2d03h`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def note(message: str) -> None:
    """Something a person should know, on stderr, beside whatever is displayed."""
    print(f"elsa: {message}", file=sys.stderr, flush=True)
