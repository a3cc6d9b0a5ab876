"""The `export` command: writes the fine-tuned model of a study's operating point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from objectives.contract import UsageError
from study.cli import command, flags
from study.cli.files import check_new_folder
from study.cli.wording import size_text
from study.models.wanted import Wanted
from study.workers.options import Caching, Places

EXAMPLES = """  elsa export reviews-bert-base-grid --out reviews
  elsa export reviews-bert-base-grid --tuned-only --out reviews-delta
  elsa export reviews-bert-base-grid --frozen-layers 9 --out reviews-nine
  elsa export --merge reviews-delta --out reviews"""


def make_parser() -> command.Parser:
    parser = command.new_parser(
        "export",
        "Write the fine-tuned model of a study's operating point, with a model card: the run is trained\n"
        "once more from its recorded seed and its score compared, or taken from the trial that kept it.",
        EXAMPLES,
    )
    parser.add_argument("study", nargs="?", metavar="STUDY", help="the name of a study in the storage")
    command.add_storage(parser)
    parser.add_argument(
        "--out",
        type=command.path_word,
        metavar="DIR",
        required=True,
        help="the model's folder; must not exist yet",
    )
    flags.add_settings(parser, "which run", Wanted)
    parser.add_argument(
        "--tuned-only",
        action="store_true",
        help="only the tuned layers and the head, for a base that many tasks share",
    )
    parser.add_argument(
        "--merge",
        type=command.path_word,
        metavar="DIR",
        help="turn what --tuned-only wrote into a full folder; no study is needed",
    )
    parser.add_argument(
        "--model",
        type=command.path_word,
        metavar="FOLDER",
        help="path of the base model on this machine, if it has moved",
    )
    parser.add_argument(
        "--data",
        type=command.path_word,
        metavar="FOLDER",
        help="path of the data on this machine, if they have moved",
    )
    flags.add_settings(parser, "caches", Caching)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    if bool(arguments.study) == bool(arguments.merge):
        raise UsageError("name a STUDY to export, or with --merge a folder that --tuned-only wrote")
    wanted, out = flags.made(Wanted, arguments), Path(arguments.out)
    check_new_folder(out, "--out")
    if arguments.merge:
        # A folder is one run already: there is nothing to choose.
        without_use = [*flags.given(Wanted, arguments)]
        without_use += [name for name in ("tuned_only", "data", "storage") if getattr(arguments, name)]
        if without_use:
            flag = f"--{without_use[0].replace('_', '-')}"
            raise UsageError(f"--merge turns one folder into another and does not use {flag}: leave it out")
        from study.models.exporting import merge

        paths = merge(arguments.merge, arguments.model, out)
    else:
        places = Places(
            models=(arguments.model,) if arguments.model else (),
            data=(arguments.data,) if arguments.data else (),
            caching=flags.made(Caching, arguments),
        )
        places.check()
        storage = command.existing_storage(arguments.storage)
        # Torch and Transformers take seconds.
        from storage.database import Database
        from study.models.export_study import export

        with Database.open(storage) as database:
            study = database.study(arguments.study)
            paths = export(study, wanted, places, out, tuned_only=arguments.tuned_only, say=print)
    size = sum(path.stat().st_size for path in paths)
    print(f"{out}: {', '.join(path.name for path in paths)}; {size_text(size)}")
    return 0


if __name__ == "__main__":
    command.run(main)
