"""The `elsa` command: its subcommands are the modules of this package that can be run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from objectives.contract import UsageError
from objectives.errors import did_you_mean
from study.cli.command import run

COMMANDS = {
    "task": "the task file of a shipped task, or of your data",
    "launch": "plan a study, run its cells, end with operating points and a report",
    "work": "run cells of planned studies on this machine",
    "status": "what is finished, running, waiting and failed, and the time left",
    "operating_points": "the fewest layers to tune that keep 90, 95, 99 % of the quality",
    "report": "tables and figures of one or many studies",
    "export": "the fine-tuned model of an operating point",
    "table": "the trial table as CSV",
    "spec": "the spec file that repeats a study",
    "dashboard": "optuna-dashboard on the study's storage",
    "layers": "the parameters of a model, layer by layer",
    "doctor": "try what a study needs on this machine: devices, precisions, disk, database",
    "cache": "the states of frozen layers that this machine keeps, and their removal",
    "simulate": "replay a protocol against a recorded trial table",
}


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("elsa-study")
    except PackageNotFoundError:
        return "unknown (not installed)"


def dispatch(argv: Sequence[str] | None = None) -> int:
    arguments = list(argv or [])
    if arguments[:1] == ["--version"]:
        print(f"elsa {version()}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<17} {what}" for name, what in COMMANDS.items()]
        print("usage: elsa COMMAND ...\n\n" + "\n".join(lines))
        print("\nelsa COMMAND --help explains a command; elsa --version prints the version.")
        print("\nexamples:\n  elsa launch --demo --task mrpc\n  elsa status")
        return 0
    name = arguments[0].replace("-", "_")
    if name not in COMMANDS:
        raise UsageError(f"unknown command {arguments[0]!r}: {did_you_mean(name, COMMANDS)}")
    return import_module(f"study.{name}").main(arguments[1:])


def main() -> None:
    run(dispatch, sys.argv[1:])


if __name__ == "__main__":
    main()
