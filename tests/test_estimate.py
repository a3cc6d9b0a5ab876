"""How long it will take: a line through what was timed, without what happens once."""

from __future__ import annotations

from typing import Any

import pytest
from stored import make_spec

from objectives.contract import Cell, TrialRecord
from study.estimate import Pace, Timing, seconds_left

FULL, HALF, HEAD = Cell(0, 3e-5, 1), Cell(3, 3e-5, 1), Cell(6, 3e-5, 1)


def record(seconds: float | None, **more: Any) -> TrialRecord:
    return TrialRecord(metric="f1", score=0.5, train_seconds=seconds, **more)


def test_two_depths_tell_what_every_cell_costs_and_what_a_layer_does() -> None:
    timing = Timing(make_spec(), [(FULL, 40.0), (HEAD, 4.0)])
    assert timing.seconds(FULL) == pytest.approx(40)
    assert timing.seconds(HEAD) == pytest.approx(4)
    assert timing.seconds(HALF) == pytest.approx(22)


def test_one_depth_is_scaled_by_its_layers_and_a_guess_of_the_rest() -> None:
    timing = Timing(make_spec(), [(FULL, 19.5), (Cell(0, 1e-5, 2), 19.5)])
    assert timing.seconds(FULL) == pytest.approx(19.5)
    assert timing.seconds(HEAD) == pytest.approx(1.5)


def test_another_train_size_is_scaled_by_its_examples() -> None:
    timing = Timing(make_spec(), [(Cell(6, 3e-5, 1, 50), 10.0)])
    assert timing.seconds(Cell(6, 3e-5, 1, 1000)) == pytest.approx(200)
    assert Timing(make_spec(), [(Cell(0, 3e-5, 1, 1000), 200.0)]).seconds(
        Cell(0, 3e-5, 1, 50)
    ) == pytest.approx(10)


def test_less_work_never_takes_longer_nor_less_than_nothing() -> None:
    noisy = Timing(make_spec(), [(FULL, 1.0), (HEAD, 5.0)])
    assert noisy.seconds(FULL) == noisy.seconds(HEAD) == pytest.approx(3)
    steep = Timing(make_spec(), [(FULL, 100.0), (HALF, 1.0)])
    assert steep.seconds(HEAD) == pytest.approx(0, abs=1e-9)


def test_loading_the_model_does_not_count_in_the_time_left() -> None:
    waiting = [Cell(6, 3e-5, seed) for seed in range(1, 6)]
    pace = Pace(make_spec(recorded=False), [], waiting)
    assert pace.seconds_left() is None
    pace.finished(HEAD, record(1.5, evaluation_seconds=0.5), seconds=60.0)
    assert pace.seconds_left() == pytest.approx(4 * 2.0)
    pace.planned(3)
    assert (pace.done, pace.total) == (1, 8)
    assert pace.seconds_left() == pytest.approx(7 * 2.0)


def test_a_recorded_study_takes_as_long_as_answering_does_not_as_training_did() -> None:
    pace = Pace(make_spec(recorded=True), [], [FULL, HEAD])
    pace.finished(HEAD, record(900.0), seconds=0.3)
    assert pace.seconds_of(HEAD) == pytest.approx(0.3)


def test_a_record_without_times_counts_with_all_that_passed() -> None:
    pace = Pace(make_spec(), [(FULL, None)], [HEAD, HALF])
    pace.finished(HALF, record(None), seconds=10.0)
    assert pace.seconds_of(HALF) == pytest.approx(10)


def test_a_study_without_a_cell_done_goes_by_the_others() -> None:
    timed = Pace(make_spec(), [(FULL, 30.0)], [])
    new = Pace(make_spec(), [], [FULL])
    assert seconds_left([timed, new]) == pytest.approx(30)
    assert seconds_left([new]) is None


@pytest.mark.parametrize(("protocol", "phases"), [("grid", False), ("paper", True), ("adaptive", True)])
def test_protocols_that_plan_in_phases_are_known(protocol: str, phases: bool) -> None:
    assert Pace(make_spec(protocol=protocol), [], []).in_phases is phases
