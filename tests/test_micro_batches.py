"""Trials in parts: the same numbers in less memory, and half as much at a time where memory runs out."""

from __future__ import annotations

import json
import mmap
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import tiny
import torch

from objectives.contract import Attempt, Cell, Recipe, TrialFailed, UsageError
from objectives.data.encoding import Encoded
from objectives.data.task_data import load_data
from objectives.fitting import Fitting
from objectives.prefix.prefix_cache import PrefixCache
from objectives.tasks.definition import get_task
from objectives.training.batches import Loader, Split
from objectives.training.finetune import FineTuning
from objectives.training.micro_batches import MicroBatches, failure, held_states, needs_less_next_time
from storage.attributes import from_attributes, to_attributes

Make = Callable[..., FineTuning]
CELL = Cell(2, 1e-3, 1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        family: str = "bert", *, dropout: bool = False, fitting: Fitting | None = None, **recipe: Any
    ) -> FineTuning:
        return FineTuning(
            data=load_data(get_task("sst2"), tiny.save_data(tmp_path / "data")),
            model_path=tiny.save_model(family, tmp_path / f"{family}-{dropout}", dropout=dropout),
            model_fingerprint="tiny",
            recipe=Recipe(**{"epochs": 2, "batch_size": 16, "max_length": 32, **recipe}),
            cache=PrefixCache(tmp_path / "cache", warn=print),
            fitting=fitting,
        )

    return build


def losses(record: Any) -> list[float]:
    return [point.train_loss for point in record.curve]


def ignore(point: Any) -> None:
    pass


def weights(objective: FineTuning) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in objective.model.parameters()])


@pytest.mark.parametrize("depth", [0, 2])
def test_sixteen_are_four_times_four(make: Make, depth: int) -> None:
    whole, parts = make(), make(fitting=Fitting(micro_batch=4))
    cell = Cell(depth, 1e-3, 1)
    first, second = whole(cell, ignore), parts(cell, ignore)
    assert (first.micro_batch, second.micro_batch) == (16, 4)
    assert losses(second) == pytest.approx(losses(first), abs=1e-6, rel=0)
    assert second.metrics == first.metrics
    assert [point.step for point in second.curve] == [3, 6], "a step is a batch"
    assert second.train_examples == first.train_examples


@pytest.mark.parametrize("optimiser_sees", [1, 5, 7])
def test_the_gradient_is_that_of_the_batch(make: Make, optimiser_sees: int) -> None:
    whole, parts = make(), make(fitting=Fitting(micro_batch=optimiser_sees))
    gradients = []
    for objective in (whole, parts):
        objective._take_at_a_time(objective._micro_batches.first(0))
        objective.pretrained.reset(1)
        objective.stack.freeze(0)
        with objective._prepared(CELL) as run:
            run.optimizer.step = run.optimizer.zero_grad = lambda: None
            for batch in objective._loader.training(objective._splits["train"], [np.arange(16)]):
                objective._steps.step(run, batch)
            gradients.append([p.grad.clone() for p in run.parameters if p.grad is not None])
            objective.model.zero_grad()
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_micro_batches_are_of_like_length_and_lose_nothing() -> None:
    lengths = np.array([3, 9, 2, 8, 1, 6, 7])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.ones(offsets[-1], dtype=np.int32)
    encoded = Encoded({"input_ids": tokens}, offsets, np.arange(7), {"input_ids": 0}, left=False)
    split = Split(encoded)
    batches = list(Loader(torch.device("cpu"), micro_batch=3).training(split, [np.arange(7)]))
    assert [batch.rows.tolist() for batch in batches] == [[1, 3, 6], [5, 0], [2, 4]]
    assert [batch.inputs["input_ids"].shape for batch in batches] == [(3, 9), (2, 6), (2, 2)]
    assert [batch.ends_step for batch in batches] == [False, False, True]
    assert {batch.weight for batch in batches} == {1 / 7}
    assert batches[-1].examples == 7


def test_what_did_not_fit_is_not_tried_again() -> None:
    sizes = MicroBatches.of(batch_size=16, processes=1, wanted=None)
    assert sizes.first(4) == 16
    assert [sizes.shrink(4, size) for size in (16, 8)] == [8, 4]
    assert (sizes.first(4), sizes.first(0), sizes.first(-1), sizes.first(6)) == (4, 4, 4, 16)
    assert sizes.shrink(4, 1) is None
    assert MicroBatches.of(16, 2, None).first(0) == 8, "each process has its part"
    assert MicroBatches.of(16, 1, 64).first(0) == 16
    told = MicroBatches.of(16, 2, None)
    assert told.first(0, f"rank 1 failed: {failure(8, 'tried to allocate 2 GiB')}") == 4
    assert told.first(0, "rank 1 failed: killed by SIGKILL") == 4


def test_an_attempt_that_will_hold_less_is_known_by_its_reason() -> None:
    assert needs_less_next_time(f"rank 1 failed: {failure(8, 'tried to allocate 2 GiB')}")
    assert not needs_less_next_time(failure(1, "tried to allocate 2 GiB"))
    assert not needs_less_next_time("killed by SIGKILL")
    held = failure(1, "tried to allocate 2 GiB", held=True)
    assert needs_less_next_time(held)
    assert held_states(held)
    assert not held_states(failure(1, "tried to allocate 2 GiB"))
    assert not held_states(None)
    sizes = MicroBatches.of(16, 1, None)
    assert sizes.first(0, failure(16, "tried to allocate 2 GiB", held=True)) == 16, "without them it may fit"


def full_until(objective: FineTuning, most: int, monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """Memory for so many examples at a time, once so many steps are done."""
    loss, steps = objective._steps.loss, []

    def limited(run: Any, batch: Any) -> torch.Tensor:
        if len(batch.rows) > most and len(steps) >= after:
            raise torch.OutOfMemoryError("tried to allocate 2 GiB")
        steps.append(batch)
        return loss(run, batch)

    monkeypatch.setattr(objective._steps, "loss", limited)


def test_memory_that_runs_out_halves_the_micro_batch(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, objective = make()(CELL, ignore), make()
    full_until(objective, 5, monkeypatch)
    record = objective(CELL, ignore)
    assert record.micro_batch == 4
    assert losses(record) == pytest.approx(losses(expected), abs=1e-6, rel=0)
    stored = from_attributes(json.loads(json.dumps(to_attributes(record))), record.score)
    assert stored.micro_batch == 4
    seen: list[int] = []
    objective._training.begin = lambda run: seen.append(objective._loader.micro_batch or 0)
    objective(Cell(2, 1e-3, 2), ignore)
    assert seen == [4], "the next trial knows"


def test_not_even_one_example_fits(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make()
    full_until(objective, 0, monkeypatch)
    with pytest.raises(
        TrialFailed, match="out of memory with a micro-batch of 1: tried to allocate"
    ) as failed:
        objective(CELL, ignore)
    assert failed.value.retry, "another machine may have more"


def test_a_trial_that_has_reported_fails_and_its_retry_begins_with_half(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, points = make(), []
    full_until(objective, 8, monkeypatch, after=4)
    with pytest.raises(TrialFailed, match="out of memory with a micro-batch of 16") as failed:
        objective(CELL, points.append)
    assert len(points) == 1
    record = make()(CELL, ignore, Attempt(number=2, failure=failed.value.reason))
    assert record.micro_batch == 8


def counted(objective: FineTuning) -> Counter[int]:
    """How often each layer has computed, by the first part of it."""
    runs: Counter[int] = Counter()
    for number, layer in enumerate(objective.stack.layers):
        part = next(layer.children())
        part.register_forward_hook(lambda *_, number=number: runs.update([number]))
    return runs


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2", "xlnet", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("depth", [0, 2])
def test_checkpointed_layers_give_the_same_numbers(make: Make, family: str, depth: int) -> None:
    cell = Cell(depth, 1e-3, 1)
    plain = make(family, dropout=True)
    once = counted(plain)
    kept, again = plain(cell, ignore), weights(plain)
    saving = make(family, dropout=True, fitting=Fitting(gradient_checkpointing=True))
    twice = counted(saving)
    record = saving(cell, ignore)
    assert all(twice[layer] > once[layer] > 0 for layer in range(depth, tiny.LAYERS)), "computed again"
    assert losses(record) == losses(kept)
    assert torch.equal(weights(saving), again)
    assert all("forward" not in vars(layer) for layer in saving.stack.layers)


def train_within_a_limit(folder: Path) -> None:
    torch.backends.mkldnn.enabled = False  # it asks the system for memory past all that is free here
    reserves = [mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE) for _ in range(8)]
    said: list[str] = []

    def warn(message: str) -> None:
        # A system that is short of memory still starts threads; a process at its limit cannot.
        said.append(message)
        reserves.pop().close()

    model = tiny.save_model("bert", folder / "model", hidden_size=256, intermediate_size=1024)
    objective = FineTuning(
        data=load_data(get_task("sst2"), tiny.save_data(folder / "data", 256)),
        model_path=model,
        model_fingerprint="tiny",
        recipe=Recipe(epochs=1, batch_size=256, max_length=32),
        cache=PrefixCache(folder / "cache", warn=warn),
    )
    objective(Cell(0, 1e-3, 1, 4), ignore)
    status = Path("/proc/self/status").read_text().splitlines()
    used = int(next(line for line in status if line.startswith("VmData")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + 150_000_000, resource.RLIM_INFINITY))
    record = objective(Cell(0, 1e-3, 1), ignore)
    found = {"micro_batch": record.micro_batch, "score": record.score, "said": said}
    (folder / "found.json").write_text(json.dumps(found))


def test_a_limit_on_the_process_s_memory_leads_to_a_complete_trial(tmp_path: Path) -> None:
    assert processes.run(train_within_a_limit, tmp_path) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["micro_batch"] in (32, 64, 128)
    assert 0 <= found["score"] <= 1
    assert any("out of memory with a micro-batch of 256" in line for line in found["said"])


def test_auto_is_the_whole_batch_and_nonsense_is_refused() -> None:
    from objectives.settings import declared

    item = next(item for item in declared(Fitting) if item.name == "micro_batch")
    assert Fitting(micro_batch=item.read("auto")).micro_batch is None
    assert Fitting(micro_batch=item.read("4")).micro_batch == 4
    with pytest.raises(UsageError, match="--micro-batch 0: use auto or a whole number at least 1"):
        item.read("0")
