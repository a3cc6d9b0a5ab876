"""The prefix cache: built once whoever asks, never stale, never broken, never beyond its budget."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from built import builder
from processes import CLEAN

from objectives.data.encoding import Encoded
from objectives.prefix import entries, eviction
from objectives.prefix import prefix_cache as prefix
from objectives.prefix.build_pass import NoRoom, NotFinite
from objectives.prefix.building import Builder, passes, weight_digests
from objectives.prefix.entries import Owner, mark_study
from objectives.prefix.prefix_cache import PrefixCache
from objectives.training.finetune import STORED_DTYPES

DEPTHS = range(1, tiny.LAYERS + 1)


def builds(cache: PrefixCache) -> list[str]:
    log = cache.folder / "builds.log"
    return (
        [line.partition(" ")[2].rpartition(" ")[0] for line in log.read_text().splitlines()]
        if log.exists()
        else []
    )


def everything(made: Builder, states: Any) -> torch.Tensor:
    rows = np.arange(len(made.encoded))
    block: torch.Tensor = states.block(rows, int(made.encoded.lengths.max()))
    return block


def depths_in(cache: PrefixCache) -> set[int]:
    return {int(path.stem.rpartition("-")[2]) for path in cache.folder.glob("*.states")}


def used_at(cache: PrefixCache, made: Builder, depth: int, seconds_ago: float) -> None:
    path = cache.entry(made, depth).path(entries.WHOLE)
    then = path.stat().st_mtime - seconds_ago
    os.utime(path, (then, then))


def really_held(folder: Path) -> int:
    """Bytes of all files of states on the disk: those with a name, and those that are mapped."""
    blocks = {}
    for path in [*folder.glob("*.states"), *folder.glob("*.partial")]:
        found = path.stat()
        blocks[found.st_dev, found.st_ino] = found.st_blocks
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(folder) in line:
            found = Path(f"/proc/self/map_files/{line.split()[0]}").stat()
            blocks[found.st_dev, found.st_ino] = found.st_blocks
    return sum(blocks.values()) * 512


@contextmanager
def counted(made: Builder) -> Iterator[list[float]]:
    """Passes of the data through each layer while it lasts."""
    passed = [0.0] * made.total_layers
    total = float(made.encoded.offsets[-1])
    handles = []
    for number, layer in enumerate(made.replay.stack.layers):

        def count(_module: Any, args: Any, kwargs: Any, number: int = number) -> None:
            if "forward" not in vars(made.replay.stack.layers[number]):
                states = args[0] if args else kwargs["hidden_states"]
                passed[number] += states.shape[0] * states.shape[1] / total

        handles.append(layer.register_forward_pre_hook(count, with_kwargs=True))
    try:
        yield passed
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.slow
def test_states_are_the_models_own_and_each_depth_stands_on_the_one_before(tmp_path: Path) -> None:
    made, cache = builder(tmp_path, chunks=3), PrefixCache(tmp_path / "cache")
    assert len(made.layout.chunks) == 3
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
    (entry,) = cache.folder.glob("*.states")
    assert entry.stat().st_size == made.size(1) == made.encoded.offsets[-1] * 32 * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_wanted_depths_take_one_pass_and_have_the_bits_of_one_by_one(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    made = builder(tmp_path, dtype=dtype, chunks=3)
    together, apart = PrefixCache(tmp_path / "together"), PrefixCache(tmp_path / "apart")
    with counted(made) as passed:
        together.states(made, 2, wanted=lambda: DEPTHS)
    assert depths_in(together) == set(DEPTHS)
    assert max(passed) == min(passed) < 1.3, "each layer saw the data once, with some padding"
    for depth in reversed(DEPTHS):  # each from nothing
        alone = everything(made, apart.states(made, depth))
        assert torch.equal(everything(made, together.states(made, depth)), alone)
    one_by_one = PrefixCache(tmp_path / "one-by-one")
    for depth in DEPTHS:  # each from the one before
        chained = everything(made, one_by_one.states(made, depth))
        assert torch.equal(everything(made, together.states(made, depth)), chained)
    assert builds(one_by_one) == [f"depth={depth} from={depth - 1}" for depth in DEPTHS]


def test_a_pass_takes_on_what_lies_on_its_way() -> None:
    assert passes([6, 7, 12], []) == [(0, [6, 7, 12])]
    assert passes([6, 9, 12], [7]) == [(0, [6]), (7, [9, 12])]
    assert passes([9], [6, 8, 10]) == [(8, [9])]


def test_a_changed_input_is_never_served_old_states(tmp_path: Path) -> None:
    made = builder(tmp_path)
    keys = {made.key(2), made.key(1)}
    keys.add(builder(tmp_path, train=31).key(2))
    keys.add(builder(tmp_path, dtype=torch.bfloat16).key(2))
    half = builder(tmp_path)
    half.precision = "fp16"
    keys.add(half.key(2))
    other = builder(tmp_path)
    with torch.no_grad():
        other.replay.stack.layers[1].get_parameter("attention.self.query.weight")[0, 0] += 1e-3
    other.weights = weight_digests(other.replay.stack)
    keys.add(other.key(2))
    assert other.key(1) == made.key(1), "a layer above the depth does not matter"
    assert len(keys) == 6
    shorter = Encoded(
        {n: v[: made.encoded.offsets[-2]] for n, v in made.encoded.columns.items()},
        made.encoded.offsets[:-1],
        made.encoded.labels[:-1],
        made.encoded.pad,
        False,
    )
    assert shorter.digest() != made.encoded.digest()


@pytest.mark.parametrize("hurt", ["states", "json", "cut"])
def test_damage_is_noticed_and_repaired(tmp_path: Path, hurt: str) -> None:
    made, said = builder(tmp_path, chunks=4), []
    first = everything(made, PrefixCache(tmp_path / "cache").states(made, 2)).clone()
    (entry,) = (tmp_path / "cache").glob("*.states")
    if hurt == "states":
        content = bytearray(entry.read_bytes())
        content[100] ^= 1
        entry.write_bytes(content)
    elif hurt == "json":
        entry.with_suffix(".json").write_text('{"format": 3, "chunks": 7}')
    else:
        os.truncate(entry, 1000)
    fresh = PrefixCache(tmp_path / "cache", warn=said.append)
    with counted(made) as passed:
        assert torch.equal(everything(made, fresh.states(made, 2)), first)
    assert "damaged" in said[0]
    assert (passed[0] < 0.5) == (hurt == "states"), "only the chunk that is wrong is computed again"


def test_the_least_recently_used_makes_room_and_what_is_open_stays(tmp_path: Path) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache", budget_bytes=3 * eviction.cost(made.size(1)))
    for depth in (1, 2, 3):
        cache.states(made, depth)
    used_at(cache, made, 1, 50)
    used_at(cache, made, 2, 100)
    # All are wanted, so that their use decides.
    cache.states(made, 4, wanted=lambda: DEPTHS)
    assert depths_in(cache) == {1, 3, 4}
    held = cache.states(made, 1)
    used_at(cache, made, 1, 1000)
    cache.states(made, 2, wanted=lambda: DEPTHS)
    assert 1 in depths_in(cache)
    assert everything(made, held).any()
    del held
    used_at(cache, made, 1, 1000)
    missing = (set(DEPTHS) - depths_in(cache)).pop()
    cache.states(made, missing, wanted=lambda: DEPTHS)
    assert 1 not in depths_in(cache), "once it is let go, it goes first"


def test_without_room_beside_what_others_read_nothing_is_stored(tmp_path: Path) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache", budget_bytes=int(1.2 * eviction.cost(made.size(1))))
    held = cache.states(made, 1)
    with pytest.raises(NoRoom, match="find no room in the budget of"):
        cache.states(made, 2)
    with pytest.raises(NoRoom, match="exceed the budget of 100"):
        PrefixCache(tmp_path / "small", budget_bytes=100).states(made, 1)
    assert everything(made, held).any()
    assert depths_in(cache) == {1}
    assert not list(cache.folder.glob("*.partial"))


@pytest.mark.parametrize("budget", [1.0, 1.2, 2, 8])
def test_a_small_budget_costs_no_layer_twice_and_is_never_exceeded(tmp_path: Path, budget: float) -> None:
    made = builder(tmp_path, train=200, chunks=7)
    size = eviction.cost(made.size(1))
    cache = PrefixCache(tmp_path / "cache", budget_bytes=int(budget * size))
    compute, seen = made.compute, []

    def watched(*arguments: Any) -> Any:
        seen.append(really_held(cache.folder))
        found = compute(*arguments)
        seen.append(really_held(cache.folder))
        return found

    made.compute = watched  # type: ignore[method-assign]
    with counted(made) as passed:
        for depth in DEPTHS:
            left = range(depth, tiny.LAYERS + 1)
            states = cache.states(made, depth, wanted=lambda left=left: left)  # type: ignore[misc]
            seen.append(really_held(cache.folder))
            assert everything(made, states).any()
            del states
    assert max(passed) == min(passed) < 1.3, "every build starts where the one before ended"
    assert max(seen) <= cache.budget_bytes
    assert max(seen) > size // 2


@pytest.mark.parametrize("died", [1, 3, 5])
def test_a_source_that_was_being_used_up_is_no_loss(tmp_path: Path, died: int) -> None:
    made = builder(tmp_path, train=200, chunks=6)
    whole = everything(made, PrefixCache(tmp_path / "other").states(made, 2))
    cache = PrefixCache(tmp_path / "cache", budget_bytes=int(1.2 * eviction.cost(made.size(1))))
    cache.states(made, 1)
    compute = made.compute

    def dies(chunk: int, *others: Any) -> Any:
        if chunk == died:
            raise KeyboardInterrupt
        return compute(chunk, *others)

    made.compute = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        cache.states(made, 2)
    assert not depths_in(cache)
    made.compute = compute  # type: ignore[method-assign]
    with counted(made) as passed:
        assert torch.equal(everything(made, cache.states(made, 2)), whole)
    assert passed[1] < 1.3 - died / 6, "its finished chunks are taken over"
    assert really_held(cache.folder) <= cache.budget()


def worker(tmp_path: Path, wanted: Collection[int], start: Barrier, stops: Event | None) -> None:
    torch.set_num_threads(1)
    made = builder(tmp_path, chunks=4)
    compute = made.compute

    def stop(chunk: int, *others: Any) -> Any:
        if stops is not None and chunk == 2:
            stops.set()
            signal.pause()
        return compute(chunk, *others)

    made.compute = stop  # type: ignore[method-assign]
    cache = PrefixCache(tmp_path / "cache")
    start.wait(600)
    for depth in wanted:
        cache.states(made, depth, lambda: wanted)


def test_workers_that_start_at_once_build_each_depth_once(tmp_path: Path) -> None:
    builder(tmp_path, chunks=4)
    start = CLEAN.Barrier(3)
    workers = [CLEAN.Process(target=worker, args=(tmp_path, (1, 2, 3), start, None)) for _ in range(3)]
    for one in workers:
        one.start()
    for one in workers:
        one.join(600)
    assert [one.exitcode for one in workers] == [0, 0, 0]
    built = sorted(builds(PrefixCache(tmp_path / "cache")))
    assert built == ["depth=1 from=0", "depth=2 from=0", "depth=3 from=0"]


def test_a_pass_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    made = builder(tmp_path, chunks=4)
    whole = {d: everything(made, PrefixCache(tmp_path / "other").states(made, d)) for d in (1, 3)}
    start, stops = CLEAN.Barrier(1), CLEAN.Event()
    killed = CLEAN.Process(target=worker, args=(tmp_path, (1, 2, 3), start, stops))
    killed.start()
    assert stops.wait(600)
    killed.kill()
    killed.join()
    cache = PrefixCache(tmp_path / "cache")
    assert len(list(cache.folder.glob("*.partial"))) == 3, "it was killed in the middle"
    assert not depths_in(cache)
    with counted(made) as passed:
        found = everything(made, cache.states(made, 1, wanted=lambda: (1, 2, 3)))
    assert torch.equal(found, whole[1])
    assert torch.equal(everything(made, cache.states(made, 3)), whole[3])
    assert passed[2] < 0.8, "two of four chunks were there"
    assert not list(cache.folder.glob("*.partial"))


def test_a_deeper_depth_that_fits_waits_for_the_shallower_one_that_does_not() -> None:
    """Its layers would run twice: for itself now, and for the others later."""
    costs = {1: 10, 2: 10, 3: 10, 4: 1}
    for must, room, targets in ((1, 15, (1,)), (2, 22, (2, 1)), (1, 31, (1, 2, 3, 4)), (1, 25, (1, 2))):
        others = [depth for depth in costs if depth != must]
        plan = eviction.choose(must, others, costs, room, [], source=0)
        assert plan is not None
        assert plan.targets == targets


def test_leftovers_go_first_then_finished_studies_then_what_is_not_wanted_any_more(tmp_path: Path) -> None:
    first, second = builder(tmp_path), builder(tmp_path, train=31)
    size = eviction.cost(first.size(1))
    folder = tmp_path / "cache"
    ended = PrefixCache(folder, 10 * size, owner=Owner("ended", "bert", "sst2"))
    goes_on = PrefixCache(folder, 10 * size, owner=Owner("goes on", "bert", "sst2"))
    for depth in (1, 2):
        ended.states(first, depth)
    goes_on.states(first, 2)
    goes_on.states(second, 3)
    mark_study(folder, "ended", finished=True)
    left = folder / f"{'a' * 24}-7.partial"
    left.write_bytes(b"x" * size)
    used_at(goes_on, second, 3, 1000)

    def after(lacking: int) -> set[tuple[str, int]]:
        """What is left where so many bytes are lacking for one more depth."""
        budget = ended.used() + eviction.cost(second.size(1)) - lacking
        cache = PrefixCache(folder, budget, owner=Owner("new", "bert", "sst2"))
        cache.states(second, 1, wanted=lambda: [1])
        cache.entry(second, 1).remove()
        return {(path.stem[:6], int(path.stem[-1])) for path in folder.glob("*.states")}

    every = {(first.key(d)[:6], d) for d in (1, 2)} | {(second.key(3)[:6], 3)}
    assert after(0) == every
    assert left.exists()
    assert after(1) == every
    assert not left.exists(), "what nobody can use"
    assert after(1) == every - {(first.key(1)[:6], 1)}, "only a finished study has used it"
    assert after(1) == {(first.key(2)[:6], 2)}, "the longest unused"


def test_states_that_are_not_finite_are_refused_for_good(tmp_path: Path) -> None:
    made = builder(tmp_path, chunks=2)
    with torch.no_grad():
        made.replay.stack.layers[2].get_parameter("output.dense.bias")[0] = torch.inf
    cache = PrefixCache(tmp_path / "cache")
    assert everything(made, cache.states(made, 1, wanted=lambda: DEPTHS)).any(), "shallower depths are sound"
    assert depths_in(cache) == {1, 2}
    with (
        counted(made) as passed,
        pytest.raises(NotFinite, match="after 3 frozen layers are not finite") as no,
    ):
        cache.states(made, 3)
    assert not no.value.retry
    assert sum(passed) == 0, "it is known"
    made = builder(tmp_path)
    made.precision = "fp16"
    with torch.no_grad():
        made.replay.stack.layers[3].get_parameter("output.dense.bias")[0] = torch.nan
    with pytest.raises(NotFinite, match=r"not finite in fp16: use --mixed-precision bf16 or no"):
        cache.states(made, 4)


@pytest.mark.parametrize("precision", STORED_DTYPES)
def test_states_beyond_the_range_of_fp16_stay_finite_in_every_precision(
    tmp_path: Path, precision: str
) -> None:
    """As residual streams of trained models do; post-norm layers are given such a value."""
    made = builder(tmp_path, dtype=STORED_DTYPES[precision])
    with torch.no_grad():
        made.replay.stack.layers[0].get_parameter("output.LayerNorm.bias")[0] = 2.0**17
    states = everything(made, PrefixCache(tmp_path / "cache").states(made, 1))
    assert float(states.max()) == pytest.approx(2.0**17, rel=1e-2)
    assert bool(states.isfinite().all())


def test_states_of_another_user_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = builder(tmp_path)
    PrefixCache(tmp_path / "cache").states(made, 1)
    asked: list[Path] = []

    def foreign_at_first(path: Path) -> bool:
        asked.append(path)
        return len(asked) > 1

    monkeypatch.setattr(prefix, "is_own", foreign_at_first)
    said: list[str] = []
    again = PrefixCache(tmp_path / "cache", warn=said.append)
    assert everything(made, again.states(made, 1)).any()
    assert builds(again) == ["depth=1 from=0"] * 2
    assert "another user's" in said[0]


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    made, cache = builder(tmp_path), PrefixCache(tmp_path / "cache")
    cache.states(made, 1)
    path = cache.entry(made, 1).path(entries.WHOLE)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        cache.states(made, 1)
    assert list(entries.entries(cache.folder)) == [cache.entry(made, 1)], "by its side file"
    path.unlink()


def test_a_cache_whose_entries_vanish_at_once_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = builder(tmp_path)
    cache = PrefixCache(tmp_path / "cache")

    def vanished(*_: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(made, "open", vanished)
    with pytest.raises(OSError, match="as soon as it is built"):
        cache.states(made, 1)


def test_an_entry_says_whose_it_is_and_what_it_cost(tmp_path: Path) -> None:
    made, owner = builder(tmp_path), Owner("mrpc-bert", "bert-base", "mrpc")
    PrefixCache(tmp_path / "cache", owner=owner).states(made, 2, wanted=lambda: [2, 4])
    PrefixCache(tmp_path / "cache", owner=Owner("other", "bert-base", "mrpc")).states(made, 2)
    (two, four) = (entries.Entry(tmp_path / "cache", f"{made.key(d)}-{d}").about() for d in (2, 4))
    assert two is not None
    assert four is not None
    assert [one.study for one in two.owners] == ["mrpc-bert", "other"]
    assert four.owners == [owner]
    assert 0 < two.seconds < four.seconds


def test_states_on_the_device_are_the_mapped_ones(tmp_path: Path) -> None:
    from objectives.prefix.states import DeviceStates

    for left in (False, True):
        made = builder(tmp_path, chunks=3)
        object.__setattr__(made.encoded, "left", left)
        mapped = PrefixCache(tmp_path / f"cache-{left}").states(made, 2)
        stored = DeviceStates(mapped, torch.device("cpu"))
        rows = np.array([5, 0, 31, 7])
        width = int(made.encoded.lengths[rows].max()) + 3
        assert torch.equal(stored.values(stored.block(rows, width)), mapped.block(rows, width))


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
