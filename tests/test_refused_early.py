"""Mistakes are refused before a model, data or a database are touched, and before heavy libraries load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NO_FILES = "/proc/here"
"""A place where nobody can make a folder, not even root."""
LAUNCH = "launch --demo --task mrpc"
MISTAKES = {
    f"{LAUNCH} --cache-dir {NO_FILES}": f"--cache-dir {NO_FILES} cannot be written",
    f"{LAUNCH} --keep models --models-dir {NO_FILES}": f"--models-dir {NO_FILES} cannot be written",
    f"{LAUNCH} --checkpoint-every 5 --checkpoint-dir {NO_FILES}": f"--checkpoint-dir {NO_FILES} cannot be",
    f"{LAUNCH} --track tensorboard --track-dir {NO_FILES}": f"--track-dir {NO_FILES} cannot be written",
    f"{LAUNCH} --out {NO_FILES}": f"--out {NO_FILES} cannot be written",
    f"{LAUNCH} --protocol adaptive --frozen-layers 3-5": "add 0 to --frozen-layers 3,4,5",
    f"{LAUNCH} --frozen-layers 99": "--frozen-layers 99 is beyond demo, which has 12 layers",
    "launch --task mrpc --frozen-layers 99": "--frozen-layers 99 is beyond bert-base, which has 12 layers",
    f"{LAUNCH} --seeds 1,1": "--seeds '1,1': 1 is named twice",
    f"work study --cache-dir {NO_FILES}": f"--cache-dir {NO_FILES} cannot be written",
    "export study --out full": "--out full exists",
    "export study --out model": "there is no database",
    "dashboard": "there is no database",
    "layers --model ./absent": "--model ./absent: no such folder",
}
PROGRAM = """
import sys
from objectives.errors import ElsaError
from study.__main__ import dispatch
for words in sys.argv[1:]:
    try:
        dispatch(words.split())
    except ElsaError as error:
        print(error)
print(*({"torch", "transformers", "optuna", "pandas"} & set(sys.modules)))
"""


def test_mistakes_are_refused_before_anything_is_loaded_or_written(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ELSA_")}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *MISTAKES],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    *messages, loaded = ended.stdout.split("\n")[:-1]
    assert len(messages) == len(MISTAKES)
    for said, (command, message) in zip(messages, MISTAKES.items(), strict=True):
        assert message in said, command
    assert loaded == ""
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_broken_sbatch_is_refused_before_a_study_is_planned(tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "-m", "study", *LAUNCH.split(), "--slurm"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "elsa: error: --slurm: sbatch --version fails here: no controller\n",
    )
    assert not list(tmp_path.glob("*.db"))
