"""The `export` command: writes the fine-tuned model of a study's operating point."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from objectives.contract import UsageError
from study.cli import command, flags
from study.workers.options import Caching

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
    parser.add_argument("--out", metavar="DIR", required=True, help="the model's folder; must not exist yet")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--threshold", type=_share, metavar="SHARE", help="of the full quality that is kept (default: 0.9)"
    )
    depth.add_argument("--frozen-layers", type=int, metavar="N", help="this depth, whatever it keeps")
    seed = parser.add_mutually_exclusive_group()
    seed.add_argument("--seed", type=int, metavar="N", help="this seed (default: the one of median score)")
    seed.add_argument("--best", action="store_true", help="the seed with the best score")
    parser.add_argument(
        "--train-size", type=int, metavar="N", help="of a study of several (default: the largest)"
    )
    parser.add_argument(
        "--tuned-only",
        action="store_true",
        help="only the tuned layers and the head, for a base that many tasks share",
    )
    parser.add_argument(
        "--merge", metavar="DIR", help="turn what --tuned-only wrote into a full folder; no study is needed"
    )
    parser.add_argument(
        "--model", metavar="FOLDER", help="where the base model is on this machine, if not where it was"
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="where the data are on this machine, if not where they were"
    )
    flags.add_settings(parser, "caches", Caching)
    return parser


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} must lie above 0 and up to 1: 0.9 is 90 %")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    if bool(arguments.study) == bool(arguments.merge):
        raise UsageError("name a STUDY to export, or with --merge a folder that --tuned-only wrote")
    from study.models.exporting import check_out, merge

    out = Path(arguments.out)
    check_out(out)
    paths = merge(arguments.merge, arguments.model, out) if arguments.merge else _export(arguments, out)
    size = sum(path.stat().st_size for path in paths)
    print(f"{out}: {', '.join(path.name for path in paths)}; {size / 1e6:,.1f} MB")
    return 0


def _export(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from storage.database import Database
    from study.models.choice import Wanted
    from study.models.export_study import export
    from study.workers.jobs import Places

    wanted = Wanted(
        threshold=arguments.threshold,
        frozen_layers=arguments.frozen_layers,
        seed=arguments.seed,
        best=arguments.best,
        train_size=arguments.train_size,
    )
    places = Places(
        models=(arguments.model,) if arguments.model else (),
        data=(arguments.data,) if arguments.data else (),
        caching=Caching(**flags.given(Caching, arguments)),
    )
    database = Database.open(command.storage_url(arguments.storage))
    try:
        study = database.study(arguments.study)
        return export(study, wanted, places, out, tuned_only=arguments.tuned_only, say=print)
    finally:
        database.close()


if __name__ == "__main__":
    command.run(main)
