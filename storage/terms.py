"""The terms on which all workers share a study: heartbeat, grace period, retries. The study keeps them, and
whoever joins it takes them over; other ones are refused, since a short grace period beside a long heartbeat
would declare working ones dead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any

from objectives.contract import SpecMismatch, UsageError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

BEATS_PER_GRACE = 4
SHORTEST_HEARTBEAT_SECONDS = 0.25
SHORTEST_GRACE_SECONDS = 1.0
"""What the clocks of SQLite and MariaDB resolve: within it, a living worker looks like a dead one."""
LONGEST_RESPONSE_SECONDS = 30.0
SHORTEST_RESPONSE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Of one study, under the names of its attributes. One without them was made with the defaults."""

    heartbeat_seconds: float = 15.0
    grace_seconds: float = 60.0
    """Without a heartbeat for so long, a worker is taken for dead."""
    max_retries: int = 2

    def attributes(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def response_seconds(self) -> float:
        """How long a connection may hang before it is given up: twice that, and a heartbeat still arrives."""
        half = (self.grace_seconds - self.heartbeat_seconds) / 2
        return min(LONGEST_RESPONSE_SECONDS, max(SHORTEST_RESPONSE_SECONDS, half))


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What somebody asked for; None is whatever the study has."""

    heartbeat_seconds: float | None = None
    grace_seconds: float | None = None
    max_retries: int | None = None

    def terms(self) -> Terms:
        """Of a new study: what was not asked for fits what was."""
        usual = Terms()
        heartbeat, grace = self.heartbeat_seconds, self.grace_seconds
        if heartbeat is None:
            heartbeat = min(usual.heartbeat_seconds, (grace or usual.grace_seconds) / BEATS_PER_GRACE)
        if grace is None:
            grace = max(usual.grace_seconds, heartbeat * BEATS_PER_GRACE)
        shortest = SHORTEST_HEARTBEAT_SECONDS, SHORTEST_GRACE_SECONDS
        if not (heartbeat >= shortest[0] and shortest[1] <= grace < inf):
            raise UsageError(
                f"a heartbeat every {heartbeat:g} s with a grace period of {grace:g} s is too short: "
                f"use --heartbeat {shortest[0]:g} and --grace {shortest[1]:g} or more"
            )
        if grace < 2.999 * heartbeat:
            raise UsageError(
                f"a grace period of {grace:g} s is too short for a heartbeat every {heartbeat:g} s: "
                "make it at least three times as long"
            )
        retries = usual.max_retries if self.max_retries is None else self.max_retries
        return Terms(heartbeat_seconds=heartbeat, grace_seconds=grace, max_retries=retries)

    def check(self, terms: Terms, study: str) -> None:
        """Refuse wishes that the study does not fulfil."""
        differing = [
            f"--{field.name.removesuffix('_seconds').replace('_', '-')} {has:g} -> {asked:g}"
            for field in fields(self)
            if (asked := getattr(self, field.name)) is not None
            and asked != (has := getattr(terms, field.name))
        ]
        if differing:
            raise SpecMismatch(
                f"{study} has other terms, which all of its workers share: {'; '.join(differing)} "
                "(there -> here). Leave these flags out, or choose another --study"
            )


def read_terms(connection: Connection, study_id: int) -> Terms:
    # Here, so that help knows the defaults without SQLAlchemy.
    from sqlalchemy import select

    from storage.schema import STUDY_ATTRIBUTES as table

    names = [field.name for field in fields(Terms)]
    found: Mapping[str, Any] = {
        row.key: json.loads(row.value_json)
        for row in connection.execute(
            select(table.c.key, table.c.value_json).where(
                table.c.study_id == study_id, table.c.key.in_(names)
            )
        )
    }
    return Terms(**found)
