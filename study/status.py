"""The `status` command: how the studies of a storage stand, read from any machine; it changes nothing."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from objectives.settings import setting
from study.cli import command, flags

if TYPE_CHECKING:
    from storage.database import Database
    from study.progress.standing import Standing

EXAMPLES = """  elsa status
  elsa status --storage postgresql://db/elsa --watch
  elsa status mrpc-bert-base-grid --json"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    looking = flags.made(Looking, arguments)
    from storage.database import Database

    with Database.open(command.storage_url(arguments.storage)) as database:
        if looking.watch is None:
            print(_text(database, arguments.study, as_json=looking.json))
            return 0
        return _watch(database, arguments.study, as_json=looking.json, every=looking.watch)


def _parser() -> argparse.ArgumentParser:
    parser = command.new_parser(
        "status", "What is done, running, waiting and failed in each study, and the time left.", EXAMPLES
    )
    parser.add_argument("study", nargs="*", metavar="STUDY", help="names (default: all of the storage)")
    command.add_storage(parser)
    flags.add_settings(parser, "how", Looking)
    return parser


@dataclass(frozen=True, kw_only=True)
class Looking:
    watch: float | None = setting(
        None,
        metavar="SECONDS",
        help="refresh every SECONDS (2 without a number)",
        least=0.1,
        most=86_400,
        bare="2",
    )
    json: bool = setting(False, help="print JSON; with --watch one line per refresh")


def standings(database: Database, names: Sequence[str]) -> list[Standing]:
    """How the named studies stand, or all of them."""
    from study.progress.standing import read_standing

    return [read_standing(database.study(name)) for name in names or database.study_names()]


def _text(database: Database, names: Sequence[str], *, as_json: bool, indent: int | None = 2) -> str:
    found = standings(database, names)
    if as_json:
        return json.dumps([standing.to_dict() for standing in found], indent=indent)
    width = shutil.get_terminal_size().columns
    if not found:
        return f"{database.display_url} holds no studies yet"
    return f"{database.display_url}\n\n" + "\n\n".join(standing.render(width) for standing in found)


def _watch(database: Database, names: Sequence[str], *, as_json: bool, every: float) -> int:
    from study.workers.interrupts import Interrupts, Stopped

    clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() and not as_json else ""
    try:
        with Interrupts(database.hurry) as interrupts:
            while True:
                with interrupts.allowed():
                    text = _text(database, names, as_json=as_json, indent=None)
                    heading = "" if as_json else f"{datetime.now():%Y-%m-%d %H:%M:%S}  "
                    sys.stdout.write(f"{clear}{heading}{text}\n" + ("" if clear or as_json else "\n"))
                    sys.stdout.flush()
                    time.sleep(every)
    except Stopped as stopped:
        return 0 if stopped.signum == signal.SIGINT else 128 + stopped.signum


if __name__ == "__main__":
    command.run(main)
