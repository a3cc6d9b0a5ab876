"""A protocol in one file of its own is seen by every command, with its flags, phases and explanation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launches import write_table

ROOT = Path(__file__).parent.parent
PROTOCOL = """
from dataclasses import dataclass

from objectives.settings import setting
from study.protocols.base import Defaults, Protocol
from study.protocols.outcomes import grid_cells, not_final


@dataclass(frozen=True, kw_only=True)
class Settings:
    stride: int = setting(2, help="every-nth: which depths to run", least=1, most=100)


class EveryNth(Protocol):
    name = "every-nth"
    summary = "every nth depth of the grid"
    settings = Settings

    def defaults(self, subject):
        return Defaults(frozen_layers=subject.upper_half)

    def wanted(self, spec, outcomes):
        return not_final(self._cells(spec), outcomes)

    def explain(self, spec, outcomes):
        return f"every-nth: {len(self._cells(spec))} cells at every depth number {self.own(spec).stride}"

    def _cells(self, spec):
        return grid_cells(spec, spec.frozen_layers[:: self.own(spec).stride], spec.learning_rates)
"""

PROGRAM = """
import sys
from study.__main__ import dispatch
for words in sys.argv[1:]:
    try:
        code = dispatch(words.split())
    except SystemExit as ended:  # of --help
        code = ended.code
    assert not code, words
    print("=====", flush=True)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """As an installed package announces it: a module and an entry point."""
    (tmp_path / "every_nth.py").write_text(PROTOCOL)
    about = tmp_path / "every_nth-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: every-nth\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[elsa.protocols]\nevery-nth = every_nth:EveryNth\n")
    write_table(tmp_path / "table.csv", depths=5, seeds=2)
    return tmp_path


def elsa(folder: Path, *commands: str) -> list[str]:
    """What commands say that run one after the other in one process, which finds the package."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}:{ROOT}",
        "ELSA_CACHE": str(folder / "cache"),
        "ELSA_STORAGE": f"sqlite:///{folder}/study.db",
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split("=====\n")


@pytest.mark.slow
def test_a_protocol_of_ones_own_is_seen_everywhere(plugin: Path) -> None:
    asked = "launch --recorded table.csv --protocol every-nth --stride 4"
    usage, all_flags, dry, shown, status, _, simulated, _ = elsa(
        plugin,
        "launch --help",
        "launch --help-all",
        f"{asked} --dry-run",
        asked,
        "status --json",
        "report --no-images --out page",
        "simulate table.csv --protocol every-nth --stride 4 --repeats 2",
    )
    assert "every nth depth of the grid" in usage
    assert "--stride N" in all_flags
    assert "--storage-file FILE" in all_flags
    assert "mrpc-bert-base-every-nth: 4 cells" in dry
    assert "frozen_layers=4" in dry
    assert "frozen_layers=2" not in dry
    assert "every-nth: 4 cells at every depth number 4" in shown
    (standing,) = json.loads(status)
    assert (standing["protocol"], standing["cells"]["complete"]) == ("every-nth", 4)
    assert "every-nth, 1 pairs x 2 repeats" in simulated
    assert " 4.0 " in simulated, "cells"
    assert "every-nth" in (plugin / "page" / "report.md").read_text()


def test_a_setting_of_another_protocol_is_refused(plugin: Path) -> None:
    with pytest.raises(AssertionError, match="--stride 3 is a setting of --protocol every-nth, not of grid"):
        elsa(plugin, "launch --recorded table.csv --stride 3")
