"""How long it will take: a line through what was timed, without what happens once."""

from __future__ import annotations

import pytest
from stored import make_spec

from objectives.contract import Cell
from storage.overview import Finished, Overview
from storage.reading import Counts
from study.progress.pace import Timing
from study.progress.standing import Standing
from study.specs.study_spec import StudySpec

FULL, HALF, HEAD = Cell(0, 3e-5, 1), Cell(3, 3e-5, 1), Cell(6, 3e-5, 1)


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


def standing(spec: StudySpec, recent: list[Finished], left: list[tuple[int, int | None, int]]) -> Standing:
    overview = Overview(
        counts=Counts(waiting=sum(count for *_, count in left), running=0, complete=len(recent), failed=0),
        best=None,
        recent=tuple(recent),
        open_cells=tuple(left),
        running=(),
        failures=(),
        failed_trials=0,
    )
    return Standing(name="a", spec=spec, overview=overview)


def finished(cell: Cell, elapsed: float, work: float | None = None) -> Finished:
    return Finished(cell=cell, elapsed_seconds=elapsed, work_seconds=work, seconds_ago=1.0)


def test_loading_the_model_does_not_count_in_the_time_left() -> None:
    found = standing(make_spec(recorded=False), [finished(HEAD, 60.0, work=2.0)], [(6, None, 4)])
    assert found.seconds_left(workers=1) == pytest.approx(4 * 2.0)
    assert found.seconds_left(workers=2) == pytest.approx(2 * 2.0)
    assert found.seconds_left() is None, "nobody works on it"


def test_a_recorded_study_takes_as_long_as_answering_does_not_as_training_did() -> None:
    found = standing(make_spec(recorded=True), [finished(HEAD, 0.3, work=900.0)], [(6, None, 1)])
    assert found.seconds_left(workers=1) == pytest.approx(0.3)


def test_a_record_without_times_counts_with_all_that_passed() -> None:
    found = standing(make_spec(recorded=False), [finished(HALF, 10.0)], [(3, None, 3)])
    assert found.seconds_left(workers=1) == pytest.approx(30)


def test_nothing_is_estimated_before_the_first_cell_and_nothing_is_left_at_the_end() -> None:
    assert standing(make_spec(), [], [(0, None, 1)]).seconds_left(workers=1) is None
    assert standing(make_spec(), [finished(FULL, 1.0)], []).seconds_left() == 0.0


@pytest.mark.parametrize(("protocol", "phases"), [("grid", False), ("paper", True), ("adaptive", True)])
def test_protocols_that_plan_in_phases_are_known(protocol: str, phases: bool) -> None:
    assert standing(make_spec(protocol=protocol), [], []).phased is phases
