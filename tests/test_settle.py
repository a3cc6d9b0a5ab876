"""`launch --settle` adds the runs that would settle an answer, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tables import rows, table

from objectives.contract import Cell, UsageError
from storage.database import Database
from study import launch
from study.analysis.analyse import Analysis, analyse
from study.trials.sources import read_studies
from study.workers.jobs import stored_spec

DEPTHS = (0, 1, 2, 3, 4)
KEPT = {0: 1.0, 1: 0.97, 2: 0.92, 3: 0.87, 4: 0.5}


def recorded(path: Path, seeds: int, noise: float = 0.02) -> None:
    """A table with more seeds than a launch asks for at first."""
    draw = np.random.default_rng(4)
    found = [
        {
            "task": "made up",
            "model": "m",
            "total_layers": 4,
            "frozen_layers": depth,
            "learning_rate": 1e-5,
            "seed": seed,
            "train_size": "",
            "state": "COMPLETE",
            "metric": "accuracy",
            "score": 0.8 * KEPT[depth] + noise * draw.standard_normal(),
            "chance": 0.3,
        }
        for depth in DEPTHS
        for seed in range(1, seeds + 1)
    ]
    pd.DataFrame(found).to_csv(path, index=False)


def study_of(address: str) -> tuple[set[Cell], tuple[Cell, ...]]:
    database = Database.open(address)
    try:
        study = database.study("s")
        done = {outcome.cell for outcome in study.outcomes() if outcome.state == "COMPLETE"}
        return done, stored_spec(study).extra_cells
    finally:
        database.close()


@pytest.mark.slow
def test_settle_adds_what_the_plan_names_and_no_other_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, address = tmp_path / "trials.csv", f"sqlite:///{tmp_path}/elsa.db"
    recorded(source, seeds=40, noise=0.012)
    asked = ["--recorded", str(source), "--study", "s", "--storage", address, "--seeds", "3"]
    asked += ["--out", str(tmp_path / "report"), "--workers", "1"]
    assert launch.main(asked) == 0
    before, _ = study_of(address)
    assert len(before) == 15
    database = Database.open(address)
    analysis = analyse(read_studies([database.study("s")]).table, thresholds=[0.9])
    database.close()
    (point,) = analysis.points
    plan = analysis.settle_plan(point)
    assert plan is not None
    assert plan.worthwhile
    capsys.readouterr()

    assert launch.main([*asked, "--settle", "--dry-run"]) == 0
    assert "more seed" in capsys.readouterr().out
    assert study_of(address) == (before, ())

    assert launch.main([*asked, "--settle"]) == 0
    after, extra = study_of(address)
    added = after - before
    assert added == set(extra)
    assert {cell.frozen_layers for cell in added} == {0, *plan.frozen_layers}
    assert {cell.seed for cell in added} == set(range(4, 4 + (plan.seeds or 0)))
    said = capsys.readouterr()
    assert f"{len(added)} cells added" in said.err
    assert f"{len(added)} of {len(added)} cells finished that --settle added" in said.out

    # The plain command still joins the study, and wants nothing more.
    assert launch.main(asked) == 0
    assert study_of(address)[0] == after


@pytest.mark.slow
def test_settle_measures_depths_that_were_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, address = tmp_path / "trials.csv", f"sqlite:///{tmp_path}/elsa.db"
    recorded(source, seeds=5, noise=0.002)
    asked = ["--recorded", str(source), "--study", "s", "--storage", address, "--seeds", "4"]
    asked += ["--out", str(tmp_path / "report"), "--workers", "1", "--frozen-layers", "0,1,4"]
    assert launch.main(asked) == 0
    before, _ = study_of(address)
    assert launch.main([*asked, "--settle"]) == 0
    after, _ = study_of(address)
    assert {(cell.frozen_layers, cell.seed) for cell in after - before} == {
        (depth, seed) for depth in (2, 3) for seed in (1, 2, 3, 4)
    }
    assert "Runs at 2, 3 frozen layers would settle it" in capsys.readouterr().err
    assert launch.main([*asked, "--settle"]) == 0
    assert study_of(address)[0] == after
    assert "settled already" in capsys.readouterr().err


def test_settle_needs_a_study(tmp_path: Path) -> None:
    source = tmp_path / "trials.csv"
    recorded(source, seeds=3)
    asked = ["--recorded", str(source), "--study", "s", "--storage", f"sqlite:///{tmp_path}/elsa.db"]
    with pytest.raises(UsageError, match="there is no s yet"):
        launch.main([*asked, "--settle", "--out", str(tmp_path)])
    with pytest.raises(UsageError, match="leave out --extend"):
        launch.main([*asked, "--settle", "--extend"])


def planned(gap: float, noise: float, seeds: int = 3) -> Analysis:
    draw = np.random.default_rng(1)

    def around(mean: float) -> list[float]:
        values = draw.standard_normal(seeds)
        return list(mean + noise * (values - values.mean()) / values.std())

    scores = {0: 0.8, 1: 0.79, 2: 0.72 + gap, 3: 0.72 - gap, 4: 0.3}
    return analyse(table(rows({n: around(mean) for n, mean in scores.items()})), thresholds=[0.9])


def test_smaller_gaps_need_more_seeds_and_tiny_ones_a_range() -> None:
    near, nearer, hopeless = (planned(gap, noise=0.02) for gap in (0.02, 0.01, 0.001))
    plans = [analysis.settle_plan(analysis.points[0]) for analysis in (near, nearer, hopeless)]
    assert all(plan is not None for plan in plans)
    first, second, last = plans
    assert (first.seeds or 0) < (second.seeds or 0)  # type: ignore[union-attr]
    assert first.power >= 0.8  # type: ignore[union-attr]
    assert not last.worthwhile  # type: ignore[union-attr]
    assert (last.first, last.last) == (1, 3)  # type: ignore[union-attr]
    sure = planned(0.03, noise=0.002)
    assert sure.settle_plan(sure.points[0]) is None


def test_a_plan_settles_as_often_as_it_says() -> None:
    """Runs drawn as the plan assumes, beside those that there are, settle the answer in about 80 %."""
    analysis = planned(0.02, noise=0.02)
    plan = analysis.settle_plan(analysis.points[0])
    assert plan is not None
    assert plan.seeds is not None
    curve = analysis.curves[0]
    draw = np.random.default_rng(2)
    settled = 0
    for _ in range(25):
        scores = {}
        for depth in curve.depths:
            more = draw.normal(depth.score or 0, 0.02 * 1.22, plan.seeds)
            inside = depth.frozen_layers == 0 or depth.frozen_layers in plan.frozen_layers
            scores[depth.frozen_layers] = [*depth.scores, *(more if inside else ())]
        (point,) = analyse(table(rows(scores)), thresholds=[0.9], draws=2000).points
        settled += max(point.probability.values()) >= 0.9
    assert settled / 25 >= 0.6
