"""A trial that is sharded over two processes gives the numbers of one that is not, and of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tiny
from safetensors.torch import load_file
from transformers import AutoConfig

from objectives.contract import Attempt, Cell, CurvePoint, Recipe, UsageError
from objectives.fitting import Fitting
from objectives.pretrained.footprint import Fit, shapes
from study import launch
from study.workers.process_group import group_environments

if TYPE_CHECKING:
    from objectives.training.finetune import FineTuning

ROOT = Path(__file__).parent.parent
LAYERS = 2
TRAIN = 9
"""With batches of 8 the last batch is one example: a process of the two then has none."""
VALIDATION = 24
"""Evaluated in one batch: a process of the two has none."""
TOLERANCE = 1e-6
"""Of losses: sums of gradients are rounded in another order."""

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "nothing frozen": ("bert", {}, {}, 0),
    "cached": ("bert", {}, {}, 1),
    "all cached": ("bert", {}, {}, 2),
    "live": ("bert", {"prefix": "live"}, {}, 1),
    "too large for the cache": ("bert", {}, {}, 1),
    "in micro-batches": ("bert", {}, {"micro_batch": 3}, 0),
    "checkpointing": ("bert", {}, {"gradient_checkpointing": True}, 1),
    "bf16": ("bert", {"mixed_precision": "bf16"}, {}, 1),
    "unused parameters": ("xlnet", {}, {}, 0),
    "a decoder": ("llama", {}, {}, 1),
    "dropout": ("dropping", {}, {"gradient_checkpointing": True}, 0),
}
"""Model, recipe, fitting and depth."""
ALONE = [name for name in CASES if name not in ("dropout", "bf16")]
"""Other processes drop other values, and round other sums to 16 bits."""
RECIPE: dict[str, Any] = {
    **{"epochs": 2, "batch_size": 8, "max_length": 32},
    **{"weight_decay": 0.1, "max_grad_norm": 0.5},
}
WHOLE = ["nothing frozen", "cached", "in micro-batches", "dropout", "bf16"]
"""Trained by two processes without sharding, too."""

PROGRAM = """
import sys; sys.path.insert(0, "tests")
from test_shard import train
train(sys.argv[1])
"""


class Killed(Exception):
    pass


def train(place: str) -> None:
    """Every case; in a process of several, sharded and not. What was measured goes to a file."""
    from objectives.data.task_data import load_data
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.tasks.definition import get_task
    from objectives.training.checkpoints import Checkpoints
    from objectives.training.finetune import FineTuning
    from objectives.training.kept import KeptModels

    folder = Path(place)
    data = load_data(get_task("sst2"), str(folder / "data"))
    grouped = "WORLD_SIZE" in os.environ

    def make(
        family: str, recipe: dict[str, Any], fitting: Fitting, budget: int | None, **more: Any
    ) -> FineTuning:
        return FineTuning(
            data=data,
            model_path=str(folder / family),
            model_fingerprint=family,
            recipe=Recipe(**{**RECIPE, **recipe}),
            cache=PrefixCache(folder / f"cache-{grouped}", budget, lambda text: None),
            fitting=fitting,
            **more,
        )

    made: dict[str, FineTuning] = {}
    found: dict[str, dict[str, Any]] = {}
    for shard in (False, True) if grouped else (False,):
        for name, (family, recipe, fitting, depth) in CASES.items():
            if name not in (ALONE if not grouped else CASES if shard else WHOLE):
                continue
            budget = 0 if name == "too large for the cache" else None
            key = repr((shard, family, recipe, fitting, budget))
            # Trials of one worker share a model: each must find it as it was.
            objective = made.get(key) or make(family, recipe, Fitting(shard=shard, **fitting), budget)
            made[key] = objective
            reported: list[CurvePoint] = []
            record = objective(Cell(depth, 3e-3, 1), reported.append)
            assert tuple(reported) == record.curve, "every process reports"
            found[f"{name}, sharded" if shard else name] = record.to_dict()
    if grouped:
        keeping = {
            shard: make(
                "bert",
                {"score": "best"},
                Fitting(shard=shard),
                None,
                checkpoints=Checkpoints(folder / f"checkpoints-{shard}", 0.0, "tiny", print),
                kept=KeptModels(folder / f"kept-{shard}", "tiny", print),
            )
            for shard in (False, True)
        }
        for shard, objective in keeping.items():
            found[f"kept, {shard}"] = objective(
                Cell(0, 3e-3, 1), lambda point: None, Attempt(token="whole")
            ).to_dict()

        if objective.accelerator.is_main_process:
            Checkpoints(folder / "checkpoints-True", 0.0, "tiny", print).remove_all()

        def stepped(done: int, *_: object) -> None:
            if done > 3:
                raise Killed

        for token, depth in (("a", 1), ("b", 0)):
            with suppress(Killed):
                keeping[True](Cell(depth, 3e-3, 1), lambda point: None, Attempt(token=token, stepped=stepped))
        found["resumed"] = keeping[True](Cell(0, 3e-3, 1), lambda point: None, Attempt(token="c")).to_dict()
    rank = objective.accelerator.process_index
    (folder / f"records-{2 if grouped else 1}-{rank}.json").write_text(json.dumps(found))
    if grouped:
        _fail_alone(keeping[True], rank, folder / f"failure-{rank}")


def _fail_alone(objective: FineTuning, rank: int, file: Path) -> None:
    """The second process fails between two steps and is gone; the first one is left in an exchange."""

    def stepped(done: int, *_: object) -> None:
        if rank == 1 and done == 2:
            raise Killed

    try:
        objective(Cell(0, 3e-3, 5), lambda point: None, Attempt(token="d", stepped=stepped))
    except (Killed, RuntimeError) as error:
        file.write_text(type(error).__name__)
    # The libraries' own clean-up would wait for the other one.
    os._exit(0)


Records = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process and each of two measured, at the same time."""
    folder = tmp_path_factory.mktemp("shard")
    for family in ("bert", "xlnet", "llama"):
        layers = {"n_layer" if family == "xlnet" else "num_hidden_layers": LAYERS}
        tiny.save_model(family, folder / family, dropout=False, **layers)
    tiny.save_model("bert", folder / "dropping", num_hidden_layers=LAYERS)
    tiny.save_data(folder / "data", TRAIN, VALIDATION)
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], env=environment, cwd=ROOT)
        for environment in group_environments(alone, 2)
    ]
    try:
        train(str(folder))
        assert [process.wait(240) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> Records:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("records-*.json")}


def losses(record: dict[str, Any]) -> list[float]:
    return [point["train_loss"] for point in record["curve"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_sharded_trial_trains_as_one_of_whole_processes(records: Records, name: str) -> None:
    first, second = (records[f"records-2-{rank}"] for rank in (0, 1))
    whole, sharded = first[name], first[f"{name}, sharded"]
    assert losses(sharded) == pytest.approx(losses(whole), abs=TOLERANCE, rel=0)
    assert losses(sharded)[-1] != pytest.approx(losses(sharded)[0], abs=1e-3)
    for what in (
        "score",
        "metrics",
        "predictions",
        "prefix",
        "micro_batch",
        "trainable_parameters",
        "processes",
    ):
        assert sharded[what] == whole[what], what
    assert second[f"{name}, sharded"]["curve"] == sharded["curve"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_a_sharded_trial_trains_as_one_process(records: Records, name: str) -> None:
    alone, sharded = records["records-1-0"][name], records["records-2-0"][f"{name}, sharded"]
    assert losses(sharded) == pytest.approx(losses(alone), abs=TOLERANCE, rel=0)
    assert (sharded["score"], sharded["metrics"]) == (alone["score"], alone["metrics"])
    assert (sharded["processes"], alone["processes"]) == (2, 1)
    assert sharded["prefix"] == records["records-2-1"][f"{name}, sharded"]["prefix"]
    if name == "too large for the cache":
        assert sharded["prefix"] == "uncached"


@pytest.mark.slow
def test_a_sharded_trial_goes_on_from_its_checkpoint(records: Records) -> None:
    resumed, whole = (records["records-2-0"][name] for name in ("resumed", "kept, True"))
    assert (resumed["resumed_step"], whole["resumed_step"]) == (2, None)
    for what in ("curve", "metrics", "predictions"):
        assert resumed[what] == whole[what], what


@pytest.mark.slow
def test_kept_weights_are_whole(records: Records) -> None:
    """All of the model, the words that no data holds included."""
    one, other = (records["records-2-0"][f"kept, {shard}"]["weights"] for shard in (False, True))
    assert records["records-2-1"]["kept, True"]["weights"] is None
    expected, found = load_file(one), load_file(other)
    assert found.keys() == expected.keys()
    assert found["bert.embeddings.word_embeddings.weight"].shape == (72, 32)
    for name, value in expected.items():
        assert found[name].numpy() == pytest.approx(value.numpy(), abs=1e-5), name


@pytest.mark.slow
def test_a_process_that_fails_alone_says_so_and_leaves_nobody_waiting(records: Records, folder: Path) -> None:
    failures = [(folder / f"failure-{rank}").read_text() for rank in (0, 1)]
    assert failures[1] == "Killed"
    assert failures[0] != "Killed"


REFUSALS = """
import sys
from objectives.contract import UsageError
from study import launch, work
for command, *words in (
    (launch, "--task", "sst2", "--shard"),
    (work, "a-study", "--shard"),
    (launch, "--task", "sst2", "--shard", "--processes-per-trial", "2", "--compile"),
    (launch, "--task", "sst2", "--shard", "--processes-per-trial", "2", "--mixed-precision", "fp16"),
):
    try:
        command.main(words)
    except UsageError as error:
        print(error)
assert "torch" not in sys.modules
"""


def test_what_cannot_be_sharded_is_refused_at_once() -> None:
    said = subprocess.run(
        [sys.executable, "-c", REFUSALS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    alone = "--shard needs several processes: use it with --processes-per-trial 2 or more"
    assert said == [
        alone,
        alone,
        "--shard does not run with --compile: leave one of them out",
        "--shard does not run with --mixed-precision fp16: use bf16 or no",
    ]


LARGE = {
    **{"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "vocab_size": 30522,
}


def test_the_estimate_shares_out_weights_gradients_and_optimiser() -> None:
    config = AutoConfig.for_model("bert", **LARGE)
    found = shapes(config, 2, tokens=64, precision="no", host=False)
    one = found.footprint(0, Fit(micro_batch=1, cached=True))
    four = found.footprint(0, Fit(micro_batch=1, cached=True, shards=4))
    words = 30522 * 1024 * 4
    assert four.optimiser == pytest.approx(one.optimiser / 4, rel=1e-6)
    # What runs is whole, twice while it is gathered, and the next in line; so is the gradient of one.
    assert four.weights == pytest.approx(one.weights / 4 + 3 * words, rel=1e-6)
    assert four.gradients == pytest.approx(one.gradients / 4 + words, rel=1e-6)
    assert four.activations == one.activations
    live = found.footprint(12, Fit(micro_batch=1, cached=False, shards=4))
    assert live.weights == four.weights, "frozen layers are shared out, too"
    built = found.footprint(24, Fit(micro_batch=1, cached=True, shards=4))
    assert (built.weights, built.gradients) == (one.weights, 0), "one process computes what is cached"


def test_sharding_is_advised_where_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.save_model("bert", tmp_path / "large")
    (tmp_path / "large" / "model.safetensors").unlink()
    AutoConfig.for_model("bert", **LARGE).save_pretrained(tmp_path / "large")
    monkeypatch.chdir(tmp_path)
    words = ["--task", "sst2", "--data", tiny.save_data(tmp_path / "data"), "--model", "large"]
    words += ["--frozen-layers", "0", "--processes-per-trial", "4", "--memory-limit", "5G", "--workers", "0"]
    with pytest.raises(UsageError, match=r"has 5\.00 GB: use --shard, or freeze at least"):
        launch.main(words)
    assert launch.main([*words, "--shard"]) == 0
    assert "planned: sst2-large-grid" in capsys.readouterr().out
