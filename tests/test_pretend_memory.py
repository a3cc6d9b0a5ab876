"""What a device's memory holds while a trial runs, and what follows when it runs out, on a pretend GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import processes
import pytest

pytestmark = pytest.mark.slow


def run_trials(folder: Path) -> None:
    # Here, because it makes the device in whatever process imports it.
    import pretend_memory

    pretend_memory.main(folder)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("memory")
    assert processes.run(run_trials, folder) == 0
    answer: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return answer


def test_the_peak_of_a_cached_depth_leaves_out_its_frozen_layers(found: dict[str, Any]) -> None:
    peaks = [found["peaks"][depth]["peak"] for depth in ("4", "6", "8")]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < found["peaks"]["weights"] / 2


def test_frozen_layers_come_back_when_the_optimiser_is_gone(found: dict[str, Any]) -> None:
    plain, tight = found["put_back"]["plain"], found["put_back"]["tight"]
    assert "error" not in tight, tight
    assert (tight["micro_batch"], tight["losses"]) == (16, plain["losses"])


def test_a_trial_that_did_not_fit_leaves_a_whole_model_behind(found: dict[str, Any]) -> None:
    here = found["put_back"]
    assert here["failed"]["error"].startswith("TrialFailed: out of memory with a micro-batch of 1: pretend")
    assert here["after"]["losses"] == here["plain"]["losses"]
    assert here["whole after"].get("losses") == here["whole"]["losses"]


def test_memory_that_runs_out_while_states_are_computed_halves_the_tokens(found: dict[str, Any]) -> None:
    here = found["building"]
    assert here["halved"].get("losses") == pytest.approx(here["plain"]["losses"], rel=1e-4)
    assert (here["halved"]["micro_batch"], here["halved"]["prefix"]) == (16, "cached")
    assert here["tokens"] < 8192
    assert here["said"] == []


def test_states_that_cannot_be_computed_are_no_matter_of_the_micro_batch(found: dict[str, Any]) -> None:
    here = found["building"]
    assert "out of memory while the states of one example are computed" in here["failed"]["error"]
    assert here["sizes"] == {}
    assert here["after"]["losses"] == pytest.approx(here["plain"]["losses"], rel=1e-4)


def test_states_leave_the_device_before_the_micro_batch_is_halved(found: dict[str, Any]) -> None:
    here = found["resident"]
    assert here["states"]["resident"]
    assert not here["crowded"]["resident"]
    assert here["crowded"]["micro_batch"] == 16
    assert here["crowded"]["losses"] == here["plain"]["losses"] == here["states"]["losses"]
    assert len(here["said"]) == 1
    assert here["said"][0].endswith("trying 16 without them")


def test_workers_of_one_gpu_divide_its_room_for_states(found: dict[str, Any]) -> None:
    assert found["resident"]["shared"] == {"1": True, "4": False}


def test_a_precision_that_the_device_lacks_is_refused_before_accelerate_meets_it(
    found: dict[str, Any],
) -> None:
    """As an error of use, for which a worker releases its trial instead of failing it."""
    assert found["refused"]["error"].startswith(
        "UsageError: --mixed-precision bf16 does not run on a pretend"
    )
