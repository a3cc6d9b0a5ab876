"""`launch --extend`: more depths, learning rates or seeds for a study that is there.

What is trained how stays as it was, so that old and new trials compare; lists only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from objectives.contract import SpecMismatch, UsageError
from study.spec import StudySpec

LISTS = ("frozen_layers", "learning_rates", "seeds")
PROTOCOLS = ("grid", "low-resource")
"""Those that want every cell of their lists: the others have decided by the lists they had."""


def covers(wide: StudySpec, narrow: StudySpec) -> bool:
    """Whether all cells of the one are cells of the other, trained in the same way."""
    same = replace(narrow, **{name: getattr(wide, name) for name in LISTS})
    return (
        wide.protocol in PROTOCOLS
        and not wide.differences(same)
        and all(set(getattr(narrow, name)) <= set(getattr(wide, name)) for name in LISTS)
    )


def checker(name: str, wanted: StudySpec) -> Callable[[Mapping[str, Any]], None]:
    """`check` for a study's attributes as they are at the moment of writing."""
    return lambda kept: check(name, StudySpec.from_json(kept["spec"]), wanted)


def check(name: str, stored: StudySpec, wanted: StudySpec) -> None:
    """Why the study cannot become what is wanted, as an error."""
    if wanted.protocol not in PROTOCOLS:
        raise UsageError(
            f"--extend: --protocol {wanted.protocol} has planned by the lists it had; begin another --study"
        )
    for field in LISTS:
        missing = [value for value in getattr(stored, field) if value not in getattr(wanted, field)]
        if missing:
            flag = f"--{field.replace('_', '-')}"
            raise UsageError(
                f"--extend only adds: {flag} lacks {', '.join(f'{value:g}' for value in missing)}, "
                f"which {name} has"
            )
    if not covers(wanted, stored):
        same = replace(stored, **{field: getattr(wanted, field) for field in LISTS})
        raise SpecMismatch(
            f"{name} was made from another spec: {'; '.join(same.differences(wanted))} (there -> here); "
            "--extend adds depths, learning rates and seeds, and changes nothing else"
        )
