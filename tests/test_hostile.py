"""Any input is taken, or refused in one line; `scripts/fuzz.py` tries many more of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import hostile
import pytest
from hypothesis import HealthCheck, given, settings

from objectives.contract import ElsaError
from study import launch

BUDGET = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    return tmp_path


@pytest.mark.slow
@BUDGET
@given(hostile.command_lines())
def test_any_command_line_is_taken_or_refused_in_one_line(argv: list[str]) -> None:
    hostile.try_command_line(argv)


@BUDGET
@given(hostile.other_commands())
def test_any_words_to_the_other_commands_are_refused_in_one_line(words: tuple[str, list[str]]) -> None:
    hostile.try_other_command(words)


@pytest.fixture
def database(empty_folder: Path) -> None:
    hostile.make_database()


@pytest.mark.slow
@BUDGET
@given(hostile.commands_on_a_database())
def test_any_words_to_commands_on_a_database_are_taken_or_refused_in_one_line(
    database: None, words: tuple[str, list[str]]
) -> None:
    hostile.try_other_command(words)


@pytest.mark.slow
@BUDGET
@given(hostile.spec_files())
def test_any_spec_file_is_taken_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    hostile.try_spec_file(content, tmp_path)


@BUDGET
@given(hostile.settings_by_name())
def test_any_setting_is_taken_or_refused_in_one_line(given: dict[str, Any]) -> None:
    hostile.try_settings(given)


@pytest.mark.slow
@BUDGET
@given(hostile.tables())
def test_any_table_is_taken_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    hostile.try_table(content, tmp_path)


LAUNCH = ["launch", "--demo", "--task", "mrpc", "--workers", "0"]
RECORDED = ["launch", "--recorded", "table.csv", "--workers", "0"]
MISTAKES = [
    [*LAUNCH, "--frozen-layers", "1e400"],
    [*LAUNCH, "--frozen-layers", "0-99999999"],
    [*LAUNCH, "--seeds", "99999999999999999999"],
    [*LAUNCH, "--seeds", "-1"],
    [*LAUNCH, "--seeds", "1000000000"],
    [*LAUNCH, "--seeds", "4294967296,"],
    [*LAUNCH, "--learning-rates", "1e-9-0.9"],
    [*LAUNCH, "--workers", "999999999999"],
    [*LAUNCH, "--epochs", "inf"],
    [*LAUNCH, "--weight-decay", "-1"],
    [*LAUNCH, "--study", "x" * 300],
    [*LAUNCH, "--storage", "sqlite:///x.db?timeout=abc"],
    *([*LAUNCH, flag, "nan"] for flag in ("--epochs", "--weight-decay", "--grace", "--trial-timeout")),
    *([*RECORDED, flag, bad] for flag in ("--recorded-delay", "--heartbeat") for bad in ("nan", "inf")),
    *(["operating_points", "table.csv", "--draws", bad] for bad in ("2000000000", "0", "nan")),
    ["operating_points", "table.csv", "--json", "absent/out.json"],
    ["simulate", "table.csv", "--json", "absent/out.json"],
    ["layers", "--demo", "--json", "absent/out.json"],
    ["layers", "--demo", "--labels", "-1"],
    *(["status", "--watch", bad] for bad in ("nan", "inf", "0", "-1", "1e400", "1e-300")),
    *(
        ["status", "--storage", f"sqlite:///x.db?timeout={bad}"]
        for bad in ("nan", "-1", "1e400", "1&timeout=2")
    ),
    ["status", "--storage-file", "empty"],
    ["cache", "--remove", ""],
    [*RECORDED, "--study=-x"],
    *(["simulate", "table.csv", "--seed", bad] for bad in ("-1", "4294967296", "nan")),
    *(["simulate", "table.csv", flag, "1000000000000"] for flag in ("--repeats", "--workers")),
    *(["simulate", "table.csv", flag, "nan"] for flag in ("--threshold", "--confidence")),
    *(
        ["status", "--storage", bad]
        for bad in (
            "postgresql+psycopg2://h/x",
            "mysql+nosuch://h/x",
            f"sqlite:///{'x' * 5000}",
            "\ud800",
            "\udcff",
        )
    ),
    *([*RECORDED, "--out", bad] for bad in ("x" * 5000, "\udcff", "~nosuchuser/x", "a\0b")),
    *([*RECORDED, flag, "~nosuchuser/x"] for flag in ("--cache-dir", "--models-dir", "--track-dir")),
    *([*RECORDED, flag, "x" * 5000] for flag in ("--cache-dir", "--recorded", "--spec", "--storage-file")),
    *([*RECORDED, flag, "\udcff"] for flag in ("--study", "--storage", "--spec", "--cache-dir")),
    ["launch", "--spec", "a\0b"],
    *(["launch", "--data", bad, "--task", "x", "--workers", "0"] for bad in ("x" * 5000, "\ud800")),
    *(["task", "--data", bad] for bad in ("x" * 5000, "\udcff", "half.jsonl")),
    ["launch", "--spec", "deep.toml"],
    ["task", "deep.toml"],
    ["export", "x", "--out", "x" * 5000],
    ["report", "table.csv", "--out", f"absent/{'x' * 300}"],
    ["dashboard", "--host", "\udcff"],
    *(["dashboard", "--port", bad] for bad in ("99999999", "-1", "nan")),
]


@settings(BUDGET, max_examples=60)
@given(hostile.data_files())
def test_any_data_are_taken_or_refused_in_one_line(tmp_path: Path, file: tuple[str, bytes]) -> None:
    hostile.try_data(*file, tmp_path)


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: " ".join(words)[-60:])
def test_a_mistake_is_one_line_with_a_code_and_nothing_is_written(
    empty_folder: Path, words: list[str]
) -> None:
    (empty_folder / "table.csv").write_text(
        "\n".join([",".join(hostile.COLUMNS), "rte,m,4,0,1e-5,1,,,accuracy,0.7", ""])
    )
    aside = {
        "empty": "",
        "deep.toml": f"x = {'[' * 3000}{']' * 3000}",
        "half.jsonl": '{"text": "\\ud800", "label": 1}\n{"text": "b", "label": 0}\n' * 8,
    }
    for name, text in aside.items():
        (empty_folder / name).write_text(text)
    with pytest.raises(ElsaError) as caught:
        import_module(f"study.{words[0]}").main(words[1:])
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert [path.name for path in empty_folder.iterdir() if path.name not in aside] == ["table.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../../x", "/", "a/../../b", "..", "x.csv"])
def test_a_studys_name_never_leads_out_of_the_reports_folder(empty_folder: Path, name: str) -> None:
    table = "\n".join([",".join(hostile.COLUMNS), "rte,m,4,0,1e-5,1,,,accuracy,0.7", ""])
    (empty_folder / "table.csv").write_text(table)
    inner = empty_folder / "a" / "b" / "c"
    inner.mkdir(parents=True)
    places = ["--storage", f"sqlite:///{empty_folder}/s.db", "--out", str(inner), "--cache-dir", str(inner)]
    before = set(empty_folder.rglob("*"))
    launch.main(["--recorded", "table.csv", "--study", name, *places])
    written = set(empty_folder.rglob("*")) - before
    assert any(path.name == "report.html" for path in written)
    outside = [path for path in written if inner not in path.parents and not path.name.startswith("s.db")]
    assert outside == []


def test_a_flag_with_dashes_for_a_value_is_refused() -> None:
    assert "gives the flag no value" in str(hostile.try_command_line(["--data=--"]))
