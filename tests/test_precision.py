"""`--mixed-precision auto`: resolved when a study is planned, fixed from then on, refused where unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectives.contract import SpecMismatch, UsageError
from storage.database import Database
from study import launch
from study.launching.arguments import from_values
from study.launching.precision import resolve_precision
from study.workers import gpus
from study.workers.gpus import Gpu
from study.workers.jobs import stored_spec

AMPERE = Gpu(index="0", name="A100", memory_bytes=80 << 30, capability=(8, 0))
TURING = Gpu(index="1", name="T4", memory_bytes=15 << 30, capability=(7, 5))
RADEON = Gpu(index="0", name="MI210", memory_bytes=64 << 30, capability=(9, 0), rocm=True)


@pytest.mark.parametrize(
    ("found", "asked", "wanted"),
    [
        ([AMPERE, AMPERE], {}, "bf16"),
        ([AMPERE], {"mixed_precision": "auto"}, "bf16"),
        ([RADEON], {}, "bf16"),
        ([AMPERE, TURING], {}, "no"),
        ([TURING], {}, "no"),
        ([], {}, "no"),
        ([], {"mixed_precision": "auto"}, "no"),
        ([AMPERE], {"mixed_precision": "fp16"}, "fp16"),
        ([AMPERE], {"workers": 0}, "bf16"),
        ([], {"workers": 0}, "no"),
        ([AMPERE], {"slurm": True}, "no"),
        ([AMPERE], {"slurm": True, "slurm_gpus": 0, "mixed_precision": "auto"}, "bf16"),
    ],
)
def test_auto_is_what_all_gpus_here_do_well(found: list[Gpu], asked: dict[str, Any], wanted: str) -> None:
    assert resolve_precision(from_values(asked), {}, found) == wanted


def test_a_protocol_that_names_a_precision_keeps_it() -> None:
    usual = {"mixed_precision": "no"}
    assert resolve_precision(from_values({}), usual, [AMPERE]) == "no"
    assert resolve_precision(from_values({"mixed_precision": "auto"}), usual, [AMPERE]) == "bf16"


@pytest.mark.parametrize("elsewhere", [{"slurm": True}, {"workers": 0}])
def test_auto_is_refused_where_the_planner_knows_no_gpu(elsewhere: dict[str, Any]) -> None:
    request = from_values({"mixed_precision": "auto", **elsewhere})
    with pytest.raises(UsageError, match=r"name bf16 .*, fp16 or no"):
        resolve_precision(request, {}, [])


@pytest.mark.slow
def test_a_study_keeps_the_precision_that_it_was_planned_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planning = ["--demo", "--task", "mrpc", "--seeds", "1", "--workers", "0"]

    def spec() -> Any:
        database = Database.open("sqlite:///elsa.db")
        try:
            return stored_spec(database.study("mrpc-demo-grid"))
        finally:
            database.close()

    monkeypatch.setattr(gpus, "describe", lambda: [AMPERE])
    assert launch.main(planning) == 0
    planned = spec()
    assert planned.recipe.mixed_precision == "bf16"
    # Joined from a machine without GPUs, by the same command.
    monkeypatch.setattr(gpus, "describe", list)
    assert launch.main(planning) == 0
    assert spec().fingerprint() == planned.fingerprint()
    with pytest.raises(SpecMismatch, match=r"recipe\.mixed_precision: bf16 -> no"):
        launch.main([*planning, "--mixed-precision", "no"])
    # A study without a word about precision is the one that it always was.
    assert launch.main([*planning, "--study", "said", "--mixed-precision", "no"]) == 0
    assert launch.main([*planning, "--study", "unsaid"]) == 0
    database = Database.open("sqlite:///elsa.db")
    fingerprints = {stored_spec(database.study(name)).fingerprint() for name in ("said", "unsaid")}
    database.close()
    assert len(fingerprints) == 1
