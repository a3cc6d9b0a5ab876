"""Protocols by name: what cells a study still wants, and one line on where it stands.

A protocol is a pure function of the spec and the outcomes so far; it never opens a database, never trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from objectives.contract import Cell, Outcome, UsageError
from study.protocols import adaptive, grid, low_resource, paper
from study.protocols.defaults import Defaults, defaults
from study.spec import PROTOCOLS, StudySpec

__all__ = ["Defaults", "Explain", "Wanted", "defaults", "explain", "get"]

Wanted = Callable[[StudySpec, Sequence[Outcome]], list[Cell]]
"""All cells that should have a trial and have no final outcome yet."""
Explain = Callable[[StudySpec, Sequence[Outcome]], str]

_PROTOCOLS: dict[str, tuple[Wanted, Explain]] = {
    "grid": (grid.wanted, grid.explain),
    "paper": (paper.wanted, paper.explain),
    "low-resource": (low_resource.wanted, low_resource.explain),
    "adaptive": (adaptive.wanted, adaptive.explain),
}


def get(name: str) -> Wanted:
    """The protocol called `name`."""
    return _named(name)[0]


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    """One line on where the study's protocol is."""
    return _named(spec.protocol)[1](spec, outcomes)


def _named(name: str) -> tuple[Wanted, Explain]:
    if name not in _PROTOCOLS:
        raise UsageError(f"unknown protocol {name!r}: choose from {', '.join(PROTOCOLS)}")
    return _PROTOCOLS[name]
