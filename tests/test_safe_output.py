"""What is written is safe whatever names contain: Markdown, CSV, file names; refused before any work."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from test_figures import SCORES, small_table

from objectives.contract import UsageError
from study import launch, operating_points, report
from study import table as table_command
from study.analysis.analyse import analyse
from study.cli.files import check_file, check_folder, write_text
from study.cli.flags import command_line
from study.cli.wording import LONGEST, slug
from study.reporting.content import document
from study.reporting.document import Code, Document, Section
from study.reporting.text import comma_separated, escape, markdown
from study.trials.trial_table import to_csv

NASTY = "<img src=x onerror=alert(1)>&lt;b&gt;[click](http://evil.example)`x` *y* |z\n# heading"


def test_a_name_makes_no_html_no_link_and_no_heading_in_markdown() -> None:
    table = small_table(SCORES, model=NASTY, study=NASTY, reason=NASTY)
    text = markdown(document(table, analyse(table, draws=50)))
    assert "<img" not in text
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not re.search("<(img|a|em|code)[ >]", rendered)
    assert rendered.count("<h1>") == 1
    assert (
        "&lt;img src=x onerror=alert(1)&gt;&amp;lt;b&amp;gt;[click](http:\u2060//evil.example)`x` *y* |z"
        in rendered
    )


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("bert_base_x", "bert_base_x"),
        ("_x_", "\\_x\\_"),
        ("90 % [89–92], 2.9x", "90 % [89–92], 2.9x"),
        ("[a](b)", "[a\\](b)"),
        ("[a]: b", "[a\\]: b"),
        ("a\\*b", "a\\\\\\*b"),
        ("a\n\nb", "a b"),
        ("see https://evil.example", "see https:\u2060//evil.example"),
        ("HTTP://x, www.x.org", "HTTP:\u2060//x, www\u2060.x.org"),
    ],
)
def test_markdown_is_escaped_where_it_would_mean_something(raw: str, told: str) -> None:
    assert escape(raw) == told


def test_nothing_closes_a_block_of_code_before_its_end() -> None:
    text = "elsa work x --data 'a\n```\n# heading\n````'"
    document = Document(title="t", sections=(Section("s", "S", (Code(text),)),))
    rendered = MarkdownIt("commonmark").render(markdown(document))
    assert rendered.count("<h1>") == 1
    assert rendered.count("<pre>") == 1


@pytest.mark.parametrize("word", ["plain", "a b", "a\n```\n# h", "it's\n\x1b[2J\\n", "é\n\u200b"])
def test_a_command_is_one_line_that_bash_reads_back(word: str) -> None:
    line = command_line(["printf", "%s", word])
    assert "\n" not in line
    said = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert said.stdout == word


def test_a_names_formula_is_harmless_in_the_reports_tables() -> None:
    table = small_table(SCORES, model="=cmd|' /C calc'!A0", study="@x")
    for part in document(table, analyse(table, draws=50)).tables:
        for row in csv.reader(comma_separated(part).splitlines()):
            assert not [cell for cell in row if cell[:1] in ("=", "@", "+")], part.name


@pytest.mark.parametrize(
    "name", ["../../../x", "/", "..", "a/../../b", "C:\\x", "x" * 300, "\0", "\ud800" * 200, "."]
)
def test_any_name_becomes_a_files_name(tmp_path: Path, name: str) -> None:
    safe = slug(name)
    assert (tmp_path / safe).resolve().parent == tmp_path.resolve()
    assert safe not in (".", "..", "")
    assert len(safe) <= LONGEST
    assert slug("x" * 300) != slug("x" * 301)


def test_a_tables_model_column_cannot_write_outside_the_reports_folder(tmp_path: Path) -> None:
    parts = [
        small_table(SCORES, model="../../../escaped", train_size=size, task="../" * 20 + "tmp/x")
        for size in (50, 100)
    ]
    table = pd.concat(parts, ignore_index=True)
    out = tmp_path / "deep" / "out"
    paths = report.write(table, analyse(table, draws=50), out)
    assert all(path.resolve().is_relative_to(out.resolve()) for path in paths)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


@pytest.mark.slow
@pytest.mark.parametrize("study", ["../../../escaped", "/"])
def test_a_studys_name_cannot_write_outside_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: str
) -> None:
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    small_table(SCORES).to_csv("trials.csv", index=False)
    assert launch.main(["--recorded", "trials.csv", "--study", study, "--protocol", "grid"]) == 0
    assert len(list(place.glob("report/*/report.html"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert {path.name for path in place.parent.iterdir()} == {"c"}


def test_two_names_that_make_the_same_file_are_two_files(tmp_path: Path) -> None:
    names = ("a/b", "a-b", "A-b")
    parts = [small_table(SCORES, model=name, train_size=size) for name in names for size in (50, 100)]
    table = pd.concat(parts, ignore_index=True)
    paths = report.write(table, analyse(table, draws=50), tmp_path)
    kept = [path for path in paths if path.name.startswith("low_resource")]
    assert len({path.name.lower() for path in kept}) == 3
    found = {next(csv.DictReader(path.open()))["model"] for path in kept}
    assert found == {"a/b", "a-b", "A-b"}


def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "trials.csv"
    small_table(SCORES).to_csv(source, index=False)
    (tmp_path / "file").write_text("")
    worked: list[object] = []
    monkeypatch.setattr("study.trials.sources.read", lambda *given: worked.append(given))
    for command, flag, place in (
        (operating_points.main, "--json", "absent/out.json"),
        (operating_points.main, "--json", "."),
        (operating_points.main, "--json", "file/out.json"),
        (table_command.main, "--out", "absent/out.csv"),
        (report.main, "--out", "file"),
        (report.main, "--out", "file/deeper"),
    ):
        with pytest.raises(UsageError, match=f"{flag} .* cannot be written: ") as refused:
            command([str(source), flag, str(tmp_path / place)])
        assert "\n" not in str(refused.value)
    assert worked == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "trials.csv"]


def test_what_can_be_written_is_not_refused_and_nothing_is_made(tmp_path: Path) -> None:
    check_file(tmp_path / "out.json", "--json")
    check_folder(tmp_path / "a" / "b", "--out")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="no file can have that name"):
        check_file("a\0b", "--json")
    with pytest.raises(UsageError, match="no file can have that name"):
        check_folder("a\0b", "--out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no permission"):
        check_file(tmp_path / "x", "--json")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "taken", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert write_text(tmp_path / "a" / "b", "\ud800").read_text() == "\\ud800"


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    (tmp_path / "dangling").symlink_to("made.csv")
    for name, behind in (("link.csv", "real.csv"), ("dangling", "made.csv")):
        check_file(tmp_path / name, "--out")
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / behind).read_text() == "new"
    (tmp_path / "astray").symlink_to("absent/out.csv")
    with pytest.raises(UsageError, match="there is no folder"):
        check_file(tmp_path / "astray", "--out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "astray",
        "dangling",
        "link.csv",
        "made.csv",
        "real.csv",
    ]


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        check_file(path, "--out")
        # Opened for both, so that nobody waits for the other end.
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            write_text(path, "a,b\n")
            assert os.read(reader, 100) == b"a,b\n"
        finally:
            os.close(reader)
        assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_table_goes_to_standard_output_by_its_device(tmp_path: Path) -> None:
    source = tmp_path / "trials.csv"
    source.write_text(to_csv(small_table(SCORES)))
    # Not /dev/stdout, which a defect would replace for the whole machine where root runs the tests.
    words = [sys.executable, "-m", "study.table", str(source), "--out", "/proc/self/fd/1"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(source.read_text().splitlines()[0])


def test_a_name_of_the_longest_length_can_be_written(tmp_path: Path) -> None:
    assert write_text(tmp_path / ("x" * 255), "y").read_text() == "y"
