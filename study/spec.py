"""The `spec` command: prints the spec file that repeats a study."""

from __future__ import annotations

from collections.abc import Sequence

from study.cli import command

EXAMPLES = """  elsa spec reviews-bert-base-grid > study.toml
  elsa launch --spec study.toml --seeds 5 --study reviews-five-seeds"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.new_parser(
        "spec", "Print a study's spec as a TOML file, which `elsa launch --spec FILE` takes.", EXAMPLES
    )
    parser.add_argument("study", metavar="STUDY", help="the name of a study in the storage")
    command.add_storage(parser)
    arguments = parser.parse_args(argv)
    from storage.database import Database
    from study.specs.spec_file import to_toml
    from study.workers.jobs import stored_spec

    with Database.open(command.storage_url(arguments.storage)) as database:
        print(to_toml(arguments.study, stored_spec(database.study(arguments.study))), end="")
    return 0


if __name__ == "__main__":
    command.run(main)
