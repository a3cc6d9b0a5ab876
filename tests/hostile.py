"""Hostile and mistaken inputs to draw from: command lines, spec files, trial tables, data files.

Each `try_*` function feeds one drawn input to the code that must either take it or refuse it with an
ElsaError of one line; anything else it lets through.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import strategies as st

from objectives.contract import ElsaError
from study.cli.command import Parser

# fmt: off
NASTY_NUMBERS = (
    "0", "-1", "1", "1.5", "-0", "1e400", "-1e400", "nan",
    "inf", "-inf", "1e-400", "99999999999999999999", "2147483648", "4294967296", "1,", "9007199254740993",
    "1e308", "0x10", "1_000", "٣", "½", "--1", "1e", "1-2-3",
    "0-99999999", "1e-9-0.9", ",,", "-1,0", "6-12", "0-12:0", "0-12:-1",
)
# fmt: on
NASTY_TEXTS = (
    "",
    " ",
    "../../../x",
    "/",
    "a/b",
    "x" * 300,
    "\x00",
    "\udc80",
    "\ud800",
    "x" * 5000,
    "~nosuchuser/x",
    "-x",
    "a\nb",
    "=1+1",
    "é",
    "'; DROP TABLE studies; --",
    "<script>alert(1)</script>",
    "%s%n{}",
    "-",
    "--",
    "all",
    "nope.csv",
    "sqlite:///x.db?timeout=abc",
    "postgresql://u:p@ss/w0rd@host/x",
    "mysql://",
    "postgresql+psycopg2://h/x",
    "mysql+nosuch://h/x",
    "postgresql://u:hunter2/db",
    "postgresql:/u:hunter2@h/x",
    "u:hunter2@h/x",
    "sqlite:///x.db?timeout=nan",
)
SECRET = "hunter2"
numbers = st.sampled_from(NASTY_NUMBERS) | st.floats().map(str) | st.integers().map(str)
texts = st.sampled_from(NASTY_TEXTS) | st.text(max_size=20)
words = numbers | texts


COMMANDS = ("dashboard", "operating_points", "report", "simulate", "status", "table", "work")
"""Besides launch; without a database or a table at hand, none of them gets further than refusing that."""


class _Parser(Exception):
    pass


@lru_cache
def flag_names(command: str = "launch") -> list[str]:
    """Of the parser that the command makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "parse_args", lambda parser, *_: (_ for _ in ()).throw(_Parser(parser)))
        try:
            import_module(f"study.{command}").main(["--absent"])
        except _Parser as found:
            names = found.args[0]._option_string_actions
    return sorted(set(names) - {"-h", "--help", "--help-all", "--debug", "--demo", "--events"})


@st.composite
def command_lines(draw: st.DrawFn, command: str = "launch") -> list[str]:
    """Flags of a command with any values, some of them without."""
    found: list[str] = []
    for flag in draw(st.lists(st.sampled_from(flag_names(command)), max_size=6)):
        found.append(flag)
        if draw(st.booleans()):
            found.append(draw(words))
        elif draw(st.booleans()):
            found[-1] += f"={draw(words)}"
    return found


@st.composite
def other_commands(draw: st.DrawFn) -> tuple[str, list[str]]:
    command = draw(st.sampled_from(COMMANDS))
    places = draw(st.lists(texts, min_size=1, max_size=2)) if command in ("simulate", "work") else []
    return command, [*draw(command_lines(command)), *places]


ON_A_DATABASE = ("export", "operating_points", "report", "spec", "status", "table")
STUDY = "mrpc-bert-base-grid"
NOT_DRAWN = ("--cache-dir", "--json", "--out", "--watch")
"""Of commands that get as far as writing: any path may be drawn. Such values are among the mistakes."""


def make_database() -> None:
    """The default database of the working folder, with a study that waits for its workers."""
    from launches import write_table

    from study import launch

    table = write_table(Path("table.csv"), depths=2, seeds=2)
    with contextlib.redirect_stdout(io.StringIO()):
        launch.main(["--recorded", str(table), "--workers", "0", "--study", STUDY])


@st.composite
def commands_on_a_database(draw: st.DrawFn) -> tuple[str, list[str]]:
    command = draw(st.sampled_from(ON_A_DATABASE))
    found = ["--out", "out"] if command in ("export", "report") else []
    flags = [flag for flag in flag_names(command) if flag not in NOT_DRAWN]
    drawn = draw(st.lists(st.sampled_from(flags), max_size=3))
    found += [f"{flag}={draw(words)}" if draw(st.booleans()) else flag for flag in drawn]
    return command, [*found, *draw(st.lists(st.just(STUDY) | texts, max_size=2))]


values = st.recursive(
    words | st.booleans() | st.integers() | st.floats() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)


@st.composite
def settings_by_name(draw: st.DrawFn) -> dict[str, Any]:
    """What a spec file or the Python API gives."""
    names = [flag.removeprefix("--").replace("-", "_") for flag in flag_names()]
    return draw(st.dictionaries(st.sampled_from(names) | texts, values, max_size=5))


DEEP = b"\nx = " + b"[" * 3000 + b"]" * 3000


@st.composite
def spec_files(draw: st.DrawFn) -> bytes:
    """Settings as TOML, some of it broken."""
    lines = [f"{name} = {_toml(value)}" for name, value in draw(settings_by_name()).items()]
    text = draw(st.sampled_from(["", "[table]\n", "\ufeff"])) + "\n".join(lines)
    tail = draw(
        st.sampled_from([b"", b"\n", b"\xff", b"\x00", b"\nx = [", b"\nx = 1e400", b"\nseeds = 99e99", DEEP])
    )
    return text.encode("utf-8", "surrogatepass") + tail


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)


GOOD_ROW = {
    "task": "rte",
    "model": "m",
    "total_layers": "4",
    "frozen_layers": "0",
    "learning_rate": "1e-5",
    "seed": "1",
    "train_size": "",
    "state": "COMPLETE",
    "metric": "accuracy",
    "score": "0.7",
}
COLUMNS = list(GOOD_ROW)
BROKEN_LINES = ["null", "1", "[]", "{", '"x"', '{"label": 1e999}']


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Trial tables: good rows with some cells replaced, columns dropped or doubled, bytes flipped."""
    columns = draw(st.permutations(COLUMNS)) if draw(st.booleans()) else list(COLUMNS)
    columns = columns[draw(st.integers(0, 1)) :]
    lines = [",".join(columns)]
    for _ in range(draw(st.integers(0, 5))):
        row = GOOD_ROW | draw(st.dictionaries(st.sampled_from(COLUMNS), words, max_size=2))
        cells = [row[name] for name in columns]
        if draw(st.booleans()):
            cells = ['"' + cell.replace('"', '""') + '"' for cell in cells]
        lines.append(",".join(cells))
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return text + draw(st.sampled_from([b"", b"\n", b"\x00", b"\xff\xfe", b'"', b"\n,,,,,"]))


@st.composite
def data_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A name with its ending, and content that is nearly JSON Lines or CSV."""
    ending = draw(st.sampled_from([".jsonl", ".csv", ".json", ".tsv"]))
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {}, optional={"sentence": values, "label": values, "text": values, "category": values}
            ),
            max_size=6,
        )
    )
    if ending in (".jsonl", ".json"):
        lines = [json.dumps(row) for row in rows]
        lines += draw(
            st.lists(st.sampled_from(["null", "1", "[]", "{", '"x"', '{"label": 1e999}']), max_size=2)
        )
        text = "\n".join(lines) if ending == ".jsonl" else f"[{','.join(lines)}]"
    else:
        gap = "," if ending == ".csv" else "\t"
        text = "\n".join(
            [gap.join(["sentence", "label"]), *(gap.join(map(str, row.values())) for row in rows)]
        )
    tail = draw(st.sampled_from([b"", b"\n", b"\xff", b"\x00", b"\xef\xbb\xbf"]))
    return ending, text.encode("utf-8", "surrogatepass") + tail


def refused_or_taken(action: Callable[[], Any]) -> str | None:
    """The one line of a refusal; None where the input was taken. Everything else is a defect."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            action()
        except ElsaError as error:
            line = str(error)
            assert line.strip(), "a refusal without a word"
            assert "\n" not in line, f"more than one line: {line!r}"
            assert len(line) < 2000, "a refusal without end"
            assert SECRET not in line, "a password was shown"
            return line
        except SystemExit as left:
            if left.code:
                raise
    return None


def try_command_line(argv: list[str]) -> str | None:
    from study.launching.arguments import parse
    from study.launching.request import check_quickly

    return refused_or_taken(lambda: check_quickly(parse(argv)))


def try_other_command(words: tuple[str, list[str]]) -> str | None:
    """What would run until somebody ends it, a watched status and a dashboard, ends at once."""
    command, argv = words
    with (
        patch("study.status._watch", return_value=0),
        patch("socketserver.BaseServer.serve_forever"),
    ):
        return refused_or_taken(lambda: import_module(f"study.{command}").main(argv))


def try_spec_file(content: bytes, folder: Path) -> str | None:
    from study.launching.arguments import parse

    (folder / "spec.toml").write_bytes(content)
    return refused_or_taken(lambda: parse(["--spec", str(folder / "spec.toml")]))


def try_settings(given: dict[str, Any]) -> str | None:
    from study.launching.arguments import from_values

    return refused_or_taken(lambda: from_values(given))


def try_table(content: bytes, folder: Path) -> tuple[str | None, str | None]:
    """As the analysis reads it, and as a recorded study does."""
    from objectives.recorded import read_table
    from study.analysis.analyse import analyse
    from study.trials.trial_table import read_csv

    path = folder / "table.csv"
    path.write_bytes(content)
    return (
        refused_or_taken(lambda: analyse(read_csv(path), draws=50)),
        refused_or_taken(lambda: read_table(path)),
    )


def try_data(ending: str, content: bytes, folder: Path) -> str | None:
    """As the training data of a two-class task of sentences."""
    from objectives.data.task_data import load_data
    from objectives.tasks.definition import get_task

    data = folder / "data"
    data.mkdir(exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    (data / f"train{ending}").write_bytes(content)
    (data / "validation.jsonl").write_text('{"sentence": "a", "label": 0}\n{"sentence": "b", "label": 1}\n')
    return refused_or_taken(lambda: load_data(get_task("sst2"), str(data)))
