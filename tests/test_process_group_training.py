"""Two processes that train one trial give the numbers that one process gives with the same global batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from processes import Group

from objectives.contract import CurvePoint

TRAIN = 41
"""With batches of 8 the last batch is one example: a process of the two then has none."""
DEPTHS = (-1, 0, 2)
PLACES = [*(f"frozen_layers={depth}" for depth in DEPTHS), "in micro-batches", "unused parameters"]


def train(place: str) -> None:
    """One cell per depth; what each process measured goes to a file."""
    from objectives.contract import Cell, Recipe
    from objectives.data.task_data import load_data
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.tasks.definition import get_task
    from objectives.training.finetune import FineTuning
    from objectives.training.micro_batches import MicroBatches

    folder = Path(place)

    def make(family: str) -> FineTuning:
        return FineTuning(
            data=load_data(get_task("sst2"), str(folder / "data")),
            model_path=str(folder / family),
            model_fingerprint=family,
            recipe=Recipe(epochs=2, batch_size=8, max_length=32, evaluations_per_epoch=2),
            cache=PrefixCache(folder / "cache", None, print),
        )

    objective = make("bert")
    reported: list[CurvePoint] = []
    records = [objective(Cell(depth, 3e-3, 1), reported.append).to_dict() for depth in DEPTHS]
    if objective.accelerator.num_processes > 1:
        # Of four examples of a process, three and one.
        objective._micro_batches = MicroBatches(3)
    records.append(objective(Cell(0, 3e-3, 1), reported.append).to_dict())
    objective = make("xlnet")
    records.append(objective(Cell(0, 3e-3, 1), reported.append).to_dict())
    if objective.accelerator.num_processes > 1:
        assert "transformer.mask_emb" in objective._unused
    assert len(reported) == sum(len(record["curve"]) for record in records), "every process reports"
    name = f"records-{objective.accelerator.num_processes}-{objective.accelerator.process_index}.json"
    (folder / name).write_text(json.dumps(records))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Of this process alone, and of each of two, trained at the same time."""
    folder = tmp_path_factory.mktemp("group")
    for family in ("bert", "xlnet"):
        tiny.save_model(family, folder / family, dropout=False)
    tiny.save_data(folder / "data", TRAIN)
    group = Group(train, str(folder))
    train(str(folder))
    assert group.wait() == [0, 0]
    return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("records-*.json")}


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(PLACES)), ids=PLACES)
def test_two_processes_train_as_one(records: dict[str, list[dict[str, Any]]], place: int) -> None:
    alone, first, second = (records[f"records-{name}"][place] for name in ("1-0", "2-0", "2-1"))
    assert (alone["processes"], first["processes"]) == (1, 2)
    assert (alone["micro_batch"], first["micro_batch"]) == (
        8,
        3 if PLACES[place] == "in micro-batches" else 4,
    )
    assert first["score"] == alone["score"]
    assert first["metrics"] == alone["metrics"]
    assert second["curve"] == first["curve"]
    assert [point["step"] for point in first["curve"]] == [point["step"] for point in alone["curve"]]
    losses = [point["train_loss"] for point in alone["curve"]]
    assert [point["train_loss"] for point in first["curve"]] == pytest.approx(losses, abs=1e-4, rel=0)
    assert losses[-1] != pytest.approx(losses[0], abs=1e-3)
