"""The `simulate` command: replay a protocol against recorded trial tables, with no training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.cli.command import new_parser, run
from study.cli.numbers import above, whole
from study.reporting.files import check_file, write_text

if TYPE_CHECKING:
    from study.simulation.pairs import Pair

EXAMPLES = """  elsa simulate trials.csv --protocol adaptive
  elsa simulate trials.csv --workers 8 --repeats 200 --json out.json
  elsa simulate trials.csv --protocol paper --threshold 0.95"""
PROTOCOLS = ("adaptive", "grid", "paper")
MOST_REPEATS = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("simulate", __doc__ or "", EXAMPLES)
    parser.add_argument("table", nargs="+", metavar="TABLE.csv", help="trial tables to replay")
    parser.add_argument("--protocol", default="adaptive", help="adaptive, grid or paper (adaptive)")
    parser.add_argument(
        "--workers", type=whole(1, 4096), default=1, metavar="K", help="cells that run at once (1)"
    )
    parser.add_argument(
        "--repeats",
        type=whole(1, MOST_REPEATS),
        default=50,
        metavar="R",
        help="resampled studies per pair (50)",
    )
    parser.add_argument("--prefix", default="cached", choices=("cached", "live"), help="(cached)")
    parser.add_argument(
        "--select",
        default="per-depth",
        choices=("per-depth", "full-model"),
        help="learning rates, as launch and the analysis choose them (per-depth)",
    )
    parser.add_argument("--threshold", type=above(0, 1), default=0.9, help="share of the full quality (0.9)")
    parser.add_argument("--confidence", type=above(0, 1), default=0.9, help="where adaptive stops (0.9)")
    parser.add_argument("--seed", type=whole(0, 2**32 - 1), default=0, help="of the resampling (0)")
    parser.add_argument("--json", metavar="OUT", help="write the figures there")
    arguments = parser.parse_args(argv)
    _check(arguments)

    from study.simulation.pairs import simulate, text, to_json
    from study.trials.trial_table import load

    names = ("protocol", "workers", "repeats", "prefix", "select", "threshold", "confidence", "seed")
    settings = {name: getattr(arguments, name) for name in names}
    pairs: list[Pair] = simulate(load(arguments.table), **settings)
    print(text(pairs, arguments.protocol, arguments.prefix, arguments.workers))
    if arguments.json:
        write_text(arguments.json, json.dumps(to_json(pairs) | {"settings": settings}, indent=2) + "\n")
    return 0


def _check(arguments: Any) -> None:
    if arguments.protocol not in PROTOCOLS:
        raise UsageError(f"--protocol {arguments.protocol!r} cannot be replayed: use {', '.join(PROTOCOLS)}")
    if arguments.json:
        check_file(arguments.json, "--json")


if __name__ == "__main__":
    run(main)
