"""Every command in the documentation is one that the software takes; test_readmes_run.py runs them."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import documented
import pytest
from documented import PAGES, ROOT

from objectives.contract import ElsaError
from study.__main__ import COMMANDS
from study.launching import arguments

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Parsed(BaseException):
    """The command's own parser has taken its arguments."""


@contextmanager
def parsing() -> Iterator[None]:
    """The command ends once its arguments are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(*given: Any, **named: Any) -> None:
        parse(*given, **named)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch, suppress(Parsed):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
        yield
        raise AssertionError("no parser was asked")


def check_elsa(words: list[str]) -> None:
    assert words[0] in COMMANDS, words[0]
    if len(words) == 1:  # Only named.
        return
    if words[0] != "launch":
        with parsing():
            import_module(f"study.{words[0]}").main(words[1:])
        return
    whole = {"--task", "--demo", "--spec", "--recorded"} & set(words)
    arguments.parse([*words[1:], *([] if whole else ["--task", "mrpc"])])


def check(words: list[str]) -> None:
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    words = words[: words.index(">")] if ">" in words else words
    if words[:2] == ["python", "-m"] and words[2].startswith("study."):
        check_elsa([words[2].removeprefix("study."), *words[3:]])
    elif words[0] == "elsa":
        check_elsa(words[1:])
    elif words[0] == "python":
        with pytest.MonkeyPatch.context() as patch, parsing():
            patch.setattr(sys, "argv", words[1:])
            patch.syspath_prepend(ROOT / "scripts")
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    elif words[0] == "bash":
        subprocess.run(["bash", "-n", words[1]], cwd=ROOT, check=True)
    elif words[0] == "pytest":
        assert all((ROOT / word).is_file() for word in words[1:])
    elif words[:2] == ["pip", "install"]:
        asked = re.search(r"\[(.*)\]", words[-1])
        assert asked
        assert set(asked[1].split(",")) <= EXTRAS.keys()
        assert all((ROOT / words[at + 1]).is_file() for at, word in enumerate(words) if word == "-c")
    elif words[0].startswith("scripts/"):
        assert os.access(ROOT / words[0], os.X_OK), f"{words[0]} is not executable"
    else:
        assert words[0] in ("export", "mkdir"), f"unknown command {words[0]}"


@pytest.mark.parametrize("command", documented.commands())
def test_a_command_is_taken(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path))
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    Path("study.toml").write_text('task = "mrpc"\n')
    try:
        check(shlex.split(command, comments=True))
    except (SystemExit, ElsaError) as error:
        if getattr(error, "code", 1) != 0:
            pytest.fail(f"{command}: {error}")


def test_every_page_links_to_files_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_the_front_page_is_short_and_names_every_room() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    for room in ("objectives", "storage", "study", "scripts"):
        assert f"({room}/README.md)" in text, room


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        import_module(f"study.{command}").main(["--help"])
    assert not [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
