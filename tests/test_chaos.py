"""Faults in the middle of real launches: nothing lost, nothing twice, nothing left over, on any database.

`scripts/chaos.py` has all of them on all databases; here are a few on each, small.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from chaos import line, run
from chaos_faults import SCENARIOS
from chaos_stage import Size

SMALL = Size(
    depths=4,
    seeds=8,
    workers=2,
    delay_seconds=0.2,
    heartbeat_seconds=0.5,
    grace_seconds=4,
    limit_seconds=800,
)
SHORT = [
    ("sqlite", "writes blocked"),
    ("postgresql", "frozen in a transaction"),
    ("pgbouncer", "workers killed"),
    ("mariadb", "database restarted"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), SHORT)
def test_a_fault_costs_no_cell(kind: str, name: str, server_of: Callable[[str], Server]) -> None:
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == name]
    assert kind in scenario.databases
    verdict = run(scenario, kind, SMALL, None if kind == "sqlite" else server_of(kind))
    told = line(verdict)
    assert (verdict.lost, verdict.twice, verdict.left_over) == (0, 0, 0), told
    assert (verdict.alive_reaped, verdict.relaunched, verdict.trouble) == (0, 0, ""), told
    if name == "workers killed":
        assert verdict.retried >= 1, told
