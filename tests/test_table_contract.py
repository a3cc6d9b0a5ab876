"""Trial tables from files: analysis and recorded objective read them alike, hostile values included."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.contract import UsageError
from objectives.recorded import read_table
from objectives.table_contract import plain_cell, safe_cell
from study import launch, operating_points, report
from study import table as table_command
from study.trials import trial_table

HEADER = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score"
GOOD = "rte,m,12,0,3e-05,1,,complete,accuracy,0.7"


def write(folder: Path, *lines: str, header: str = HEADER, name: str = "trials.csv") -> str:
    path = folder / name
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return str(path)


def both(path: str) -> str:
    """The error of the two readers, which must be the same line."""
    said = []
    for reader in (trial_table.read_csv, read_table):
        with pytest.raises(UsageError) as caught:
            reader(path)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "\n" not in said[0]
    assert len(said[0]) < 400
    return said[0]


@pytest.mark.parametrize("state", ["complete", "TrialState.COMPLETE", " Complete ", ""])
def test_both_readers_take_a_state_however_it_is_spelled(tmp_path: Path, state: str) -> None:
    path = write(tmp_path, GOOD.replace("complete", state))
    assert trial_table.read_csv(path)["state"].tolist() == ["COMPLETE"]
    [pair] = read_table(path)
    assert [run.state for run in pair.runs] == ["COMPLETE"]


def test_both_readers_take_blanks_a_byte_order_mark_whole_floats_and_short_lines(tmp_path: Path) -> None:
    header = "\ufefftask, model,total_layers,frozen_layers,learning_rate,seed,metric,score,train_seconds"
    path = write(
        tmp_path, " rte , m,12.0,6,3e-5,1,accuracy,0.7", "", "rte,m,12,6,3e-5,2,f 1,0.5,1.5", header=header
    )
    table = trial_table.read_csv(path)
    assert table["total_layers"].tolist() == [12, 12]
    assert table["task"].tolist() == ["rte", "rte"]
    assert table["train_seconds"].tolist()[1] == 1.5
    one = write(tmp_path, " rte , m,12.0,6,3e-5,1,accuracy,0.7", "", header=header, name="one.csv")
    [pair] = read_table(one)
    assert (pair.task, pair.total_layers, pair.seeds) == ("rte", 12, (1,))


def test_a_compressed_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{GOOD}\n".encode()))
    assert len(trial_table.read_csv(path)) == len(read_table(path)) == 1
    path.write_bytes(path.read_bytes()[:20])
    assert "cannot read" in both(str(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "rte,m,2147483648,0,3e-05,1,,,accuracy,0.7",
            "total_layers is '2147483648': use a whole number from 1",
        ),
        ("rte,m,0,0,3e-05,1,,,accuracy,0.7", "total_layers is '0'"),
        ("rte,m,12,0,3e-05,1,1e30,,accuracy,0.7", "train_size is '1e30': use a whole number from 1 to"),
        ("rte,m,12,0,3e-05,1,,,accuracy,1e308", "score is '1e308': use a number from -1e+09 to 1e+09"),
        ("rte,m,12,0,3e-05,1,,,accuracy,inf", "score is 'inf': use a number"),
        ("rte,m,12,0,3e-05,1,,,accuracy,1e999", "score is '1e999': use a number"),
        ("rte,m,12,0,3e-05,1,,,accuracy,1_0", "score is '1_0': use a number"),
        (f"rte,m,12,0,3e-05,{'9' * 400},,,accuracy,0.7", "seed is '999"),
        (
            "rte,m,12,0,3e-05,4294967296,,,accuracy,0.7",
            "seed is '4294967296': use a whole number from 0 to 4294967295",
        ),
        ("rte,m,12,0,3e-05,-1,,,accuracy,0.7", "seed is '-1'"),
        ("rte,m,12,0,3e-05,1.5,,,accuracy,0.7", "seed is '1.5'"),
        ("rte,m,12,0,nan,1,,,accuracy,0.7", "learning_rate is 'nan': use a number above 0"),
        ("rte,m,12,0,0,1,,,accuracy,0.7", "learning_rate is '0'"),
        ("rte,m,12,13,3e-05,1,,,accuracy,0.7", "frozen_layers is '13': use -1 to total_layers, which is 12"),
        ("rte,m,12,-2,3e-05,1,,,accuracy,0.7", "frozen_layers is '-2'"),
        ("rte,m,12,0,3e-05,1,,DONE,accuracy,0.7", "state is 'DONE': use one of COMPLETE"),
        (f"rte,{'m' * 501},12,0,3e-05,1,,,accuracy,0.7", "model is 'mmm"),
        ("rte,,12,0,3e-05,1,,,accuracy,0.7", "model is ''"),
        ("rte,m,12,0,3e-05,1,,,,0.7", "metric is '': a complete trial names its metric"),
    ],
)
def test_both_readers_refuse_the_same_values_in_one_line(tmp_path: Path, line: str, said: str) -> None:
    text = both(write(tmp_path, GOOD, line))
    assert f"trials.csv, line 3: {said}" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot read"),
        (f"{HEADER}\n".encode(), "holds no trials"),
        (b"task,model\na,b\n", "has no column total_layers"),
        (f"{HEADER}\n{GOOD}\nrte,m\0,12\n".encode(), "line 3 has a NUL character"),
        (f"{HEADER}\n".encode() + b"rte,\xff\xfe,12", "cannot read"),
        (f"{HEADER}\n{GOOD},8,9\n".encode(), "line 2 has 12 cells, the header 10"),
        (f"{HEADER},score\n{GOOD},0.7\n".encode(), "two columns named 'score'"),
        (f'{HEADER}\nrte,"m\n'.encode(), "cannot read"),
        (f"{HEADER}\n{'x' * 200_000},m\n".encode(), "cannot read"),
        (f"{HEADER},train_seconds\n{GOOD},fast\n".encode(), "line 2: train_seconds is 'fast': use a number"),
    ],
)
def test_what_is_no_table_is_refused_alike(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "trials.csv"
    path.write_bytes(content)
    assert said in both(str(path))


def test_lines_are_those_of_the_file_where_cells_have_several(tmp_path: Path) -> None:
    lines = [GOOD + ',"two\nlines"', "", GOOD.replace("0.7", "bad") + ","]
    assert "line 5: score is 'bad'" in both(write(tmp_path, *lines, header=f"{HEADER},remark"))


def test_hostile_tables_end_every_command_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "rte,m,2147483648,0,3e-05,1,,,accuracy,0.7")
    for command, arguments in (
        (operating_points.main, [path]),
        (report.main, [path, "--out", str(tmp_path / "out")]),
        (table_command.main, [path]),
        (launch.main, ["--recorded", path, "--storage", f"sqlite:///{tmp_path / 'x.db'}"]),
    ):
        with pytest.raises(UsageError, match="total_layers is '2147483648'"):
            command(arguments)
    assert sorted(tmp_path.iterdir()) == [Path(path)]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "'=1", "''@x", "=cmd|' /C calc'!A0"]
)
def test_a_cell_that_a_spreadsheet_would_run_is_harmless_in_the_file_and_itself_again(
    tmp_path: Path, text: str
) -> None:
    table = trial_table.normalise(
        pd.DataFrame(
            [
                {
                    "task": "rte",
                    "model": text.strip(),
                    "total_layers": 12,
                    "frozen_layers": -1,
                    "learning_rate": 3e-5,
                    "seed": 1,
                    "train_size": None,
                    "state": "FAIL",
                    "metric": "accuracy",
                    "score": None,
                    "reason": text,
                    "+column": "x",
                }
            ]
        ),
        source="here",
    )
    written = trial_table.to_csv(table)
    cells = [cell for row in csv.reader(io.StringIO(written)) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+@\t" and cell]
    assert [cell for cell in cells if cell[:1] == "-"] == ["-1"], "a number stays one"
    path = tmp_path / "trials.csv"
    path.write_text(written, newline="")
    again = trial_table.read_csv(path)
    assert again["model"].tolist() == [text.strip()]
    assert again["reason"].tolist() == [text.strip(" ")]
    assert again["+column"].tolist() == ["x"]
    assert trial_table.to_csv(again) == written


@given(st.text(alphabet="'=+-@\t\r1a. ;\n\"", max_size=12))
def test_safe_cells_are_harmless_and_reversible(text: str) -> None:
    safe = safe_cell(text)
    assert plain_cell(safe) == text
    # As a spreadsheet splits it that separates cells by semicolons.
    for part in re.split("[;\n]", safe)[1:]:
        assert part.lstrip('"')[:1] not in tuple("=+-@\t\r")
    if safe[:1] in tuple("=+-@\t\r") and safe:
        float(safe)  # nothing but a number may begin so
