"""The `doctor` command: tries what a study needs on this machine, and says what to do where it fails."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from study.cli import flags
from study.cli.command import add_storage, new_parser, run, storage_url
from study.cli.files import check_file, write_text
from study.workers.options import Caching

EXAMPLES = """  elsa doctor
  elsa doctor --storage postgresql://elsa@db/elsa --cache-dir /scratch/elsa
  elsa doctor --json doctor.json"""


def make_parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "doctor",
        "Try what a study needs on this machine, in about a minute: versions, devices, a tiny trial on each\n"
        "device in each precision, cached against live frozen layers, two processes together, the disk of\n"
        "the cache folder, and a database. No network and no model is needed. Each line is ok, slow or\n"
        "failed, with what to do; the exit code is 1 where something failed. Add it to a bug report.",
        EXAMPLES,
    )
    add_storage(parser)
    flags.add_settings(parser, "where", Caching, only=("cache_dir",))
    parser.add_argument("--json", metavar="FILE", help="write the findings there as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    if arguments.json:
        check_file(arguments.json, "--json")
    from study.diagnosis.asking import asker
    from study.diagnosis.checks import run as run_checks
    from study.diagnosis.described import this_machine
    from study.diagnosis.finding import exit_code, summary, to_json

    os.environ["HF_HUB_OFFLINE"] = "1"
    cache = Path(flags.made(Caching, arguments).cache_dir).expanduser()
    findings, ask = [], asker()
    for finding in run_checks(this_machine(), ask, cache, storage_url(arguments.storage)):
        print(finding, flush=True)
        findings.append(finding)
    print(summary(findings))
    if arguments.json:
        write_text(arguments.json, to_json(findings))
    return exit_code(findings)


if __name__ == "__main__":
    run(main)
