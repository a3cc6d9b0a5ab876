"""The `task` command: prints the task file of a shipped task, or the one that data suggest."""

from __future__ import annotations

from collections.abc import Sequence

from study.cli import command, flags
from study.launching.inputs import Inputs

EXAMPLES = """  elsa task mrpc
  elsa task --data reviews.csv > reviews.toml
  elsa task --data hub:fancyzhx/ag_news --metric macro_f1,accuracy
  elsa launch --task reviews.toml --model bert-base"""
USED = ("data", "text", "label", "kind", "metric")


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.new_parser(
        "task",
        "Print a task as a TOML file, to edit and keep: the task inferred from --data, or a built-in task.\n"
        "`elsa launch --task FILE` studies it.",
        EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a shipped task, or a name for the data's")
    flags.add_settings(parser, "the data", Inputs, only=USED)
    arguments = parser.parse_args(argv)
    given = flags.given(Inputs, arguments)
    inputs = Inputs(**given, task=(arguments.name,) if arguments.name else ())
    from objectives.contract import UsageError
    from objectives.tasks.task_file import to_toml
    from study.launching.asked_tasks import asked_data, check_names, known_task

    if not arguments.name and not inputs.data:
        raise UsageError("nothing to describe: name a shipped task, or data with --data")
    check_names(inputs)
    known = known_task(arguments.name, inputs) if arguments.name else None
    if known is not None and inputs.data is None:
        print(to_toml(known), end="")
        return 0
    (data,) = asked_data(inputs)
    for remark in data.remarks:
        command.note(remark)
    print(to_toml(data.task), end="")
    return 0


if __name__ == "__main__":
    command.run(main)
