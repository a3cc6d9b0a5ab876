"""The `cache` command: the states of frozen layers that this machine keeps, and how to be rid of them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from objectives import settings
from objectives.errors import UsageError
from objectives.prefix.contents import Content, contents, remove
from objectives.settings import setting
from study.cli.command import duration, new_parser, note, run
from study.cli.flags import add_settings, made
from study.cli.wording import columns, size_text
from study.workers.options import Caching

EXAMPLES = """  elsa cache
  elsa cache --remove mrpc-bert-base-grid
  elsa cache --finished
  elsa cache --unused-for 30"""
_DAY = 86_400


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    removal = made(Removal, arguments)
    folder = Path(made(Caching, arguments).cache_dir).expanduser()
    found = contents(folder)
    if not removal:
        print(json.dumps(list(map(_facts, found)), indent=2) if arguments.json else render(folder, found))
        return 0
    if arguments.json:
        raise UsageError("--json lists the cache: leave it out to remove something")
    chosen = _chosen(found, removal)
    freed, kept = remove(folder, chosen)
    print(f"removed {_entries(len(chosen) - len(kept))} from {folder}: {size_text(freed)} freed")
    for one in kept:
        note(f"{_named(one)} is in use by a worker and was kept: stop the worker, or try again later")
    return 1 if kept else 0


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "cache",
        "List the states of frozen layers that this machine keeps on disk, or remove some of them. "
        "What a study still needs is computed again.",
        EXAMPLES,
    )
    add_settings(parser, "what is removed", Removal)
    parser.add_argument("--json", action="store_true", help="print the list for programs")
    add_settings(parser, "place", Caching, only=["cache_dir"])
    return parser


@dataclass(frozen=True, kw_only=True)
class Removal(settings.Checked):
    alone = (("remove", "finished", "unused_for"),)

    remove: str | None = setting(
        None, metavar="STUDY", help="remove the states of this study that no unfinished study shares"
    )
    finished: bool = setting(False, help="remove the states that no unfinished study uses")
    unused_for: int | None = setting(
        None,
        metavar="DAYS",
        help="remove the states that no trial has read for so many days; 0 for all that are not in use now",
        least=0,
        most=36_500,
    )

    def __bool__(self) -> bool:
        return self != Removal()


def _chosen(found: Sequence[Content], removal: Removal) -> list[Content]:
    if removal.finished:
        return [one for one in found if one.finished]
    if removal.unused_for is not None:
        latest = time.time() - removal.unused_for * _DAY
        return [one for one in found if one.last_use <= latest]
    own = [one for one in found if removal.remove in one.studies]
    if not own:
        known = sorted({study for one in found for study in one.studies})
        held = f"it holds states of {', '.join(known)}" if known else "it is empty"
        raise UsageError(f"--remove {removal.remove!r}: the cache holds nothing of this study; {held}")
    shared = [one for one in own if not one.finished and len(one.studies) > 1]
    for one in shared:
        note(f"{_named(one)} was kept: {', '.join(s for s in one.studies if s != removal.remove)} uses it")
    return [one for one in own if one not in shared]


def render(folder: Path, found: Sequence[Content]) -> str:
    """A line per entry, and the sum."""
    total = f"{_entries(len(found))}, {size_text(sum(one.bytes for one in found))} in {folder}"
    if not found:
        return total
    head = ("study", "model", "task", "frozen_layers", "size", "last used", "")
    return "\n".join([*columns([head, *map(_row, found)], right=(3, 4)), "", total])


def _row(one: Content) -> tuple[str, ...]:
    facts = [sorted({getattr(owner, name) for owner in one.owners}) for name in ("model", "data")]
    remarks: list[str] = [one.state] if one.state != "whole" else []
    remarks += ["in use"] if one.in_use else ["study finished"] if one.finished and one.studies else []
    return (
        ", ".join(one.studies) or "-",
        *(", ".join(filter(None, values)) or "-" for values in facts),
        "?" if one.frozen_layers is None else str(one.frozen_layers),
        size_text(one.bytes),
        f"{duration(max(0.0, time.time() - one.last_use))} ago",
        ", ".join(remarks),
    )


def _facts(one: Content) -> dict[str, object]:
    return {**asdict(one), "studies": one.studies}


def _named(one: Content) -> str:
    return f"frozen_layers={one.frozen_layers} of {', '.join(one.studies) or 'no study'}"


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


if __name__ == "__main__":
    run(main)
