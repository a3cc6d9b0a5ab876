"""Protocols by name: the built-in ones, and those that installed packages announce."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache

from objectives.contract import Outcome, UsageError
from study.protocols.adaptive import Adaptive
from study.protocols.base import Defaults, Protocol, Subject
from study.protocols.grid import Grid
from study.protocols.low_resource import LowResource
from study.protocols.outcomes import not_final
from study.protocols.paper import Paper
from study.specs.study_spec import StudySpec

__all__ = ["Defaults", "Protocol", "Subject", "explained", "get", "known"]

BUILT_IN: tuple[Protocol, ...] = (Grid(), Paper(), LowResource(), Adaptive())
ENTRY_POINTS = "elsa.protocols"


@cache
def known() -> dict[str, Protocol]:
    """All protocols by name, in the order in which help shows them."""
    from importlib.metadata import entry_points

    announced = [entry.load()() for entry in entry_points(group=ENTRY_POINTS)]
    return {protocol.name: protocol for protocol in (*BUILT_IN, *announced)}


def explained(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    """One line on where a study is, the cells that `launch --settle` added too."""
    told = get(spec.protocol).explain(spec, outcomes)
    if not spec.extra:
        return told
    left = len(not_final(spec.extra_cells, outcomes))
    return f"{told}; {len(spec.extra) - left} of {len(spec.extra)} cells finished that --settle added"


def get(name: str) -> Protocol:
    """The protocol called `name`."""
    found = known().get(name)
    if found is None:
        close = difflib.get_close_matches(name, known(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known())}"
        raise UsageError(f"unknown protocol {name!r}: {hint}")
    return found
