"""The `work` command: runs the trials of planned studies on this machine, by the specs in the database."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from objectives.fitting import Fitting
from study.cli import command, flags
from study.cli.streams import outliving_their_readers
from study.workers.jobs import load_jobs
from study.workers.options import Answering, Caching, Keeping, Places, Working

EXAMPLES = """  elsa work mrpc-bert-base-grid --storage postgresql://elsa@db/elsa
  elsa work reviews-my-model-grid --model ./my-model --workers 4
  elsa work mrpc-bert-base-grid --storage-file ~/.elsa-storage"""


def make_parser() -> command.Parser:
    parser = command.new_parser(
        "work",
        "Run the trials of studies that were planned with `elsa launch`, together with all other workers on\n"
        "the same storage. The spec is read from the database; a model or data folder that lies elsewhere\n"
        "on this machine is named here and must have the study's fingerprint.",
        EXAMPLES,
    )
    parser.add_argument("study", nargs="+", metavar="STUDY", help="names of studies in the storage")
    command.add_storage(parser)
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        type=command.path_word,
        metavar="FOLDER",
        help="where a study's model is on this machine",
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        type=command.path_word,
        metavar="FOLDER",
        help="where a study's data are on this machine",
    )
    parser.add_argument(
        command.EVENTS,
        metavar="NAME",
        help="be one worker of this name and write its events to standard output as JSON lines; "
        "launch and work start their workers in this way",
    )
    flags.add_settings(parser, "running it", Working, Caching, Fitting, Keeping)
    flags.add_settings(parser, "recorded studies", Answering)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = make_parser().parse_args(given)
    working = flags.made(Working, arguments)
    places = Places.of(
        lambda group: flags.given(group, arguments), models=tuple(arguments.model), data=tuple(arguments.data)
    )
    places.fitting.check_shard(working.processes_per_trial)
    places.check()
    storage = command.storage_url(arguments.storage)
    studies = tuple(dict.fromkeys(arguments.study))
    if arguments.events:
        from study.workers import process

        assignment = process.Assignment(
            studies=studies, storage=storage, worker=arguments.events, working=working, places=places
        )
        return process.main(assignment, given)
    with outliving_their_readers():
        return _supervise(studies, storage, working, places)


def _supervise(studies: Sequence[str], storage: str, working: Working, places: Places) -> int:
    from storage.database import Database
    from study.launching import here
    from study.launching.memory import stored_needs
    from study.workers.packing import packed
    from study.workers.process import PATIENCE_SECONDS

    here.shares(working)
    # A job of a cluster may start while the database restarts.
    with Database.open(storage, patience_seconds=PATIENCE_SECONDS) as database:
        jobs = load_jobs(database, studies, places)
        found = [job.study for job in jobs]
        shares = here.shares(packed(working, lambda: stored_needs(found, working, places)))
        return here.run_workers(found, shares, working, places, storage)


if __name__ == "__main__":
    command.run(main)
