"""The `simulate` command: replay a protocol against recorded trial tables, with no training."""

from __future__ import annotations

import json
from collections.abc import Sequence

from study import protocols
from study.cli.command import new_parser, run
from study.cli.files import check_file, write_text
from study.cli.flags import add_settings, given, made
from study.protocols.adaptive_settings import AdaptiveSettings
from study.simulation.replaying import Replaying

EXAMPLES = """  elsa simulate trials.csv --protocol adaptive
  elsa simulate trials.csv --workers 8 --repeats 200 --json out.json
  elsa simulate trials.csv --protocol paper --threshold 0.95"""
TOLD = ("protocol", "workers", "repeats", "prefix", "select", "threshold", "confidence", "seed")
"""The settings that the JSON file repeats."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("simulate", __doc__ or "", EXAMPLES)
    parser.add_argument("table", nargs="+", metavar="TABLE.csv", help="trial tables to replay")
    add_settings(
        parser, "the replay", Replaying, description="--threshold and --select hold for every protocol"
    )
    others = [group for group in protocols.own_groups() if group is not AdaptiveSettings]
    add_settings(parser, "settings of other protocols", *others)
    arguments = parser.parse_args(argv)
    asked = made(Replaying, arguments)
    own = protocols.own_settings(asked.protocol, lambda group: given(group, arguments), vars(asked))
    if asked.json:
        check_file(asked.json, "--json")

    from study.simulation.pairs import simulate, text, to_json
    from study.trials.trial_table import load

    pairs = simulate(load(arguments.table), asked, own)
    print(text(pairs, asked))
    if asked.json:
        settings = {name: getattr(asked, name) for name in TOLD}
        write_text(asked.json, json.dumps(to_json(pairs) | {"settings": settings}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run(main)
