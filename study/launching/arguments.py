"""The command line of `launch`: a parser made of the declared settings, and what was asked for.

Nothing heavy is imported, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectives.contract import Recipe, UsageError
from objectives.fitting import Fitting
from objectives.locations import is_hub
from objectives.settings import shortened
from study import protocols
from study.cli import command, flags
from study.launching import quick
from study.launching.inputs import Inputs, Launching, Leasing
from study.specs.study_spec import StudySpec
from study.workers.options import Answering, Caching, Keeping, Places, Working
from study.workers.slurm_settings import Slurm

EXAMPLES = """  elsa launch --demo --task mrpc
  elsa launch --data reviews.csv --quick
  elsa launch --data reviews.csv --label stars --model ./my-model --dry-run
  elsa launch --task mrpc --model roberta-base --seeds 5
  elsa launch --task all --model bert-base,roberta-base --protocol paper
  elsa launch --task rte --protocol adaptive --workers 4
  elsa launch --task mrpc --storage postgresql://db/elsa --slurm"""


GROUPS = (Inputs, StudySpec, Recipe, Launching, Working, Leasing, Slurm, *Places.GROUPS.values())
"""Every group of settings but the protocols' own."""
DEFINITION = "definition"
"""The table of a spec file that is the task itself, as a task file has it."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What one launch was asked for."""

    inputs: Inputs = field(default_factory=Inputs)
    grid: dict[str, Any] = field(default_factory=dict)
    """The fields of the spec that were given: protocol and lists."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """The fields of the recipe that were given."""
    protocol_settings: dict[str, Any] = field(default_factory=dict)
    launching: Launching = field(default_factory=Launching)
    leasing: Leasing = field(default_factory=Leasing)
    working: Working = field(default_factory=Working)
    places: Places = field(default_factory=Places)
    """Workers here find model and data where the launcher found them: the specs say it."""
    slurm: Slurm = field(default_factory=Slurm)

    @property
    def protocol(self) -> protocols.Protocol:
        return protocols.get(self.grid["protocol"])

    @property
    def storage(self) -> str:
        return command.storage_url(self.inputs.storage)


def make_parser(*, full: bool = True) -> command.Parser:
    """With `full`, help shows every flag."""
    parser = command.new_parser(
        "launch",
        "Plan a study of freeze depths, fine-tune every cell, and end with operating\npoints and a report.\n"
        "Run it again to resume; run it elsewhere on the same storage to join.",
        EXAMPLES,
    )
    parser.usage = "elsa launch [FLAGS]"
    described = "\n".join(f"  {name:<13} {p.summary}" for name, p in protocols.known().items())
    flags.add_settings(parser, "what is studied", Inputs, full=full)
    command.add_storage_file(parser, shown=full)
    parser.add_argument(
        "--spec", metavar="FILE", help="a TOML file with a key for every flag; flags on the command line win"
    )
    flags.add_settings(
        parser,
        "the grid (lists and ranges: 0,6-12)",
        StudySpec,
        *protocols.own_groups(),
        description=f"protocols:\n{described}",
        full=full,
        default_texts=protocols.default_texts(),
    )
    flags.add_settings(
        parser,
        "how a trial trains",
        Recipe,
        description="defaults of the grid; --dry-run shows those of other protocols",
        full=full,
    )
    running = (Launching, Working, Caching, Fitting, Keeping, Leasing)
    flags.add_settings(parser, "running it", *running, full=full)
    flags.add_settings(parser, "on a Slurm cluster", Slurm, full=full)
    flags.add_settings(parser, "recorded studies", Answering, full=full)
    return parser


def parse(argv: Sequence[str]) -> LaunchRequest:
    """What the command line and its spec file ask for, with every value within its declared bounds."""
    if any(word in ("-h", "--help") for word in argv):
        make_parser(full=False).print_help()
        print("\nelsa launch --help-all shows every flag.")
        sys.exit(0)
    arguments = make_parser().parse_args(argv)
    file = read_file(arguments.spec) if arguments.spec else {}
    return _request(lambda group: flags.given(group, arguments, file), file.get(DEFINITION))


def from_values(values: Mapping[str, Any]) -> LaunchRequest:
    """What values by name ask for, as those of a spec file."""
    found = _checked(values)
    return _request(lambda group: flags.given(group, argparse.Namespace(), found), found.get(DEFINITION))


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Typed settings by name, and the task's definition as it is."""
    plain = {name: value for name, value in values.items() if name != DEFINITION}
    found = flags.from_file(plain, *GROUPS, *protocols.own_groups())
    return found | ({DEFINITION: values[DEFINITION]} if DEFINITION in values else {})


def _request(given: Callable[[type], dict[str, Any]], definition: Any = None) -> LaunchRequest:
    if definition is not None and not isinstance(definition, Mapping):
        raise UsageError(f"{DEFINITION} is {shortened(definition)}: use a table, as in a task file")
    grid = given(StudySpec)
    inputs = Inputs(**given(Inputs), definition=definition)
    grid.setdefault("protocol", quick.PROTOCOL if inputs.quick else protocols.Grid.name)
    request = LaunchRequest(
        inputs=inputs,
        grid=grid,
        recipe=given(Recipe),
        protocol_settings=protocols.own_settings(grid["protocol"], given),
        launching=Launching(**given(Launching)),
        leasing=Leasing(**given(Leasing)),
        working=Working(**given(Working)),
        places=Places.of(given),
        slurm=Slurm(**given(Slurm)),
    )
    if request.launching.extend and request.working.join_only:
        raise UsageError("--extend plans and --join-only never does: leave one of them out")
    request.places.fitting.check_shard(
        request.working.processes_per_trial,
        compiled=request.recipe.get("compile", False),
        precision=request.recipe.get("mixed_precision"),
    )
    if request.launching.settle and (request.launching.extend or request.working.join_only):
        raise UsageError("--settle adds cells of its own: leave out --extend and --join-only")
    return request


def read_file(path: str) -> dict[str, Any]:
    """A spec file: TOML with a key for every flag, `frozen_layers` for --frozen-layers."""
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"--spec {path}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"--spec {path}: its values are nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--spec {path}: {error}") from None
    try:
        found = _checked(values)
    except UsageError as error:
        raise UsageError(f"--spec {path}: {error}") from None
    return found | _data_beside(path, found.get("data"))


def _data_beside(path: str, data: str | None) -> dict[str, str]:
    """Data that are beside the spec file and not in the working folder."""
    if data is None or is_hub(data) or Path(data).exists():
        return {}
    beside = Path(path).resolve().parent / data
    if not beside.exists():
        return {}
    command.note(f"--spec {path}: data {data} are not in the working folder; {beside} is read")
    return {"data": str(beside)}
