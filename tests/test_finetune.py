"""One trial: determinism, what is trained, what stays, what is measured, and equal numbers both ways."""

from __future__ import annotations

import os
import resource
import shutil
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from objectives import machine
from objectives.capabilities import Capabilities
from objectives.contract import Attempt, Cell, CurvePoint, Recipe, TrialFailed, UsageError
from objectives.data.task_data import load_data
from objectives.machine import private_memory_bytes
from objectives.prefix.prefix_cache import PrefixCache
from objectives.prefix.states import DeviceStates
from objectives.pretrained.models import identify
from objectives.tasks.definition import get_task
from objectives.training.finetune import FineTuning
from objectives.training.schedule import Schedule

Make = Callable[..., FineTuning]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        family: str = "bert",
        *,
        dropout: bool = True,
        budget: int | None = None,
        warn: Callable[[str], None] = print,
        train: int = 48,
        largest: int | None = None,
        cache: Path = tmp_path / "cache",
        changes: dict[str, Any] | None = None,
        **recipe: Any,
    ) -> FineTuning:
        path = tiny.save_model(family, tmp_path / f"{family}-{dropout}", dropout=dropout, **(changes or {}))
        data = load_data(get_task("sst2"), tiny.save_data(tmp_path / f"data-{train}", train))
        return FineTuning(
            data=data,
            model_path=path,
            model_fingerprint=identify(path).fingerprint,
            recipe=Recipe(**{"epochs": 2, "batch_size": 8, "max_length": 32, **recipe}),
            cache=PrefixCache(cache, budget, warn),
            largest_train_size=largest,
        )

    return build


def run(
    objective: FineTuning,
    frozen_layers: int,
    seed: int = 1,
    rate: float = 1e-3,
    wanted: tuple[int, ...] = (),
    **cell: Any,
) -> Any:
    points: list[CurvePoint] = []
    attempt = Attempt(wanted=lambda: wanted)
    record = objective(Cell(frozen_layers, rate, seed, **cell), points.append, attempt)
    assert tuple(points) == record.curve
    return record


def losses(record: Any) -> list[float]:
    return [point.train_loss for point in record.curve]


def test_same_seed_gives_the_same_bits_whatever_ran_before(make: Make) -> None:
    objective = make()
    first = run(objective, 2, seed=1)
    run(objective, 0, seed=2, rate=1e-2)
    again = run(objective, 2, seed=1)
    assert losses(first) == losses(again)
    assert first.metrics == again.metrics
    assert losses(run(objective, 2, seed=3)) != losses(first)


@pytest.mark.parametrize("frozen_layers", [-1, 0, 1, 3, tiny.LAYERS])
def test_only_what_the_depth_leaves_is_trained(make: Make, frozen_layers: int) -> None:
    objective = make(prefix="live")
    record = run(objective, frozen_layers)
    stack, pretrained = objective.stack, objective.pretrained
    changed = {
        name
        for name, value in objective.model.named_parameters()
        if name not in pretrained.new_parameters and not torch.equal(value, pretrained.pretrained(name))
    }
    frozen: set[str] = set() if frozen_layers == 0 else set(stack.embeddings)
    for name in stack.layer_names[: max(frozen_layers, 0)]:
        frozen |= {n for n, _ in objective.model.named_parameters() if n.startswith(f"{name}.")}
    trained = {n for n, _ in objective.model.named_parameters()} - frozen
    assert changed == trained - set(pretrained.new_parameters)
    assert record.trainable_parameters == sum(objective.model.get_parameter(n).numel() for n in trained)
    assert record.total_parameters == sum(p.numel() for p in objective.model.parameters())


def test_the_optimiser_holds_exactly_the_trainable_parameters(make: Make) -> None:
    # The paper's own runs left biases and norms out, because a generator was consumed twice.
    objective = make()
    objective.stack.freeze(2)
    with objective._prepared(Cell(2, 1e-3, 1)) as run:
        held = {id(p) for group in run.optimizer.param_groups for p in group["params"]}
        trainable = {id(p) for p in objective.model.parameters() if p.requires_grad}
        assert held == trainable == {id(p) for p in run.parameters}


def test_frozen_layers_cost_no_backward_pass_and_no_optimiser_state(make: Make) -> None:
    objective = make(prefix="live")
    objective.stack.freeze(3)
    with objective._prepared(Cell(3, 1e-3, 1)) as prepared:
        ran = []
        for layer in objective.stack.layers:
            layer.register_full_backward_hook(lambda module, *_: ran.append(module))
        (batch,) = objective._loader.training(objective._splits["train"], [np.arange(4)])
        objective.accelerator.backward(objective._steps.loss(prepared, batch))
        prepared.optimizer.step()
    assert ran == [objective.stack.layers[3]]
    frozen = [p for p in objective.model.parameters() if not p.requires_grad]
    state = prepared.optimizer.optimizer.state
    assert all(p.grad is None and p not in state for p in frozen)
    assert len(state) == len(prepared.parameters)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_cached_and_live_prefixes_agree_without_dropout(make: Make, family: str) -> None:
    cached, live = make(family, dropout=False), make(family, dropout=False, prefix="live")
    for frozen_layers in (1, 3, tiny.LAYERS):
        ours, theirs = run(cached, frozen_layers), run(live, frozen_layers)
        assert (ours.prefix, theirs.prefix) == ("cached", "live")
        assert losses(ours) == pytest.approx(losses(theirs), rel=1e-5)
        assert ours.metrics == theirs.metrics


@pytest.mark.slow
def test_compiled_layers_give_the_same_numbers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # Generating machine code takes a minute and is not ours to test: the graphs are run as they are.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, compiled = make(dropout=False), make(dropout=False, compile=True)
    expected = run(plain, 2)
    torch._dynamo.utils.counters.clear()
    record = run(compiled, 2)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 2, "trained and evaluated as compiled"
    assert losses(record) == pytest.approx(losses(expected), rel=1e-4)
    assert record.metrics == expected.metrics
    assert all("forward" not in vars(layer) for layer in compiled.stack.layers)


def test_a_machine_that_cannot_compile_says_so_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no working C++ compiler\nmore")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UsageError, match=r"does not work here \(no working C\+\+ compiler\); leave it out"):
        make(compile=True)


def test_mixed_precision_lasts_over_trials_and_keeps_cached_states_small(make: Make) -> None:
    objective = make(dropout=False, mixed_precision="bf16")
    first, again = run(objective, 2), run(objective, 2)
    assert losses(first) == losses(again)
    assert losses(first) == pytest.approx(losses(run(make(dropout=False), 2)), rel=2e-2)
    with pytest.raises(UsageError, match=r"fp16 does not run on cpu x1, .* --mixed-precision no or bf16"):
        make(mixed_precision="fp16")


def test_states_are_stored_where_room_cannot_be_reserved(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")  # as on macOS
    assert run(make(), 2).prefix == "cached"


@pytest.mark.parametrize("prefix", ["cached", "live"])
def test_between_layers_full_precision_runs_cached_or_not(make: Make, prefix: str) -> None:
    objective = make("gpt2", mixed_precision="bf16", prefix=prefix)
    seen: set[torch.dtype] = set()
    for layer in list(objective.stack.layers)[2:]:
        layer.register_forward_pre_hook(lambda _layer, states: seen.add(states[0].dtype))
    run(objective, 2)
    assert seen == {torch.float32}


def test_any_seed_will_do(make: Make) -> None:
    objective = make()
    assert losses(run(objective, 2, seed=20_240_101)) != losses(run(objective, 2, seed=20_240_102))


def test_dropout_tells_a_cached_prefix_from_a_live_one(make: Make) -> None:
    assert losses(run(make(), 3)) != losses(run(make(prefix="live"), 3))


def test_a_cache_beyond_the_budget_gives_the_same_numbers_and_says_so(make: Make) -> None:
    said: list[str] = []
    kept, computed = run(make(), 2), run(make(budget=100, warn=said.append), 2)
    assert (kept.prefix, computed.prefix) == ("cached", "uncached")
    assert losses(kept) == pytest.approx(losses(computed), rel=1e-6)
    assert kept.metrics == computed.metrics
    assert "exceed the budget of 100" in said[0]


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("dropout", [False, True])
def test_stored_one_by_one_together_as_one_token_or_not_at_all_the_numbers_are_the_same(
    make: Make, family: str, dropout: bool, tmp_path: Path
) -> None:
    """Of the last two depths: at the last one most heads read but one token."""
    deepest = tiny.LAYERS
    wanted = (1, deepest - 1, deepest)
    usual = make(family, dropout=dropout, epochs=1)
    whole = make(family, dropout=dropout, epochs=1, cache=tmp_path / "whole")
    assert whole._splits.builder.head_token is not None
    whole._splits.builder.head_token = None
    none = make(family, dropout=dropout, epochs=1, cache=tmp_path / "none", budget=100, warn=lambda _: None)
    for depth in (deepest - 1, deepest):
        records = [run(objective, depth, wanted=wanted) for objective in (usual, whole, none)]
        assert [record.prefix for record in records] == ["cached", "cached", "uncached"]
        for record in records[1:]:
            assert losses(record) == pytest.approx(losses(records[0]), rel=1e-5)
            assert record.metrics == records[0].metrics
    sizes = [objective._splits.builder.size(deepest) for objective in (usual, whole)]
    assert sizes[0] * 3 < sizes[1]
    assert usual.cache.stored(usual._splits.builder) == [1, deepest - 1, deepest], "in one pass"


def test_states_on_the_device_give_the_same_numbers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped, moved = make("gpt2"), make("gpt2")
    expected = {depth: run(mapped, depth) for depth in (2, tiny.LAYERS)}
    monkeypatch.setattr(Capabilities, "free_bytes", lambda self: 10**9)
    for depth, record in expected.items():
        found = run(moved, depth)
        assert isinstance(moved._splits.states, DeviceStates)
        assert losses(found) == losses(record)
        assert found.metrics == record.metrics


def test_a_disk_that_cannot_hold_the_states_gives_the_same_numbers_and_says_so(make: Make) -> None:
    said: list[str] = []
    kept, objective = run(make(), 2), make(warn=said.append)
    shutil.rmtree(objective.cache.folder)
    objective.cache.folder.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        computed = run(objective, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert computed.prefix == "uncached"
    assert losses(kept) == pytest.approx(losses(computed), rel=1e-6)
    assert "could not be stored" in said[0]
    assert "File too large" in said[0]


def test_a_loss_scale_that_another_trial_ruined_is_not_inherited(make: Make) -> None:
    plain, objective = run(make(max_grad_norm=1e30), 0), make(max_grad_norm=1e30)
    # A CPU has no fp16 training, but its scaler does the same arithmetic, exact for powers of two;
    # only the clipping does not know of it.
    objective.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-140)
    assert losses(run(objective, 0)) == pytest.approx(losses(plain), rel=1e-6)


def test_a_trial_without_memory_frees_what_it_held_before_the_next_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, held = make(), []
    step = objective._steps.step

    def full(run: Any, batch: Any, *others: Any) -> torch.Tensor:
        loss = step(run, batch, *others)
        if not batch.ends_step:
            return loss
        state = next(iter(run.optimizer.optimizer.state.values()))["exp_avg"]
        held.append(weakref.ref(state))
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    given_back: list[bool] = []
    monkeypatch.setattr(objective._steps, "step", full)
    monkeypatch.setattr(machine, "give_back_memory", lambda can: given_back.append(held[-1]() is None))
    with pytest.raises(TrialFailed, match="out of memory with a micro-batch of 1: tried to allocate 2 GiB"):
        run(objective, 0)
    assert given_back == [True] * 4


def test_an_operation_without_a_fixed_order_is_allowed_once_it_was_met(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    objective, plain = make(warn=said.append), run(make(), 2)
    objective._can = Capabilities(torch.device("cuda", 0))
    real, met = objective._run, []

    def strict(*arguments: Any) -> Any:
        if torch.get_deterministic_debug_mode() == 2:
            met.append(True)
            raise RuntimeError("scatter_cuda does not have a deterministic implementation")
        objective._can = Capabilities(torch.device("cpu"))
        return real(*arguments)

    monkeypatch.setattr(objective, "_run", strict)
    torch.use_deterministic_algorithms(True)
    try:
        assert losses(run(objective, 2)) == losses(plain)
    finally:
        torch.use_deterministic_algorithms(False)
    assert met == [True]
    assert "scatter_cuda" in said[0]

    def then_full(*_: Any) -> Any:
        if torch.get_deterministic_debug_mode() == 2:
            raise RuntimeError("scatter_cuda does not have a deterministic implementation")
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    objective._can = Capabilities(torch.device("cuda", 0))
    monkeypatch.setattr(objective, "_run", then_full)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(TrialFailed, match="out of memory"):
            objective(Cell(2, 1e-3, 1), lambda point: None)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
def test_score_is_the_last_or_the_best_evaluation(make: Make) -> None:
    last = run(make(epochs=4), 0, rate=3e-3)
    best = run(make(epochs=4, score="best"), 0, rate=3e-3)
    values = [point.metrics["accuracy"] for point in last.curve]
    assert len(values) == 4
    assert last.score == values[-1]
    assert best.score == max(values)


def test_evaluations_fall_on_fractions_of_an_epoch(make: Make) -> None:
    record = run(make(evaluations_per_epoch=2, epochs=1.5), 4)
    assert [point.epoch for point in record.curve] == [0.5, 1.0, 1.5]
    assert [point.step for point in record.curve] == [3, 6, 9]


def test_warm_up_rises_and_decay_ends_at_zero() -> None:
    schedule = Schedule(Recipe(warmup=0.5, epochs=2, batch_size=8), examples=80)
    factors = [schedule.factor(step) for step in range(21)]
    assert factors[:6] == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert factors[20] == 0
    assert np.allclose(np.diff(factors[5:]), -1 / 15)


def test_divergence_fails_the_trial_for_good(make: Make) -> None:
    with pytest.raises(TrialFailed, match="diverged") as failure:
        run(make(max_grad_norm=1e30), 0, rate=1e30)
    assert not failure.value.retry


def test_selection_split_is_held_out_and_scored(make: Make) -> None:
    objective = make(selection_split=0.25)
    record = run(objective, 4)
    assert record.train_examples == 36
    assert record.selection_score is not None
    assert set(record.metrics) == {"accuracy"}
    assert len(objective._splits["selection"].encoded) == 12


def test_train_size_trains_on_that_many_examples(make: Make) -> None:
    objective = make(largest=40)
    assert run(objective, 4, train_size=16).train_examples == 16
    assert run(objective, 4, train_size=40).curve[-1].step == 10


def test_a_record_says_what_it_cost_and_where(make: Make) -> None:
    record = run(make(), 2)
    assert record.train_seconds > 0
    assert record.examples_per_second == pytest.approx(96 / record.train_seconds, rel=0.01)
    assert record.peak_memory_bytes > 10**7
    assert record.versions["torch"] == torch.__version__
    assert record.device.startswith("cpu")
    assert 0.5 <= record.chance < 0.8


@pytest.mark.slow
def test_the_cost_of_frozen_layers_does_not_depend_on_what_was_cached_before(make: Make) -> None:
    objective = make()
    shallow, deep = run(objective, 2), run(objective, 3)
    again, elsewhere = run(objective, 3, seed=2), run(make(), 3)
    assert 0 < shallow.prefix_seconds < deep.prefix_seconds, "a deeper one stands on it"
    assert deep.prefix_seconds == again.prefix_seconds == elsewhere.prefix_seconds
    assert run(objective, 0).prefix_seconds is None


@pytest.mark.slow
def test_memory_does_not_grow_over_fifty_trials(make: Make) -> None:
    objective = make(epochs=0.34, changes={"hidden_size": 128, "intermediate_size": 256})
    for trial in range(5):
        run(objective, trial % 4, seed=trial)
    before = private_memory_bytes()
    for trial in range(45):
        run(objective, trial % 4, seed=trial)
    assert private_memory_bytes() - before < 20e6


def test_grouping_by_length_shuffles_but_loses_nothing(make: Make) -> None:
    from objectives.data.encoding import training_batches

    lengths = np.random.default_rng(0).integers(3, 100, 1000)
    batches = training_batches(lengths, 16, np.random.default_rng(1), True)
    assert sorted(np.concatenate(batches)) == list(range(1000))
    padded = sum(lengths[b].max() * len(b) for b in batches) / lengths.sum()
    plain = training_batches(lengths, 16, np.random.default_rng(1), False)
    assert padded < 1.05 < sum(lengths[b].max() * len(b) for b in plain) / lengths.sum()
    means = [lengths[b].mean() for b in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5
