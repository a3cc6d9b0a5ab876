"""`launch --extend`: more depths, learning rates or seeds for an existing study.

How trials are trained stays as it was, so that old and new ones compare; lists only grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from objectives.contract import SpecMismatch, UsageError
from study.specs.study_spec import StudySpec


def check(name: str, stored: StudySpec, wanted: StudySpec, lists: Sequence[str]) -> None:
    """Raise an error unless the stored study can become the wanted one; `lists` are those that may grow."""
    if not lists:
        raise UsageError(
            f"--extend: --protocol {wanted.protocol} has chosen its cells by the lists that it had; "
            "start another --study"
        )
    for field in lists:
        missing = [value for value in getattr(stored, field) if value not in getattr(wanted, field)]
        if missing:
            flag = f"--{field.replace('_', '-')}"
            raise UsageError(
                f"--extend only adds: {flag} lacks {', '.join(f'{value:g}' for value in missing)}, "
                f"which {name} has"
            )
    grown = replace(stored, **{field: getattr(wanted, field) for field in lists})
    if differences := grown.differences(wanted):
        raise SpecMismatch(
            f"{name} was made from another spec: {'; '.join(differences)} (there -> here); "
            f"--extend adds to {', '.join(lists)} and changes nothing else"
        )
