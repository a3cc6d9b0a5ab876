"""Every command in the documentation is one that the software takes; those of the front page are run."""

from __future__ import annotations

import argparse
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

import own
import pytest
import tiny

from objectives.contract import ElsaError
from study import export
from study.__main__ import COMMANDS
from study.launching import arguments

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "*/*.md", "study/*/README.md")
    for path in ROOT.glob(pattern)
    if path.name == path.name.upper().replace(".MD", ".md") and not path.parent.name.startswith(".")
)
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`((?:elsa|python|bash|pytest) [^`]+)`")
PLACEHOLDER = re.compile(r"…|\.\.\.|\[--|\bX\b|STUDY|FILE|FOLDER|HOST")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def in_blocks(text: str) -> Iterator[str]:
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if shlex.split(line, comments=True):
                yield " ".join(line.split())


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text()
        spans = (
            " ".join(span.split())
            for span in SPAN.findall(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
        )
        for command in dict.fromkeys([*in_blocks(text), *spans]):
            if not PLACEHOLDER.search(command):
                yield str(page.relative_to(ROOT)), command


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
    else:
        assert words[0] in ("export", "tensorboard"), f"unknown command {words[0]}"


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_a_command_is_taken(page: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path))
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    Path("study.toml").write_text('task = "mrpc"\n')
    try:
        check(shlex.split(command, comments=True))
    except (SystemExit, ElsaError) as error:
        if getattr(error, "code", 1) != 0:
            pytest.fail(f"{page}: {command}: {error}")


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


def test_the_front_pages_way_from_data_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands in their order; a study of a tiny model needs higher rates and fewer runs."""
    text = (ROOT / "README.md").read_text()
    block = BLOCK.findall(text[text.index("## Your data in") :])[0]
    quick, study, out = (shlex.split(line, comments=True)[1:] for line in block.splitlines())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSA_CACHE", "cache")
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    tiny.save_model("bert", Path("my-model"), dropout=False)
    own.save(Path("news.csv"), own.news(200))
    small = ["--learning-rates", "5e-3,", "--seeds", "2", "--epochs"]
    assert (quick[0], study[0], out[0]) == ("launch", "launch", "export")
    own.study(*quick[1:], *small, "1")
    own.study(*study[1:], *small, "6", "--frozen-layers", "0,3")
    assert export.main(out[1:]) == 0
    assert Path("model/model.safetensors").is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        import_module(f"study.{command}").main(["--help"])
    assert not [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
