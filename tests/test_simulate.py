"""The simulation: the exhaustive answer is the analysis', the JSON is the contract's, the figures hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from test_operating_points import only

from objectives.contract import Cell, Outcome, Recipe, UsageError
from study import protocols, simulate
from study.analysis.analyse import analyse
from study.launching.arguments import make_parser
from study.protocols import adaptive
from study.simulation import pairs
from study.simulation.repeats import replay
from study.simulation.replaying import Replaying
from study.simulation.source import likeliest, recordings
from study.specs.study_spec import StudySpec

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)


def paper_log(
    name: str, relative: list[float], *, noise: float = 0.005, layers: int = 12, best: int = 2, seed: int = 0
) -> list[dict[str, Any]]:
    """A log as the paper's: five rates at 0 frozen with 5 seeds, the upper half at the best with 10."""
    draw = np.random.default_rng([seed, len(name), layers])
    cells = [(0, i, 10 if i == best else 5, 1 - 0.006 * (i - best) ** 2) for i in range(5)]
    cells += [(layers // 2 + j, best, 10, share) for j, share in enumerate(relative)]
    return [
        {
            "task": name,
            "model": f"model-{layers}",
            "total_layers": layers,
            "frozen_layers": depth,
            "learning_rate": RATES[i],
            "seed": s,
            "train_size": None,
            "state": "COMPLETE",
            "metric": "accuracy",
            "score": 0.85 * share + 0.85 * noise * draw.standard_normal(),
        }
        for depth, i, seeds, share in cells
        for s in range(1, seeds + 1)
    ]


def falling(layers: int, fall: float, bend: float = 2.0) -> list[float]:
    return [float(1 - fall * x**bend) for x in np.linspace(0.1, 1, layers - layers // 2 + 1)]


def logs() -> pd.DataFrame:
    """Curves of 12 and 24 layers that cross 90 % about one point away from the nearest depth."""
    rows: list[dict[str, Any]] = []
    for layers in (12, 24):
        count = layers - layers // 2 + 1
        dip = falling(layers, 0.3)
        dip[1] -= 0.12
        rows += paper_log("falling", falling(layers, 0.3), layers=layers, best=1)
        rows += paper_log("flat", [0.99] * count, layers=layers, best=0)
        rows += paper_log("cliff", [0.98] * (count - 2) + [0.6, 0.5], layers=layers, best=4)
        rows += paper_log("dip", dip, layers=layers, best=3)
        rows += paper_log("noisy", falling(layers, 0.36, 1.0), layers=layers, noise=0.012)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    from study.trials.trial_table import normalise

    return normalise(logs(), source="logs")


@pytest.mark.parametrize("prefix", ["cached", "live"])
def test_adaptive_agrees_at_a_fraction_of_the_compute(table: pd.DataFrame, prefix: Any) -> None:
    some = table[table["task"].isin(["falling", "cliff", "dip"]) & (table["total_layers"] == 12)]
    found = pairs.simulate(some, Replaying(repeats=4, prefix=prefix))
    figures = pairs.to_json(found)
    assert figures["agreement"] >= 0.9
    assert figures["compute"] <= 0.28
    assert figures["exact"] >= figures["exact_itself"] - 0.1
    assert min(pair.agreement for pair in found) >= 0.6
    assert max(pair.compute for pair in found) <= 0.45


def test_exhaustive_answers_are_the_operating_points(table: pd.DataFrame) -> None:
    analysis = analyse(table, thresholds=(0.9,), draws=2000)
    for recording in recordings(table, 0.9):
        point = analysis.point(recording.model, recording.task, 0.9)
        assert point is not None
        assert recording.answer == point.frozen_layers
        assert recording.answer in recording.answer_set
        assert recording.seeds == 5


def test_the_paper_replayed_costs_the_exhaustive_compute(table: pd.DataFrame) -> None:
    found = pairs.simulate(table[table["total_layers"] == 12], Replaying(protocol="paper", repeats=2))
    # Fresh runs of the full model come on top of what the recorded logs have.
    assert all(1.0 < pair.compute < 1.3 for pair in found)
    assert np.mean([pair.agreement for pair in found]) >= 0.8


def test_a_table_of_many_rates_per_depth_is_a_grid() -> None:
    from study.trials.trial_table import normalise

    depths = dict(zip([0, 3, 4, 5, 6], [1.0, 0.99, 0.97, 0.8, 0.5], strict=True))
    rows = [
        {**row, "frozen_layers": depth, "score": row["score"] * share, "total_layers": 6}
        for row in paper_log("grid", [])
        for depth, share in depths.items()
    ]
    table = normalise(pd.DataFrame(rows), source="grid")
    (recording,) = recordings(table, 0.9)
    assert (recording.answer, recording.seeds) == (4, 5)
    assert recording.exhaustive_units("live", 3) == 5 * 5 * (18 + 12 + 10 + 8 + 6)
    (pair,) = pairs.simulate(table, Replaying(repeats=8))
    assert pair.agreement == 1.0
    assert pair.compute < 0.28
    (grid,) = pairs.simulate(table, Replaying(repeats=2, protocol="grid"))
    assert (grid.compute, grid.agreement) == (pytest.approx(1.0), 1.0)
    (lower,) = pairs.simulate(table, Replaying(repeats=2, protocol="grid", threshold=0.7))
    assert [run.frozen_layers for run in (*lower.replays, *lower.itself)] == [5] * 4, "at the threshold asked"


def with_embeddings(share: float) -> pd.DataFrame:
    """A table in which frozen embeddings keep a share of the full quality, and frozen layers nothing."""
    from study.trials.trial_table import normalise

    depths = {0: 1.0, -1: share, 6: 0.5, 9: 0.4}
    rows = [
        {**row, "frozen_layers": depth, "score": row["score"] * kept}
        for row in paper_log("embeddings", [], noise=0.001)
        if row["learning_rate"] == RATES[2]
        for depth, kept in depths.items()
    ]
    return normalise(pd.DataFrame(rows), source="embeddings")


def test_frozen_embeddings_are_deeper_than_nothing_frozen() -> None:
    (pair,) = pairs.simulate(with_embeddings(0.99), Replaying(repeats=3, protocol="grid"))
    assert pair.recording.answer == -1
    assert [run.frozen_layers for run in pair.replays] == [-1, -1, -1]
    assert (pair.agreement, pair.exact) == (1.0, 1.0)


def test_answers_with_the_same_tuned_layers_are_counted_together() -> None:
    (pair,) = pairs.simulate(with_embeddings(0.99), Replaying(repeats=2, protocol="grid"))
    mixed = replace(pair, replays=[pair.replays[0], replace(pair.replays[1], frozen_layers=0)])
    (row,) = pairs.to_json([mixed])["pairs"]
    assert row["answers"] == {"12": 1.0}
    assert row["exact"] == 0.5


def test_an_answer_of_the_set_agrees_but_is_not_exact(table: pd.DataFrame) -> None:
    noisy = table[(table["task"] == "noisy") & (table["total_layers"] == 12)]
    (pair,) = pairs.simulate(noisy, Replaying(repeats=1))
    answer = pair.recording.answer
    assert answer is not None
    recording = replace(pair.recording, answer_set=frozenset({answer, answer - 1}))
    runs = [replace(pair.replays[0], frozen_layers=n) for n in (answer, answer - 1, answer - 1, 0)]
    mixed = replace(pair, recording=recording, replays=runs)
    assert (mixed.agreement, mixed.exact) == (0.75, 0.25)
    figures = pairs.to_json([mixed])
    assert (figures["agreement"], figures["exact"]) == (0.75, 0.25)


def test_the_same_repeat_is_the_same_study(table: pd.DataFrame) -> None:
    recording = next(r for r in recordings(table, 0.9) if r.task == "falling")
    spec = recording.spec(Replaying())
    runs = [replay(recording, spec, repeat=i, workers=1) for i in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_workers_share_the_work(table: pd.DataFrame) -> None:
    table = table[table["task"].isin(["cliff", "dip", "flat"]) & (table["total_layers"] == 12)]
    alone = pairs.simulate(table, Replaying(repeats=2))
    shared = pairs.simulate(table, Replaying(repeats=2, workers=4))
    assert all(pair.mean("idle") == 0 for pair in alone)
    assert np.mean([pair.mean("idle") for pair in shared]) < 0.35
    assert np.mean([pair.compute for pair in shared]) < 0.4
    assert np.mean([pair.agreement for pair in shared]) > 0.9


def test_only_recorded_cells_are_replayed(table: pd.DataFrame) -> None:
    recording = next(r for r in recordings(table, 0.9) if r.task == "cliff")
    spec = recording.spec(Replaying(prefix="live"))
    run = replay(recording, spec, repeat=0)
    freezes = {rate for depth, rate in recording.scores if depth != 0}
    assert len(freezes) == 1
    assert run.frozen_layers == recording.answer
    asked = {cell for cell in spec.every_cell() if cell in recording.cells}
    assert {cell.learning_rate for cell in asked if cell.frozen_layers != 0} == freezes


@pytest.mark.slow
@pytest.mark.parametrize("select", ["per-depth", "full-model"])
@pytest.mark.parametrize("collapses", [False, True])
def test_search_and_report_give_one_answer(select: Any, collapses: bool) -> None:
    """On the same runs of a search: with several rates at a depth, collapses, and full models near chance."""
    generator = np.random.default_rng([3, collapses])
    statuses = set()
    for repeat in range(8):
        kind = worlds.SHAPES[repeat % len(worlds.SHAPES)]
        full = 0.55 if repeat == 7 else 0.85
        world = worlds.world(generator, kind, layers=6, noise=0.02, full=full)
        world = worlds.with_collapses_at_high_rates(world) if collapses else world
        scores = world.draw(generator, 10)
        spec = adaptive_spec(world, select)
        outcomes: dict[Cell, Outcome] = {}
        for _ in range(200):
            wanted = protocols.get("adaptive").wanted(spec, list(outcomes.values()))
            if not wanted:
                break
            for cell in wanted:
                place = world.depths.index(cell.frozen_layers), world.rates.index(cell.learning_rate)
                score = float(scores[(*place, cell.seed - 1)])
                outcomes[cell] = Outcome(cell, "COMPLETE", score, score_error=0.03)
        belief = adaptive.believe(spec, list(outcomes.values()))
        assert belief is not None
        point = only(analyse(as_table(spec, outcomes.values()), thresholds=[0.9], select=select))
        assert (belief.frozen_layers, belief.no_answer) == (point.frozen_layers, point.reason)
        sure = point.sureness
        assert belief.probability == (None if sure is None else pytest.approx(sure, abs=1e-9))
        statuses.add(point.status)
    assert statuses == {"ok", "no answer"}


def test_what_is_simulated_is_what_launch_runs_by_default() -> None:
    launched = protocols.get("adaptive").own_settings({}, (1, 2, 3))
    assert {name: getattr(Replaying(), name) for name in launched} == launched
    flags = make_parser(full=True).format_help()
    assert "--select per-depth|full-model" in flags


def adaptive_spec(world: worlds.World, select: str) -> StudySpec:
    return StudySpec(
        task="made up",
        metric="accuracy",
        model="m",
        model_fingerprint="m",
        data="d",
        data_fingerprint="d",
        total_layers=world.total_layers,
        protocol="adaptive",
        frozen_layers=world.depths,
        learning_rates=world.rates,
        seeds=tuple(range(1, 11)),
        recipe=Recipe(),
        chance=world.chance,
        protocol_settings=(("select", select),),
    )


def as_table(spec: StudySpec, outcomes: Iterable[Outcome]) -> pd.DataFrame:
    from study.trials.trial_table import normalise

    rows = [
        {
            **asdict(outcome.cell),
            "task": spec.task,
            "model": spec.model,
            "total_layers": spec.total_layers,
            "metric": spec.metric,
            "state": outcome.state,
            "score": outcome.score,
            "score_error": outcome.score_error,
            "chance": spec.chance,
        }
        for outcome in outcomes
    ]
    return normalise(pd.DataFrame(rows), source="search")


def test_likeliest_is_the_smallest_set_that_reaches_the_share() -> None:
    assert likeliest({9: 0.54, 10: 0.30, 8: 0.14, 7: 0.02}) == {8, 9, 10}
    assert likeliest({9: 0.95, 8: 0.05}) == {9}
    assert likeliest({}) == frozenset()


def test_json_is_the_contract(
    table: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "trials.csv", tmp_path / "out.json"
    table[table["task"] == "cliff"].to_csv(source, index=False)
    assert simulate.main([str(source), "--repeats", "4", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert set(figures) >= {
        "pairs",
        "agreement",
        "compute",
        "exact",
        "exact_itself",
        "sure_and_right",
        "settings",
    }
    assert figures["settings"]["select"] == "per-depth"
    twelve = next(pair for pair in figures["pairs"] if pair["model"] == "model-12")
    assert (twelve["task"], twelve["exhaustive_tuned_layers"]) == ("cliff", 2)
    assert twelve["answers"] == {"2": 1.0}
    assert (twelve["agreement"], 0 < twelve["compute"] < 0.45) == (1.0, True)
    printed = capsys.readouterr().out
    assert "agree: 100.0% (worst 100.0%) with an answer in the exhaustive study's own 90% set" in printed
    assert "exact: 100.0% with the very answer of the exhaustive study" in printed
    assert "answers from fewer runs than the report" in printed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--protocol", "gird"], "did you mean grid"),
        (["--protocol", "grid", "--search-seeds", "3"], "a setting of --protocol paper, not of grid"),
        (["--repeats", "0"], "--repeats 0: use a whole number"),
        (["--threshold", "90"], "--threshold 90.0: use a number above 0, below 1"),
    ],
)
def test_bad_flags_are_named(flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate.main(["absent.csv", *flags])


def test_a_table_without_a_full_model_is_refused(table: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="nothing to replay"):
        recordings(table[table["frozen_layers"] != 0], 0.9)


def test_simulation_never_imports_torch() -> None:
    modules = "study.simulate, study.simulation.repeats, study.simulation.source"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_table_of_one_run_per_depth_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score"]
    lines += [f"rte,m,4,{depth},1e-05,1,,COMPLETE,accuracy,0.{8 - depth // 2}" for depth in (0, 2, 4)]
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n")
    assert simulate.main([str(tmp_path / "one.csv"), "--repeats", "2"]) == 0
    assert "rte" in capsys.readouterr().out
