"""Killed workers, a restarted database, a second launcher: nothing lost, nothing twice, on any database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from chaos import Trouble, run

SLACK = 3.0
"""Seconds, for a busy machine."""

SMALL = Trouble(
    cells=100, workers=4, kills=2, delay_seconds=0.03, heartbeat_seconds=0.5, grace_seconds=2, seed=1
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_nothing_lost_nothing_twice(kind: str, server_of: Callable[[str], Server], tmp_path: Path) -> None:
    if kind == "sqlite":
        verdict = run(f"sqlite:///{tmp_path}/chaos.db", SMALL, None, kind)
    else:
        server = server_of(kind)

        def restart() -> None:
            server.stop()
            server.start()

        verdict = run(server.new_url(), SMALL, restart, kind)
        assert verdict.restarts == 1
    assert (verdict.complete, verdict.lost, verdict.twice) == (SMALL.cells, 0, 0)
    assert (verdict.junk, verdict.duplicates, verdict.added_by_second_launcher) == (0, 0, 0)
    assert verdict.kills == SMALL.kills
    assert max(verdict.recovery_seconds, default=0) <= verdict.recovery_limit_seconds + SLACK
