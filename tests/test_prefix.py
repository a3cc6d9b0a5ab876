"""The prefix cache: built once whoever asks, never stale, never broken, within its budget."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from objectives import prefix
from objectives.data import load_data
from objectives.encoding import Encoded, encode
from objectives.models import Pretrained
from objectives.prefix import Builder, PrefixCache, weight_digests
from objectives.replay import Replay
from objectives.stack import find_layers
from objectives.tasks import get_task

TASK = get_task("sst2")


def builder(
    tmp_path: Path, *, family: str = "bert", train: int = 32, dtype: torch.dtype = torch.float32
) -> Builder:
    model, examples = tmp_path / family, tmp_path / f"data-{train}"
    if not model.exists():  # Others may be reading it.
        tiny.save_model(family, model)
    if not examples.exists():
        tiny.save_data(examples, train)
    loaded = Pretrained(str(model), TASK, torch.device("cpu"))
    data = load_data(TASK, str(examples))
    encoded = encode(
        TASK,
        data.train,
        loaded.tokenizer,
        max_length=16,
        left=False,
        key=f"{train}",
        cache=tmp_path / "tokens",
    )
    stack = find_layers(loaded.model)
    return Builder(
        loaded.model, Replay(loaded.model, stack), encoded, weight_digests(stack), dtype, torch.no_grad
    )


def builds(cache: PrefixCache) -> list[str]:
    log = cache.folder / "builds.log"
    return (
        [line.partition(" ")[2].rpartition(" ")[0] for line in log.read_text().splitlines()]
        if log.exists()
        else []
    )


def everything(made: Builder, states: object) -> torch.Tensor:
    rows = np.arange(len(made.encoded))
    return states.pad_rows(rows, int(made.encoded.lengths.max()))  # type: ignore[attr-defined]


def test_states_are_the_models_own_and_each_depth_stands_on_the_one_before(tmp_path: Path) -> None:
    made, cache = builder(tmp_path), PrefixCache(tmp_path / "cache")
    states = {depth: everything(made, cache.states(made, depth)) for depth in (1, 2, 4)}
    assert builds(cache) == ["depth=1 from=0", "depth=2 from=1", "depth=4 from=2"]
    padded = {name: torch.from_numpy(v) for name, v in made.encoded.pad_rows(np.arange(32)).items()}
    made.model.eval()
    with torch.no_grad():
        hidden = made.model(**padded, output_hidden_states=True).hidden_states
    mask = padded["attention_mask"].bool()
    for depth, found in states.items():
        torch.testing.assert_close(found[mask], hidden[depth][mask], rtol=1e-5, atol=1e-6)
        assert not found[~mask].any(), "padding is not kept"


def test_no_padding_is_stored_and_the_dtype_is_the_runs(tmp_path: Path) -> None:
    made, cache = builder(tmp_path, dtype=torch.bfloat16), PrefixCache(tmp_path / "cache")
    assert everything(made, cache.states(made, 1)).dtype == torch.bfloat16
    assert cache.used() == made.encoded.offsets[-1] * 32 * 2


def test_a_changed_input_is_never_served_old_states(tmp_path: Path) -> None:
    made = builder(tmp_path)
    keys = {made.key(2), made.key(1)}
    keys.add(builder(tmp_path, train=31).key(2))
    keys.add(builder(tmp_path, dtype=torch.float16).key(2))
    other = builder(tmp_path)
    with torch.no_grad():
        other.replay.stack.layers[1].get_parameter("attention.self.query.weight")[0, 0] += 1e-3
    changed = Builder(
        other.model,
        other.replay,
        other.encoded,
        weight_digests(other.replay.stack),
        other.dtype,
        torch.no_grad,
    )
    keys.add(changed.key(2))
    assert changed.key(1) == made.key(1), "a layer above the depth does not matter"
    assert len(keys) == 5
    shorter = Encoded(
        {n: v[: made.encoded.offsets[-2]] for n, v in made.encoded.columns.items()},
        made.encoded.offsets[:-1],
        made.encoded.labels[:-1],
        made.encoded.pad,
        False,
    )
    assert shorter.digest() != made.encoded.digest()


def test_damage_is_noticed_and_repaired(tmp_path: Path) -> None:
    made, said = builder(tmp_path), []
    first = everything(made, PrefixCache(tmp_path / "cache").states(made, 2)).clone()
    (entry,) = (tmp_path / "cache").glob("*.states")
    content = bytearray(entry.read_bytes())
    content[100] ^= 1
    entry.write_bytes(content)
    fresh = PrefixCache(tmp_path / "cache", warn=said.append)
    assert torch.equal(everything(made, fresh.states(made, 2)), first)
    assert "damaged (checksum)" in said[0]


def test_the_least_recently_used_makes_room(tmp_path: Path) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache", budget_bytes=2 * made.size())
    cache.states(made, 1)
    time.sleep(0.02)
    held = cache.states(made, 2)
    time.sleep(0.02)
    cache.states(made, 1)
    cache.states(made, 3)
    kept = {int(path.stem.rpartition("-")[2]) for path in cache.folder.glob("*.states")}
    assert kept == {1, 3}
    assert cache.used() <= cache.budget()
    assert everything(made, held).any(), "whoever has it open goes on reading"


CHILD = """
import sys, time; sys.path.insert(0, "tests")
from pathlib import Path
import objectives.prefix as prefix, test_prefix
made = test_prefix.builder(Path(sys.argv[1]))
cache = prefix.PrefixCache(Path(sys.argv[1]) / "cache")
print("ready", flush=True); sys.stdin.readline()
for depth in (1, 2, 3): cache.states(made, depth)
run = made.run
def slowly(*arguments):
    run(*arguments)
    print("writing", flush=True)
    time.sleep(600)
made.run = slowly
cache.states(made, 4)
"""


@pytest.mark.slow
def test_processes_build_each_depth_once_and_one_killed_while_building_leaves_nothing_broken(
    tmp_path: Path,
) -> None:
    made, cache = builder(tmp_path), PrefixCache(tmp_path / "cache")
    other = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    other.stdin.write("\n")
    other.stdin.flush()
    for depth in (1, 2, 3):
        cache.states(made, depth)
    assert other.stdout.readline() == "writing\n"
    assert sorted(builds(cache)) == ["depth=1 from=0", "depth=2 from=1", "depth=3 from=2"]

    other.kill()
    other.wait()
    assert list(cache.folder.glob("*.part")), "it was killed in the middle"
    assert len(list(cache.folder.glob("*.states"))) == 3
    assert everything(made, cache.states(made, 4)).any()
    assert not list(cache.folder.glob("*.part")), "what the dead left is removed"


def test_what_another_host_builds_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache")
    theirs, old = cache.folder / "aaaa-1.node-7-999999999.part", cache.folder / "aaaa-2.node-7-999999999.part"
    for part in (theirs, old):
        part.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    cache.states(made, 1)
    assert theirs.exists()
    assert not old.exists()
    assert cache.used() == made.size() + 4, "what is being built takes room too"


def test_states_of_another_user_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = builder(tmp_path)
    PrefixCache(tmp_path / "cache").states(made, 1)
    monkeypatch.setattr(prefix, "is_own", lambda path: False)
    said: list[str] = []
    again = PrefixCache(tmp_path / "cache", warn=said.append)
    assert everything(made, again.states(made, 1)).any()
    assert builds(again) == ["depth=1 from=0"] * 2
    assert "another user's" in said[0]


def test_a_cache_whose_entries_vanish_at_once_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache")

    def vanished(path: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(made, "open", vanished)
    with pytest.raises(OSError, match="as soon as it is built"):
        cache.states(made, 1)


def test_replay_puts_the_models_own_layers_back(tmp_path: Path) -> None:
    made = builder(tmp_path)
    inputs = {name: torch.from_numpy(v) for name, v in made.encoded.pad_rows(np.arange(3)).items()}
    made.model.eval()
    with torch.no_grad():
        before = made.model(**inputs).logits
        with made.replay.skipping(2):
            with pytest.raises(AssertionError, match="no states were loaded"):
                made.model(**inputs)
            made.replay.load(torch.zeros(3, inputs["input_ids"].shape[1], 32))
            assert not torch.equal(made.model(**inputs).logits, before)
        assert torch.equal(made.model(**inputs).logits, before)
