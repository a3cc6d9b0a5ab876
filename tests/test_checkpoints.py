"""Long trials survive: what is saved, who may write it, who goes on from it, and with the same bits."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import own
import pytest
import tiny
import torch
from launches import start, wait_until
from processes import Group

from objectives.contract import Attempt, Cell, CurvePoint, Recipe, TrialRecord
from objectives.data.task_data import load_data
from objectives.prefix.prefix_cache import PrefixCache
from objectives.tasks.definition import get_task
from objectives.training import state_file
from objectives.training.checkpoints import Checkpoints
from objectives.training.finetune import FineTuning
from objectives.training.state_file import Unreadable
from storage.database import Database
from study.workers.event_lines import decode, encode
from study.workers.events import Event
from study.workers.jobs import load_jobs
from study.workers.options import Caching, Keeping, Places
from study.workers.worker import run_worker

CELL = Cell(2, 1e-3, 1)
Make = Callable[..., FineTuning]


class Killed(Exception):
    pass


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str]) -> Make:
    """An objective of its own, as another process has it, that saves after every step."""

    def build(every: float = 0.0, **recipe: Any) -> FineTuning:
        return FineTuning(
            data=load_data(get_task("sst2"), tiny.save_data(tmp_path / "data")),
            model_path=tiny.save_model("bert", tmp_path / "bert"),
            model_fingerprint="tiny",
            recipe=Recipe(**{"epochs": 2, "batch_size": 8, "max_length": 32, **recipe}),
            cache=PrefixCache(tmp_path / "cache"),
            checkpoints=Checkpoints(tmp_path / "checkpoints", every, "tiny", said.append),
        )

    return build


def killed_after(step: int, objective: FineTuning, attempt: Attempt, cell: Cell = CELL) -> None:
    def stepped(done: int, *_: object) -> None:
        if done > step:
            raise Killed

    with pytest.raises(Killed):
        objective(cell, lambda point: None, replace(attempt, stepped=stepped))


def without_times(record: TrialRecord) -> dict[str, Any]:
    found = record.to_dict()
    costs = ("seconds", "examples_per_second", "peak_memory_bytes", "resumed")
    return {name: value for name, value in found.items() if not any(cost in name for cost in costs)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "recipe"),
    [
        (Cell(0, 1e-3, 1), {}),
        (CELL, {}),
        (CELL, {"prefix": "live", "score": "best"}),
        (Cell(-1, 1e-3, 3), {"mixed_precision": "bf16"}),
    ],
)
def test_the_next_attempt_goes_on_and_ends_with_the_same_bits(
    make: Make, said: list[str], cell: Cell, recipe: dict[str, Any]
) -> None:
    expected = make(every=1e9, **recipe)(cell, lambda point: None)
    killed_after(4, make(**recipe), Attempt(token="a"), cell)
    killed_after(9, make(**recipe), Attempt(token="b", number=2), cell)
    points: list[CurvePoint] = []
    last = make(**recipe)
    last(Cell(1, 1e-2, 7), lambda point: None, Attempt(token="other"))
    record = last(cell, points.append, Attempt(token="c", number=3))
    assert without_times(record) == without_times(expected)
    assert (record.resumed_step, expected.resumed_step) == (9, None)
    assert record.resumed_seconds is not None
    assert 0 < record.resumed_seconds < (record.train_seconds or 0) + (record.evaluation_seconds or 0)
    assert tuple(points) == record.curve, "what earlier attempts reported is reported again"
    assert any("goes on from step 9 of 12" in line for line in said)


@pytest.mark.slow
def test_weights_that_are_kept_for_the_best_score_survive(make: Make) -> None:
    def kept() -> FineTuning:
        objective = make(score="best", epochs=3)
        objective.keep_scored()
        # Scores that fall: the first evaluation counts.
        objective._training.evaluation.scores = lambda logits: {"accuracy": 1 / (1 + next(count))}  # type: ignore[method-assign]
        return objective

    count = iter(range(100))
    whole = kept()
    whole(CELL, lambda point: None, Attempt(token="w"))
    expected = {name: value.clone() for name, value in whole.model.state_dict().items()}
    whole._checkpoints.remove(CELL)  # type: ignore[union-attr]
    count = iter(range(100))
    killed_after(10, kept(), Attempt(token="a"))
    objective = kept()
    objective(CELL, lambda point: None, Attempt(token="b"))
    assert all(torch.equal(value, expected[name]) for name, value in objective.model.state_dict().items())


def test_an_attempt_keeps_one_file_and_never_touches_anothers(make: Make, tmp_path: Path) -> None:
    objective = make()
    checkpoints = objective._checkpoints
    assert checkpoints is not None
    killed_after(5, objective, Attempt(token="a"))
    (first,) = checkpoints.found(CELL)
    before = first.read_bytes()
    killed_after(8, make(), Attempt(token="b"))
    assert [path.name for path in checkpoints.found(CELL)] == [
        "b-000000008.safetensors",
        "a-000000005.safetensors",
    ]
    assert first.read_bytes() == before
    assert stat.S_IMODE(first.stat().st_mode) & 0o077 == 0
    checkpoints.remove(CELL)
    assert checkpoints.found(CELL) == []


def test_who_lost_the_lease_writes_nothing_and_trains_on(make: Make) -> None:
    objective = make()
    asked: list[int] = []

    def mine() -> bool:
        asked.append(1)
        return len(asked) <= 2

    record = objective(CELL, lambda point: None, Attempt(token="a", mine=mine))
    assert len(asked) == 11, "before every write, and the last step needs none"
    assert objective._checkpoints is not None
    (path,) = objective._checkpoints.found(CELL)
    assert path.name == "a-000000002.safetensors"
    assert record.curve[-1].step == 12


def test_what_cannot_be_read_or_is_another_training_is_passed_over(
    make: Make, said: list[str], tmp_path: Path
) -> None:
    expected = make(every=1e9)(CELL, lambda point: None)
    objective = make()
    checkpoints = objective._checkpoints
    assert checkpoints is not None
    killed_after(3, objective, Attempt(token="a"))
    torn = checkpoints.path(CELL, "b", 7)
    torn.write_bytes(checkpoints.found(CELL)[0].read_bytes()[:5000])
    state_file.write(checkpoints.path(CELL, "c", 9), {"run": {}}, {"format": "1", "identity": "other"})
    (torn.parent / ".d-000000011.safetensors.77").write_bytes(b"half")
    record = make()(CELL, lambda point: None, Attempt(token="z"))
    assert record.resumed_step == 3
    assert record.metrics == expected.metrics
    assert any(
        "c-000000009.safetensors is of another training (identity other, here tiny)" in s for s in said
    )
    assert any("b-000000007.safetensors cannot be read" in line for line in said)


def test_a_folder_that_cannot_be_written_costs_no_trial(make: Make, said: list[str], tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    record = make()(CELL, lambda point: None, Attempt(token="a"))
    assert record.curve[-1].step == 12
    assert len(said) == 1, "said once"
    assert "the trial goes on without" in said[0]


def test_state_survives_a_file_exactly(tmp_path: Path) -> None:
    state = {
        "nothing": None,
        "numbers": (1, 2.5, float("inf"), True, 2**70, 0.1 + 0.2),
        "by number": {0: [torch.arange(3), torch.tensor(1.5, dtype=torch.bfloat16)], 7: {}},
        "arrays": [np.array([2**63 + 1], np.uint64), np.zeros((2, 0, 3), np.float32), np.float64(1 / 3)],
        "text": "é\n",
    }
    path = tmp_path / "state.safetensors"
    state_file.write(path, state, {"of": "a test"})
    found = state_file.read(path)
    assert state_file.read_about(path) == {"of": "a test"}
    assert found["numbers"] == state["numbers"]
    assert isinstance(found["numbers"], tuple)
    assert list(found["by number"]) == [0, 7]
    assert torch.equal(found["by number"][0][0], torch.arange(3))
    assert found["by number"][0][1].dtype == torch.bfloat16
    assert found["by number"][0][1].shape == ()
    assert found["arrays"][0].dtype == np.uint64
    assert found["arrays"][0][0] == 2**63 + 1
    assert found["arrays"][1].shape == (2, 0, 3)
    assert found["arrays"][2] == 1 / 3
    assert (found["nothing"], found["text"]) == (None, "é\n")
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"
    with pytest.raises(TypeError, match="object cannot be written"):
        state_file.write(path, {"x": object()}, {})
    with pytest.raises(Unreadable):
        state_file.read(tmp_path / "none")


@pytest.mark.slow
def test_kill_9_in_the_middle_and_another_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same study twice: undisturbed, and with its first worker killed once it has saved something."""
    from study import launch

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    tiny.save_model("bert", tmp_path / "tiny")
    own.save(tmp_path / "news.csv", own.news(100))
    grid = "--frozen-layers 0, --learning-rates 1e-3, --seeds 1, --batch-size 4 --epochs 6"
    for name in ("whole", "killed"):
        recipe = f"--data news.csv --model ./tiny {grid} --heartbeat 0.5 --grace 3 --study {name}"
        assert launch.main([*recipe.split(), "--workers", "0"]) == 0
    keeping = Keeping(checkpoint_every=60, checkpoint_dir=str(tmp_path / "shared"))
    flags = ["killed", "--events", "first", "--checkpoint-every", "0.001", "--checkpoint-dir", "shared"]
    first = start(flags, tmp_path, "work")
    wait_until(lambda: any((tmp_path / "shared").glob("killed-*/*/*.safetensors")), "a checkpoint")
    first.kill()
    first.wait()
    events: list[Event] = []
    database = Database.open("sqlite:///elsa.db")
    places = Places(caching=Caching(cache_dir="cache"), keeping=keeping)
    run_worker(load_jobs(database, ["whole", "killed"], places), worker="next", on_event=events.append)
    records = {}
    for name, trials in {"whole": 1, "killed": 2}.items():
        found = database.study(name).trials()
        assert len(found) == trials, "one that was killed, and one that went on"
        (records[name],) = [trial.record for trial in found if trial.record is not None]
    database.close()
    assert without_times(records["killed"]) == without_times(records["whole"])
    assert (records["killed"].resumed_step or 0) > 0
    assert records["whole"].resumed_step is None
    (finished,) = [event for event in events if event.kind == "finished" and event.study == "killed"]
    again = decode(encode(finished))
    assert again is not None
    assert again.record is not None
    assert again.record.resumed_seconds == records["killed"].resumed_seconds
    assert not list((tmp_path / "shared").glob("*/*")), "a finished cell leaves none"


def train(place: str, attempt: str) -> None:
    """In each of two processes: undisturbed, then saved and killed; at the second attempt, to the end."""
    folder = Path(place)

    def objective(every: float) -> FineTuning:
        return FineTuning(
            data=load_data(get_task("sst2"), str(folder / "data")),
            model_path=str(folder / "model"),
            model_fingerprint="tiny",
            recipe=Recipe(epochs=2, batch_size=8, max_length=32, evaluations_per_epoch=2),
            cache=PrefixCache(folder / "cache", None, print),
            checkpoints=Checkpoints(folder / "checkpoints", every, "tiny", print),
        )

    def stepped(done: int, *_: object) -> None:
        if done == 8:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(name: str, record: TrialRecord) -> None:
        (folder / f"{name}-{os.environ['RANK']}.json").write_text(json.dumps(without_times(record)))
        assert name == "whole" or record.resumed_step == 6, "where processes agree: at an evaluation"

    if attempt == "first":
        write("whole", objective(1e9)(CELL, lambda point: None))
        objective(0.0)(CELL, lambda point: None, Attempt(token="a", stepped=stepped))
    write("resumed", objective(0.0)(CELL, lambda point: None, Attempt(token="b", number=2)))


@pytest.mark.slow
def test_two_processes_go_on_together_with_the_same_bits(tmp_path: Path) -> None:
    tiny.save_model("bert", tmp_path / "model")
    tiny.save_data(tmp_path / "data")
    for attempt, code in {"first": -signal.SIGKILL, "second": 0}.items():
        assert Group(train, str(tmp_path), attempt).wait()[0] == code
    ends = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(ends) == {"whole-0", "whole-1", "resumed-0", "resumed-1"}
    assert ends["resumed-0"] == ends["whole-0"]
    assert ends["resumed-1"] == ends["whole-1"]
