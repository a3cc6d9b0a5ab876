"""Tables as text: aligned, and wrapped where they would be too wide."""

from __future__ import annotations

from objectives.errors import did_you_mean
from study.cli.wording import columns


def test_columns_are_aligned_and_numbers_to_the_right() -> None:
    assert columns([("name", "cells"), ("a longer one", "7")], right=(1,)) == [
        "name          cells",
        "a longer one      7",
    ]


def test_the_widest_column_is_wrapped_until_the_lines_fit() -> None:
    lines = columns(
        [("worker", "doing"), ("one", "waiting for a cell that others run")], indent="  ", width=30
    )
    assert lines == ["  worker  doing", "  one     waiting for a cell", "          that others run"]
    assert max(map(len, lines)) <= 30


def test_a_near_miss_is_named_and_else_all_there_is() -> None:
    assert did_you_mean("gird", ["grid", "paper"]) == "did you mean grid?"
    assert did_you_mean("x", ["grid", "paper"]) == "choose from grid, paper"
    assert did_you_mean("x", ["grid"], "see --help") == "see --help"
