"""What all commands share: one-line errors with exit codes, number lists, the storage option."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from objectives.contract import ElsaError, UsageError
from study.streams import reader_has_left

DEFAULT_STORAGE = "sqlite:///elsa.db"
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PART = re.compile(rf"^({_NUMBER})(?:-({_NUMBER})(?::({_NUMBER}))?)?$")

Main = Callable[[Sequence[str] | None], int]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all others, and that takes lists such as -1,0,2."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        words: list[str] = []
        for word in sys.argv[1:] if args is None else args:
            if words and re.match(r"-\d", word) and re.fullmatch(r"--[a-z-]+", words[-1]):
                words[-1] += f"={word}"
            else:
                words.append(word)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def new_parser(name: str, description: str, examples: str) -> Parser:
    parser = Parser(
        prog=f"elsa {name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        metavar="URL",
        help=f"the shared database (default: $ELSA_STORAGE, else {DEFAULT_STORAGE})",
    )


def storage_url(given: str | None) -> str:
    return given or os.environ.get("ELSA_STORAGE") or DEFAULT_STORAGE


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
    if any(word.startswith("--worker-name") for word in arguments):
        # Nothing is left to clean up, and threads of libraries that outlive the interpreter would abort it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def integers(text: str, flag: str) -> tuple[int, ...]:
    """`0,6-12` or `0-12:2`: a list of numbers and ranges."""
    numbers = _expand(text, flag, default_step=lambda first: 1.0)
    if any(number != int(number) for number in numbers):
        raise UsageError(f"{flag} {text!r}: whole numbers only")
    return tuple(int(number) for number in numbers)


def rates(text: str, flag: str) -> tuple[float, ...]:
    """`1e-5,3e-5` or `1e-5-5e-5` (in steps of the first number) or `1e-5-5e-5:2e-5`."""
    return _expand(text, flag, default_step=lambda first: first)


def seeds(text: str, flag: str) -> tuple[int, ...]:
    """`5` is the seeds 1 to 5; a list or a range is itself."""
    if re.fullmatch(r"\d+", text):
        return tuple(range(1, int(text) + 1))
    return integers(text, flag)


def _expand(text: str, flag: str, default_step: Callable[[float], float]) -> tuple[float, ...]:
    numbers: list[float] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PART.match(part)
        if not match:
            raise UsageError(f"{flag} {text!r}: {part!r} is no number and no range such as 6-12")
        first, last, step = match.groups()
        if last is None:
            numbers.append(float(first))
            continue
        pace = float(step) if step else default_step(float(first))
        if pace <= 0:
            raise UsageError(f"{flag} {text!r}: the step of a range must be positive")
        count = math.floor((float(last) - float(first)) / pace + 1e-9)
        # Twelve digits hide the dust of binary fractions: 3e-05, not 3.0000000000000004e-05.
        numbers += [float(f"{float(first) + i * pace:.12g}") for i in range(count + 1)]
    return tuple(dict.fromkeys(numbers))


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
