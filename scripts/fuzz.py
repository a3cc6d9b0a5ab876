"""Feeds hostile input to the command line, spec files and readers for as long as asked, and counts defects.

    python scripts/fuzz.py --minutes 60

An input must be taken or refused in one line; a traceback or a longer answer is a defect, printed with
the input that caused it. The strategies are those of tests/hostile.py. Exit code 1 where there was a defect.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

ROUND = 400
"""Inputs between two looks at the clock."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the first round (default: 0)")
    arguments = parser.parse_args()
    import hostile

    tried: dict[str, int] = {}
    defects: dict[str, int] = {}
    ends = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        hostile.make_database()
        targets: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "command lines": (hostile.command_lines(), hostile.try_command_line),
            "other commands": (hostile.other_commands(), hostile.try_other_command),
            "on a database": (hostile.commands_on_a_database(), hostile.try_other_command),
            "spec files": (
                hostile.spec_files(),
                lambda content: hostile.try_spec_file(content, Path(folder)),
            ),
            "settings": (hostile.settings_by_name(), hostile.try_settings),
            "trial tables": (hostile.tables(), lambda text: hostile.try_table(text, Path(folder))),
            "data files": (hostile.data_files(), lambda file: hostile.try_data(*file, Path(folder))),
        }
        seed = arguments.seed
        while time.monotonic() < ends:
            for name, (strategy, target) in targets.items():
                count, failed = fuzz(strategy, target, seed)
                tried[name] = tried.get(name, 0) + count
                defects[name] = defects.get(name, 0) + failed
            seed += 1
        os.chdir(ROOT)
    for name, count in tried.items():
        print(f"{name:<15}{count:>9,} tried{defects[name]:>5} defects")
    return 1 if any(defects.values()) else 0


def fuzz(strategy: Any, target: Callable[[Any], Any], seed: int) -> tuple[int, int]:
    """One round: how many inputs were tried, and whether one of them was a defect."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    tried = 0

    @seeded(seed)
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(drawn: Any) -> None:
        nonlocal tried
        tried += 1
        target(drawn)

    try:
        run()
    except Exception:
        traceback.print_exc()
        return tried, 1
    return tried, 0


if __name__ == "__main__":
    sys.exit(main())
