"""The `cache` command: what the machine keeps is listed and removed; what others need or use stays."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import tiny
from built import builder

from objectives.contract import UsageError
from objectives.prefix import entries
from objectives.prefix.entries import Owner, mark_study
from objectives.prefix.prefix_cache import PrefixCache
from study import cache, launch, work
from study.cli.wording import size_text

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """States of a finished study at 1 and 2, of another at 2 and 3, which goes on."""
    made, folder = builder(tmp_path), tmp_path / "cache"
    for study, depths in (("ended", (1, 2)), ("running", (2, 3))):
        kept = PrefixCache(folder, owner=Owner(study, "tiny-bert", "sst2"))
        for depth in depths:
            kept.states(made, depth)
    mark_study(folder, "ended", finished=True)
    monkeypatch.setenv("ELSA_CACHE", str(folder))
    return folder


def depths(folder: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob("*.states"))


def path_of(folder: Path, depth: int) -> Path:
    (found,) = folder.glob(f"*-{depth}.states")
    return found


def test_each_entry_is_listed_with_its_study_model_task_size_and_use(folder: Path, capsys: Shown) -> None:
    then = path_of(folder, 1).stat().st_mtime - 7200
    os.utime(path_of(folder, 1), (then, then))
    assert cache.main([]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines[:3]]
    assert [line[:4] for line in words] == [
        ["ended", "tiny-bert", "sst2", "1"],
        ["ended,", "running", "tiny-bert", "sst2"],
        ["running", "tiny-bert", "sst2", "3"],
    ]
    assert "2h00m ago" in lines[0]
    assert lines[0].endswith("study finished")
    total = sum(entries.held(path) for path in folder.glob("*.states"))
    assert lines[-1] == f"3 entries, {size_text(total)} in {folder}"
    assert cache.main(["--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["studies"] for one in listed] == [["ended"], ["ended", "running"], ["running"]]
    assert sum(one["bytes"] for one in listed) == total


def test_a_studys_states_are_removed_but_for_those_that_others_need(folder: Path, capsys: Shown) -> None:
    assert cache.main(["--remove", "ended"]) == 0
    shown = capsys.readouterr()
    assert depths(folder) == [2, 3]
    assert "removed 1 entry" in shown.out
    assert "frozen_layers=2 of ended, running was kept: running uses it" in shown.err
    with pytest.raises(UsageError, match=r"--remove 'endet': .* it holds states of ended, running"):
        cache.main(["--remove", "endet"])


def test_what_no_unfinished_study_uses_is_removed(folder: Path) -> None:
    assert cache.main(["--finished"]) == 0
    assert depths(folder) == [2, 3]
    mark_study(folder, "running", finished=True)
    assert cache.main(["--finished"]) == 0
    assert not list(folder.glob("*.states"))
    assert not list(entries.entries(folder)), "side files go too"


def test_what_was_not_used_for_days_is_removed(folder: Path) -> None:
    then = path_of(folder, 3).stat().st_mtime - 3 * 86_400
    os.utime(path_of(folder, 3), (then, then))
    assert cache.main(["--unused-for", "4"]) == 0
    assert depths(folder) == [1, 2, 3]
    assert cache.main(["--unused-for", "2"]) == 0
    assert depths(folder) == [1, 2]


def test_what_a_worker_uses_stays_and_is_said(folder: Path, capsys: Shown) -> None:
    with entries.lease(path_of(folder, 1)):
        assert cache.main([]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith("in use")
        assert cache.main(["--unused-for", "0"]) == 1
    assert "frozen_layers=1 of ended is in use by a worker and was kept" in capsys.readouterr().err
    assert depths(folder) == [1]
    assert cache.main(["--unused-for", "0"]) == 0
    assert depths(folder) == []


def test_an_empty_cache_is_listed_and_nothing_is_made(tmp_path: Path, capsys: Shown) -> None:
    assert cache.main(["--cache-dir", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"0 entries, 0.0 KiB in {tmp_path}/none\n"
    assert cache.main(["--cache-dir", str(tmp_path / "none"), "--finished"]) == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_launch_ends_with_what_its_study_leaves_in_the_cache(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save_model("bert", tmp_path / "tiny-bert")
    tiny.save_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path / "cache"))
    words = (
        "--task sst2 --model ./tiny-bert --data data --frozen-layers 0,2,3 --learning-rates 1e-3 --seeds 1"
    )
    asked = [*shlex.split(words), "--epochs", "1", "--study", "mine"]
    assert launch.main([*asked, "--workers", "0"]) == 0
    assert work.main(["mine", "--events", "here"]) == 0
    capsys.readouterr()
    assert launch.main(asked) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("cache: ")
    assert said.endswith("until space is needed; `elsa cache --remove mine` removes them")
    assert depths(tmp_path / "cache") == [2, 3]
    assert cache.main(["--remove", "mine"]) == 0
    assert depths(tmp_path / "cache") == []
