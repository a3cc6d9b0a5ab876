"""The `launch` command: plans the studies that are asked for, has their cells run, ends with the answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from study.cli import command
from study.cli.streams import outliving_their_readers
from study.launching import arguments


def main(argv: Sequence[str] | None = None) -> int:
    # `launch | head` or a lost terminal: the study goes on, and the exit code tells of it alone.
    with outliving_their_readers():
        request = arguments.parse(list(sys.argv[1:] if argv is None else argv))
        from study.launching.request import check_quickly

        # Before Optuna, SQLAlchemy's mappings and Transformers are imported, which takes seconds.
        check_quickly(request)
        from study.launching.running import launch

        return launch(request)


if __name__ == "__main__":
    command.run(main)
