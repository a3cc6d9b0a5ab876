"""Does to a running study what happens to studies, on every database, and counts what was lost.

Everything is real: launchers, workers, kill -9, frozen processes, full disks, database servers. Nothing may
be lost, completed twice or left over; nothing may be taken from a worker that is alive.
"""

# ruff: noqa: E402 - the test servers are found by path

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from chaos_faults import SCENARIOS, Scenario
from chaos_stage import Size, Stage, Verdict, tails
from servers import KINDS, Absent, Server, running

EXAMPLES = """examples:
  python scripts/chaos.py
  python scripts/chaos.py --database sqlite --scenario "writes blocked" --scenario "disk full"
  python scripts/chaos.py --depths 10 --seeds 50 --workers 8 --json chaos.json
"""
DISK_MEGABYTES = {"sqlite": 32, "postgresql": 256, "pgbouncer": 256, "mariadb": 256}
TABLE = "{:<11} {:<31} {:>5} {:>5} {:>5} {:>9} {:>12} {:>7} {:>10} {:>10} {:>7}  {}"
HEADINGS = (
    *("database", "scenario", "cells", "lost", "twice", "left over", "alive reaped", "retried"),
    *("recovery s", "relaunched", "seconds", ""),
)


@contextmanager
def disk(megabytes: int) -> Iterator[Path]:
    """A small file system in memory, which needs the right to mount one."""
    with tempfile.TemporaryDirectory(prefix="elsa-chaos-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "chaos", folder]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            raise Absent("a small disk needs root, to mount one") from None
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


@contextmanager
def stage_for(scenario: Scenario, kind: str, size: Size, server: Server | None) -> Iterator[Stage]:
    """A study's surroundings; a server of its own where the scenario needs a small disk."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elsa-chaos-")))
        place = folder
        if scenario.small_disk:
            place = stack.enter_context(disk(DISK_MEGABYTES[kind]))
            if kind == "sqlite":
                (folder / "disk").symlink_to(place)
            else:
                (place / "server").mkdir()
                (place / "server").chmod(0o777)
                server = stack.enter_context(running(KINDS[kind], folder=place / "server"))
        url = f"sqlite:///{place}/chaos.db" if server is None else server.new_url()
        stage = Stage(url, folder, replace(size, max_retries=scenario.max_retries), server)
        stack.callback(stage.end)
        yield stage


def run(scenario: Scenario, kind: str, size: Size, server: Server | None = None) -> Verdict:
    """One study from its first launch to its last cell, with this fault in between."""
    with stage_for(scenario, kind, size, server) as stage:
        trouble = ""
        try:
            scenario.run(stage)
            stage.finish()
        except Exception as error:
            traceback.print_exc()
            print(tails(stage.folder), file=sys.stderr)
            trouble = f"{type(error).__name__}: {error}"
        return stage.judge(scenario.name, trouble)


def line(verdict: Verdict) -> str:
    recovery = "" if verdict.recovery_seconds is None else f"{verdict.recovery_seconds:.1f}"
    return TABLE.format(
        *(verdict.database, verdict.scenario, verdict.cells, verdict.lost, verdict.twice, verdict.left_over),
        *(verdict.alive_reaped, verdict.retried, recovery, verdict.relaunched, verdict.seconds),
        "good" if verdict.good else f"BAD {verdict.trouble}",
    )


def summary(verdicts: Sequence[Verdict], size: Size) -> str:
    def total(name: str) -> int:
        return sum(getattr(verdict, name) for verdict in verdicts)

    slowest = max((verdict.recovery_seconds or 0.0 for verdict in verdicts), default=0.0)
    return (
        f"{len(verdicts)} runs, {total('cells'):,} cells: {total('lost')} lost, {total('twice')} twice, "
        f"{total('left_over')} left over, {total('alive_reaped')} alive reaped, worst recovery "
        f"{slowest:.1f} s (limit {size.slow_seconds:g} s), {sum(not v.good for v in verdicts)} bad"
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    size = Size(**{each.name: getattr(options, each.name) for each in fields(Size)})
    wanted = [s for s in SCENARIOS if not options.scenario or s.name in options.scenario]
    verdicts: list[Verdict] = []
    print(TABLE.format(*HEADINGS), flush=True)
    for kind in options.database or ["sqlite", *KINDS]:
        with ExitStack() as stack:
            try:
                server = None if kind == "sqlite" else stack.enter_context(running(KINDS[kind]))
                for scenario in [s for s in wanted if kind in s.databases]:
                    try:
                        verdicts.append(run(scenario, kind, size, server))
                        print(line(verdicts[-1]), flush=True)
                    except Absent as absent:
                        print(f"{kind}: {scenario.name}: skipped: {absent}")
            except Absent as absent:
                print(f"{kind}: skipped: {absent}")
    print(summary(verdicts, size))
    if options.json:
        found = [asdict(verdict) | {"good": verdict.good} for verdict in verdicts]
        Path(options.json).write_text(json.dumps(found, indent=1))
    return 0 if all(verdict.good for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--database", choices=("sqlite", *KINDS), action="append", help="default: all")
    parser.add_argument("--scenario", choices=names, action="append", help="default: all")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts to this file")
    for each in fields(Size):
        default = each.default
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(default), default=default)
    return parser


if __name__ == "__main__":
    sys.exit(main())
