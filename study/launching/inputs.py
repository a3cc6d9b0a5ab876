"""The settings of `launch` itself: what is studied, how a launch begins and ends, the terms of leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from objectives import settings
from objectives.contract import UsageError
from objectives.errors import masked
from objectives.paths import path_text
from objectives.settings import setting
from objectives.tasks.definition import shipped
from objectives.tasks.metrics import METRICS
from storage.terms import Terms
from study.cli import lists
from study.cli.command import DEFAULT_STORAGE

LONGEST_NAME = 200
DEFAULT_MODEL = "bert-base"


def study_name(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"use 1 to {LONGEST_NAME} printable characters")
    if masked(text) != text:
        raise ValueError("that looks like an address with a password: give it to --storage")
    if text.startswith("-"):
        raise ValueError("a name that begins with - would be read as a flag: begin it with another character")
    return text


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is studied, and where it is kept."""

    task: tuple[str, ...] = setting(
        (),
        metavar="NAME|FILE.toml",
        help=f"a shipped task ({', '.join(shipped())}), several separated by commas, or all; a task file; "
        "or any new name for --data",
        default_text="the name of the data",
        read=lists.names,
        everyday=True,
    )
    model: tuple[str, ...] = setting(
        (),
        metavar="NAME",
        help="hub name, folder, or bert-base, bert-large, roberta-base, roberta-large; or several of them",
        default_text=DEFAULT_MODEL,
        read=lists.names,
        repeat=True,
        everyday=True,
    )
    data: str | None = setting(
        None,
        metavar="FILE|FOLDER|hub:NAME",
        help="a file, a folder with train, validation and test files, or a data set of the hub, as "
        "hub:OWNER/NAME, hub:OWNER/NAME/CONFIG or hub:NAME/CONFIG",
        default_text="the shipped task's, from the hub",
        read=path_text,
        everyday=True,
    )
    text: tuple[str, ...] = setting(
        (),
        metavar="COLUMN[,COLUMN]",
        help="the one or two columns of text in your data",
        default_text="inferred and printed",
        read=lists.names,
        everyday=True,
    )
    label: tuple[str, ...] = setting(
        (),
        metavar="COLUMN",
        help="the column of labels, or several columns of 0 and 1",
        default_text="inferred and printed",
        read=lists.names,
        everyday=True,
    )
    kind: Literal["classes", "multi-label", "regression"] | None = setting(
        None,
        help="one class per example, any number of labels, or a number",
        default_text="inferred and printed",
        everyday=True,
    )
    metric: tuple[str, ...] = setting(
        (),
        metavar="NAME,...",
        help=f"metrics; the first one is the score: {', '.join(METRICS)}",
        default_text="the task's",
        read=lists.names,
        everyday=True,
    )
    demo: bool = setting(
        False, help="use the built-in tiny model and generated data; no network needed", everyday=True
    )
    quick: bool = setting(
        False,
        help="a first look in minutes: few depths, one rate found with nothing frozen, two seeds, at most "
        "1,000 training examples; the report is marked QUICK",
        everyday=True,
    )
    study: str | None = setting(
        None,
        metavar="NAME",
        help="the study's name",
        default_text="TASK-MODEL-PROTOCOL",
        read=study_name,
        everyday=True,
    )
    storage: str | None = setting(
        None,
        metavar="URL",
        help="the shared database",
        default_text=DEFAULT_STORAGE,
        env="ELSA_STORAGE",
        everyday=True,
    )
    recorded: str | None = setting(
        None,
        metavar="TABLE.csv",
        help="replay results from a trial table instead of training",
        read=path_text,
    )
    definition: Mapping[str, Any] | None = None
    """The task itself, from a spec file's table of that name."""

    def __post_init__(self) -> None:
        settings.check(self)
        if self.demo and (self.model or self.data):
            raise UsageError("--demo brings its own model and data: leave out --model and --data")


@dataclass(frozen=True, kw_only=True)
class Launching:
    """What a launch does before and after the workers run."""

    dry_run: bool = setting(
        False, help="print the cells, the training steps and the time they take; write nothing", everyday=True
    )
    out: str = setting("report", metavar="DIR", help="folder for the report", read=path_text, everyday=True)
    extend: bool = setting(
        False, help="add the depths, rates and seeds that an existing study lacks", everyday=True
    )
    settle: bool = setting(
        False, help="add only the runs needed to make an existing study's answer reliable", everyday=True
    )
    retry_failed: bool = setting(False, help="run failed cells again", everyday=True)
    accept_failed: bool = setting(False, help="exit with 0 although some cells have no result")
    memory_limit: int | None = setting(
        None,
        metavar="SIZE",
        help="refuse depths that need more memory in a process than this, such as 16G; --dry-run shows what "
        "each needs",
        default_text="the GPU's, shared by --workers-per-gpu; none on a CPU",
        read=lists.size_in_bytes,
        above=0,
    )


@dataclass(frozen=True, kw_only=True)
class Leasing(settings.Checked):
    """On which terms workers share a study; they stay with the study, and joining workers take them over."""

    heartbeat: float | None = setting(
        None,
        metavar="SECONDS",
        help="time between two heartbeats of a worker",
        default_text=f"{Terms.heartbeat_seconds:g}",
        least=0.25,
        most=86_400,
    )
    grace: float | None = setting(
        None,
        metavar="SECONDS",
        help="mark a worker's trial as lost after this many seconds without a heartbeat",
        default_text=f"{Terms.grace_seconds:g}",
        least=1,
        most=604_800,
    )
    max_retries: int | None = setting(
        None,
        metavar="N",
        help="how often a trial that failed or was lost is tried again",
        default_text=str(Terms.max_retries),
        least=0,
        most=1000,
    )
