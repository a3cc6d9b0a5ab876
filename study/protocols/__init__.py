"""Protocols by name: the built-in ones, and those that installed packages announce."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

from objectives.contract import Outcome, UsageError
from objectives.errors import did_you_mean
from objectives.settings import declared
from study.protocols.adaptive import Adaptive
from study.protocols.base import USUAL, Defaults, Protocol, Subject
from study.protocols.grid import Grid
from study.protocols.low_resource import BLOG_SIZES, LowResource
from study.protocols.outcomes import not_final
from study.protocols.paper import Paper
from study.specs.study_spec import StudySpec

__all__ = ["Adaptive", "Defaults", "Grid", "Paper", "Protocol", "Subject"]

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
        raise UsageError(f"unknown protocol {name!r}: {did_you_mean(name, known())}")
    return found


def default_texts() -> dict[str, str]:
    """What is run where a list is not given, for help."""
    few = f"{LowResource.name}: {BLOG_SIZES[0]} to {BLOG_SIZES[-1]}"
    return {"protocol": Grid.name, **USUAL, "train_sizes": f"all; {few}"}


def own_groups() -> list[type]:
    """The groups of settings that only some protocols have."""
    return list(dict.fromkeys(protocol.settings for protocol in known().values()))


def own_settings(
    name: str, given: Callable[[type], dict[str, Any]], common: Collection[str] = ()
) -> dict[str, Any]:
    """What was given of a protocol's own settings.

    Those of other protocols are refused, but for the `common` ones, which a command has for all of them.
    """
    chosen = get(name)
    own = {item.name for item in declared(chosen.settings)} | set(common)
    for other in known().values():
        for setting, value in given(other.settings).items():
            if setting not in own:
                flag = f"--{setting.replace('_', '-')}"
                raise UsageError(f"{flag} {value} is a setting of --protocol {other.name}, not of {name}")
    return given(chosen.settings)
