"""The command that joins studies from another machine, for the dashboard's note and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from objectives.locations import is_path
from study.cli.flags import command_line
from study.workers.jobs import stored_spec

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def join_command(studies: Sequence[StoredStudy]) -> str:
    """`elsa work` with the studies' names, their storage, and where a local model and data were.

    The storage is shown without its password.
    """
    specs = [stored_spec(study) for study in studies]
    storage = studies[0].database.display_url
    words = ["elsa", "work", *(study.name for study in studies), "--storage", storage]
    local = [spec for spec in specs if not spec.demo]
    for path in dict.fromkeys(spec.model_path for spec in local if is_path(spec.model_path)):
        words += ["--model", path]
    for path in dict.fromkeys(spec.data for spec in local if is_path(spec.data)):
        words += ["--data", path]
    return command_line(words)
