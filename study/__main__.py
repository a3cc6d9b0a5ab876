"""The `elsa` command: its subcommands are the modules of this package that can be run."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from objectives.contract import UsageError
from study.command import run

COMMANDS = {
    "launch": "plan a study, run its cells, end with operating points and a report",
    "status": "what is done, running, waiting and failed, and the time left",
    "table": "the trial table as CSV",
    "operating_points": "the fewest layers to tune that keep 90, 95, 99 % of the quality",
    "report": "tables and figures of one or many studies",
    "dashboard": "optuna-dashboard on the study's storage",
    "layers": "the parameters of a model, layer by layer",
    "simulate": "replay a protocol against a recorded trial table",
}


def dispatch(argv: Sequence[str] | None = None) -> int:
    arguments = list(argv or [])
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<17} {what}" for name, what in COMMANDS.items()]
        print("usage: elsa COMMAND ...\n\n" + "\n".join(lines) + "\n\nelsa COMMAND --help tells more.")
        print("\nexamples:\n  elsa launch --demo --task mrpc\n  elsa status")
        return 0
    name = arguments[0].replace("-", "_")
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command {arguments[0]!r}: {hint}")
    return import_module(f"study.{name}").main(arguments[1:])


def main() -> None:
    run(dispatch, sys.argv[1:])


if __name__ == "__main__":
    main()
