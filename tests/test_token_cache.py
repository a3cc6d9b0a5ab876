"""Tokens that are kept are the tokens that were made, by this user; anything else is made again."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tiny
from transformers import AutoTokenizer

from objectives.contract import UsageError
from objectives.data import token_cache
from objectives.data.encoding import Encoded, encode
from objectives.data.task_data import TaskData, load_data
from objectives.prefix.prefix_cache import PrefixCache
from objectives.private_files import own_folder
from objectives.tasks.definition import get_task
from study.launching.here import log_folder

TASK = get_task("sst2")


class Tokens:
    """A data set and its tokenizer, which counts how often it is asked."""

    def __init__(self, folder: Path):
        tiny.save_model("bert", folder / "model")
        tiny.save_data(folder / "data", 32)
        self.data: TaskData = load_data(TASK, str(folder / "data"))
        self._tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        self.cache = folder / "cache"
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._tokenizer, name)

    def __call__(self, *given: object, **options: object) -> object:
        self.asked += 1
        return self._tokenizer(*given, **options)

    def encode(self) -> Encoded:
        return encode(
            TASK,
            self.data.train,
            self,  # type: ignore[arg-type]
            max_length=16,
            left=False,
            key="k",
            cache=self.cache,
        )

    @property
    def entry(self) -> Path:
        [found] = self.cache.glob("tokens-*.npz")
        return found


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


def same(one: Encoded, other: Encoded) -> bool:
    return (
        one.digest() == other.digest()
        and one.labels.tolist() == other.labels.tolist()
        and all(np.array_equal(one.columns[name], other.columns[name]) for name in one.columns)
    )


def test_tokens_are_made_once_and_are_the_tokenizers_own(tokens: Tokens) -> None:
    first = tokens.encode()
    assert same(tokens.encode(), first)
    assert tokens.asked == 1
    texts = tokens.data.train["sentence"][:]
    expected = tokens._tokenizer(texts, truncation=True, max_length=16)["input_ids"]
    rows = [first.columns["input_ids"][a:b].tolist() for a, b in pairwise(first.offsets)]
    assert rows == expected
    assert first.labels.tolist() == tokens.data.train["label"][:]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def swap(path: Path) -> None:
    """A file that is whole, with arrays that are not those which its checksum is of."""
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["input_ids"] = arrays["input_ids"][::-1]
    with path.open("wb") as file:
        np.savez(file, **arrays)


def other_format(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, input_ids=np.arange(5))


@pytest.mark.parametrize("damage", [flip, truncate, empty, swap, other_format])
def test_a_damaged_entry_is_made_again(
    tokens: Tokens, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    first = tokens.encode()
    damage(tokens.entry)
    assert same(tokens.encode(), first)
    assert "is damaged" in caplog.text
    assert same(tokens.encode(), first)
    assert tokens.asked == 2, "it is whole again"


def test_an_entry_of_another_user_is_not_read(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = tokens.encode()
    monkeypatch.setattr(token_cache, "is_own", lambda path: not path.exists())
    assert same(tokens.encode(), first)
    assert tokens.asked == 2
    assert "another user's" in caplog.text


def test_a_full_disk_costs_the_cache_and_nothing_else(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    first = tokens.encode()
    assert len(first) == 32
    assert "No space left on device" in caplog.text
    assert [path.suffix for path in tokens.cache.iterdir()] == [".lock"]


def test_the_folder_is_the_users_alone(tmp_path: Path) -> None:
    for place in ("tokens", "states", "deep/in/a/folder"):
        folder = tmp_path / place
        PrefixCache(folder) if place == "states" else own_folder(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    logs = log_folder(str(tmp_path / "cache"))
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert logs.parent.parent == tmp_path / "cache"


def test_a_folder_that_others_can_read_is_closed_unless_it_holds_more_than_a_cache(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    for folder in (cache, home, cache / "logs"):
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    (cache / "logs" / "20260102-030405-host-1").mkdir()
    (cache / "tokens-x.npz").touch()
    (home / "letter.txt").touch()
    log_folder(str(cache))
    own_folder(home)
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (cache, cache / "logs", home)]
    assert modes == [0o700, 0o700, 0o755]


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(UsageError, match="can be written by others: chmod 700"):
        PrefixCache(tmp_path / "shared")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    first = tokens.encode()
    os.chown(tokens.entry, 65534, 65534)
    assert same(tokens.encode(), first)
    assert tokens.asked == 2
    os.chown(tokens.cache, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        tokens.encode()
