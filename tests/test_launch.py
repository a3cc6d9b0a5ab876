"""The whole path on one machine: launch, resume, refuse, and everything that can be asked of it wrongly."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import tiny
from launches import write_table
from optuna.distributions import IntDistribution

from objectives.contract import ElsaError, SpecMismatch, StorageError, UsageError
from storage.database import Database
from study import launch, work
from study.__main__ import dispatch
from study.cli import command, lists
from study.launching import running
from study.workers.join_command import join_command

ROOT = Path(__file__).parent.parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a tiny model and data, and nothing of the person's own settings."""
    tiny.save_model("bert", tmp_path / "tiny-bert")
    tiny.save_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path / "cache"))
    return tmp_path


BASE = shlex.split(
    "--task sst2 --model ./tiny-bert --data data --frozen-layers 0,2-4:2 --learning-rates 1e-3 --seeds 2 "
    "--epochs 1 --batch-size 8"
)


def study_of(place: Path, name: str = "sst2-tiny-bert-grid") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{place}/elsa.db")


@pytest.mark.slow
def test_one_command_from_grid_to_operating_points_and_report_and_again_runs_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main([*BASE, "--workers", "0"]) == 0
    assert "6 cells to run. Run them with: elsa work sst2-tiny-bert-grid" in capsys.readouterr().out
    assert launch.main(BASE) == 0
    shown = capsys.readouterr().out
    assert "6 of 6 cells to run" in shown
    assert "Operating points" in shown
    report = place / "report" / "sst2-tiny-bert-grid"
    assert (report / "report.html").stat().st_size > 10_000
    assert (report / "report.md").exists()

    study = study_of(place)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 6
    trial = study.trials[0]
    assert set(trial.params) == {"frozen_layers", "learning_rate", "seed"}
    assert trial.value == trial.user_attrs["accuracy"]
    assert trial.intermediate_values
    assert trial.user_attrs["train_seconds"] > 0
    assert study.user_attrs["task"] == "sst2"
    assert study.metric_names == ["accuracy"]
    assert "user_attrs_peak_memory_bytes" in study.trials_dataframe().columns

    ended = [trial.datetime_complete for trial in study.trials]
    assert launch.main(BASE) == 0
    assert "nothing to run: all cells" in capsys.readouterr().out
    assert [trial.datetime_complete for trial in study_of(place).trials] == ended


def here(*words: str) -> int:
    """`elsa work` as the one worker process that it starts, but in this process."""
    return work.main(["sst2-tiny-bert-grid", "--events", "here", *words])


@pytest.mark.slow
def test_a_worker_finds_model_and_data_where_it_is_told_and_checks_them(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch.main([*BASE, "--workers", "0"]) == 0
    monkeypatch.setenv("ELSA_STORAGE", f"sqlite:///{place}/elsa.db")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (place / "tiny-bert").rename(elsewhere / "model")
    (place / "data").rename(elsewhere / "data")
    with pytest.raises(UsageError, match="no such folder"):
        here()
    tiny.save_model("roberta", elsewhere / "another")
    with pytest.raises(SpecMismatch, match="has the fingerprint"):
        here("--model", "another", "--data", "data")
    assert here("--model", "model", "--data", "data") == 0
    assert [trial.state.name for trial in study_of(place).trials] == ["COMPLETE"] * 6


@pytest.mark.slow
def test_a_worker_needs_the_name_of_the_study_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the folder that it is started in: the study says where its model and data are."""
    assert launch.main([*BASE, "--frozen-layers", "0,4", "--seeds", "1", "--workers", "0"]) == 0
    monkeypatch.setenv("ELSA_STORAGE", f"sqlite:///{place}/elsa.db")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert here() == 0
    assert [trial.state.name for trial in study_of(place).trials] == ["COMPLETE"] * 2


@pytest.mark.parametrize("more", [[], ["--protocol", "adaptive", "--budget", "40units", "--seeds", "3,"]])
def test_a_spec_file_repeats_a_study(
    place: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*BASE, *more, "--no-group-by-length", "--study", 'a "study"', "--workers", "0"]
    assert launch.main(given) == 0
    before = len(study_of(place, 'a "study"').trials)
    capsys.readouterr()
    assert dispatch(["spec", 'a "study"']) == 0
    (place / "study.toml").write_text(capsys.readouterr().out)
    assert launch.main(["--spec", "study.toml", "--workers", "0"]) == 0, "no difference is found"
    assert len(study_of(place, 'a "study"').trials) == before
    with pytest.raises(SpecMismatch, match=r"recipe\.epochs: 1\.0 -> 2\.0"):
        launch.main(["--spec", "study.toml", "--epochs", "2", "--workers", "0"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epocs = 3", "unknown setting 'epocs': did you mean epochs"),
        ("epochs = 'many'", "--epochs 'many': use a number above 0"),
        ("epochs = [1]", "--epochs [1]: use a number"),
        ("seeds = [1, 1.5]", "--seeds"),
        ("demo = 1", "--demo 1: use true or false"),
        ("epochs = ", "--spec study.toml: Invalid value"),
        ("[recipe]\nepochs = 3", "unknown setting 'recipe'"),
    ],
)
def test_a_spec_file_with_a_mistake_is_refused(place: Path, text: str, words: str) -> None:
    (place / "study.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        launch.main(["--spec", "study.toml", "--task", "sst2"])
    assert words in str(error.value)
    assert str(error.value).startswith("--spec study.toml: ")


@pytest.mark.slow
def test_the_join_command_runs_from_anywhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(place / "table.csv", depths=2, seeds=2)
    assert launch.main(["--recorded", "table.csv", "--workers", "0", "--study", "a study"]) == 0
    assert launch.main([*BASE, "--workers", "0"]) == 0
    with closing(Database.open(f"sqlite:///{place}/elsa.db")) as database:
        command = join_command([database.study("a study")])
        trained = join_command([database.study("sst2-tiny-bert-grid")])
    assert f"--model {place}/tiny-bert --data {place}/data" in trained.replace("\\\n  ", "")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    shell = f'elsa() {{ {sys.executable} -m study "$@"; }}; {command}'
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [trial.state.name for trial in study_of(place, "a study").trials] == ["COMPLETE"] * 4


def test_another_spec_is_refused_with_its_differences(place: Path) -> None:
    launch.main([*BASE, "--workers", "0"])
    with pytest.raises(SpecMismatch, match=r"recipe\.epochs: 1\.0 -> 2\.0"):
        launch.main([*BASE, "--epochs", "2"])
    rows = [json.dumps(row) for row in tiny.sentences(48, 9)]
    (place / "data" / "train.jsonl").write_text("\n".join(rows))
    with pytest.raises(SpecMismatch, match="data_fingerprint"):
        launch.main(BASE)
    assert len(study_of(place).trials) == 6


def test_heartbeat_grace_and_retries_stay_with_the_study(place: Path) -> None:
    assert (
        launch.main([*BASE, "--workers", "0", "--heartbeat", "5", "--grace", "20", "--max-retries", "4"]) == 0
    )
    kept = {"heartbeat_seconds": 5.0, "grace_seconds": 20.0, "max_retries": 4}
    assert kept.items() <= study_of(place).user_attrs.items()
    assert launch.main([*BASE, "--workers", "0", "--join-only"]) == 0
    assert launch.main([*BASE, "--workers", "0", "--grace", "20"]) == 0
    for flags, words in (("--grace 30", "--grace 20 -> 30"), ("--max-retries 5", "--max-retries 4 -> 5")):
        with pytest.raises(SpecMismatch, match=f"{words} .there -> here.. Leave these flags out"):
            launch.main([*BASE, *flags.split()])
    assert len(study_of(place).trials) == 6


def test_a_study_grows_and_its_old_trials_count(place: Path) -> None:
    assert launch.main([*BASE, "--workers", "0"]) == 0
    more = [*BASE, "--seeds", "3", "--frozen-layers", "0-2,4", "--workers", "0"]
    with pytest.raises(SpecMismatch, match="use --extend to add"):
        launch.main(more)
    assert launch.main([*more, "--extend"]) == 0
    trials = study_of(place).trials
    assert len(trials) == 12
    assert len({tuple(trial.params.items()) for trial in trials}) == 12
    assert {str(trial.distributions["seed"]) for trial in trials} == {str(IntDistribution(1, 3))}
    space = {"frozen_layers": [0, 1, 2, 4], "learning_rate": [1e-3], "seed": [1, 2, 3]}
    assert all(trial.system_attrs["search_space"] == space for trial in trials)
    assert len({trial.system_attrs["grid_id"] for trial in trials}) == 12
    assert launch.main(more) == 0, "whoever joins names the study as it is now"
    with pytest.raises(SpecMismatch, match="seeds: 1,2,3 -> 1,2"):
        launch.main([*BASE, "--workers", "0"])


@pytest.mark.slow
def test_a_launcher_that_outlives_an_extension_tells_of_the_study_as_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(place / "table.csv", depths=3, seeds=3)
    recorded = ["--recorded", "table.csv"]
    real = running._work

    def extended_meanwhile(*arguments: object) -> int | None:
        code = real(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(running, "_work", real)
        assert launch.main([*recorded, "--seeds", "3", "--extend", "--workers", "0"]) == 0
        return code

    monkeypatch.setattr(running, "_work", extended_meanwhile)
    assert launch.main([*recorded, "--seeds", "2"]) == 0
    assert "grid: 6 of 9 cells finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--seeds 1", "--extend only adds: --seeds lacks 2, which sst2-tiny-bert-grid has"),
        ("--seeds 3 --epochs 2", "recipe.epochs: 1.0 -> 2.0 .there -> here.; --extend adds to frozen_layers"),
        ("--protocol paper", "--protocol paper has chosen its cells by the lists that it had"),
    ],
)
def test_growing_changes_nothing_else(place: Path, flags: str, words: str) -> None:
    assert launch.main([*BASE, "--workers", "0"]) == 0
    assert launch.main([*BASE, "--protocol", "paper", "--workers", "0"]) == 0
    with pytest.raises((SpecMismatch, UsageError), match=words):
        launch.main([*BASE, "--extend", "--workers", "0", *flags.split()])
    assert len(study_of(place).trials) == 6


def test_a_copy_of_the_model_elsewhere_is_the_same_model(place: Path) -> None:
    launch.main([*BASE, "--workers", "0"])
    (place / "tiny-bert").rename(place / "moved")
    name = ["--study", "sst2-tiny-bert-grid"]
    assert launch.main([word.replace("tiny-bert", "moved") for word in BASE] + name + ["--workers", "0"]) == 0
    config = json.loads((place / "moved" / "config.json").read_text())
    (place / "moved" / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.3}))
    with pytest.raises(SpecMismatch, match="model_fingerprint"):
        launch.main([word.replace("tiny-bert", "moved") for word in BASE] + name)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main([*BASE, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("frozen_layers=") == 6
    assert "36 training steps, 6 per cell" in shown
    assert "on this machine" in shown
    assert not (place / "elsa.db").exists()


@pytest.mark.slow
def test_texts_longer_than_the_models_positions_are_cut_and_that_is_said(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"sentence": " ".join(f"w{i % 60}" for i in range(200)), "label": label} for label in (0, 1) * 8]
    for name in ("train", "validation"):
        (place / "data" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert launch.main([*BASE, "--frozen-layers", "4", "--seeds", "1", "--workers", "0"]) == 0
    assert "100.0 % of the training examples are longer than 64 tokens and are cut" in capsys.readouterr().out
    assert here() == 0
    assert [trial.state.name for trial in study_of(place).trials] == ["COMPLETE"]


@pytest.mark.slow
def test_a_dry_run_knows_what_later_phases_may_cost(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main([*BASE, "--protocol", "paper", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    # the full model too is run again, with seeds that did not choose its rate
    assert "2 cells now, then 6 at the best learning rate" in shown
    assert "48 training steps" in shown
    search = [*BASE, "--protocol", "adaptive", "--dry-run"]
    assert launch.main([*search, "--budget", "5"]) == 0
    assert "within a budget of 5 cells" in capsys.readouterr().out
    assert launch.main(search) == 0
    shown = capsys.readouterr().out
    assert "full fine-tunings' worth of work" in shown
    assert "at most" in shown.splitlines()[-1]


@pytest.mark.slow
def test_a_search_ends_with_the_threshold_it_searched(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(place / "table.csv", depths=5, seeds=3)
    search = ["--recorded", "table.csv", "--protocol", "adaptive", "--threshold", "0.8", "--budget", "4"]
    assert launch.main(search) == 0
    shown = capsys.readouterr().out
    table = shown.partition("Operating points:")[2].partition("Frozen: the most")[0]
    assert set(re.findall(r"^ +(\d+ %) ", table, re.MULTILINE)) == {"80 %"}


def test_a_study_without_the_full_model_is_told_what_it_lacks(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main([*BASE, "--frozen-layers", "2,4", "--workers", "0"]) == 0
    assert "--frozen-layers leaves out 0, the full model" in capsys.readouterr().err


def test_default_grid_is_zero_and_the_upper_half(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ["--task", "sst2", "--model", "./tiny-bert", "--data", "data", "--seeds", "1"]
    assert launch.main([*plain, "--workers", "0"]) == 0
    cells = {(t.params["frozen_layers"], t.params["learning_rate"]) for t in study_of(place).trials}
    assert {depth for depth, _ in cells} == {0, 2, 3, 4}
    assert {rate for _, rate in cells} == {1e-5, 2e-5, 3e-5, 4e-5, 5e-5}


BAD = {
    "extending without planning": ([*BASE, "--extend", "--join-only"], 2, "leave one of them out"),
    "a grace period without end": ([*BASE, "--grace", "inf"], 2, "--grace inf: use a number at least 1"),
    "a threshold without a search": ([*BASE, "--threshold", "0.8"], 2, "is a setting of --protocol adaptive"),
    "a budget without a search": (
        [*BASE, "--budget", "9"],
        2,
        "a setting of --protocol adaptive",
    ),
    "a dry run on no database": ([*BASE, "--dry-run", "--storage", "elsa.db"], 2, "is not a database URL"),
    "unknown task": (["--task", "mrcp"], 2, "did you mean mrpc"),
    "no task": (["--demo"], 2, "--task is missing"),
    "unknown model folder": ([*BASE, "--model", "./nope"], 2, "./nope: no such folder"),
    "layers beyond the model": ([*BASE, "--frozen-layers", "0,5"], 2, "5 is beyond ./tiny-bert, which has 4"),
    "empty grid": ([*BASE, "--seeds", "0"], 2, "--seeds names no value"),
    "no number": ([*BASE, "--learning-rates", "fast"], 2, "'fast' is neither a number nor a range"),
    "rate out of range": (
        [*BASE, "--learning-rates", "3"],
        2,
        "--learning-rates 3.0: use a number above 0, below 1",
    ),
    "no such data": ([*BASE, "--data", "nowhere"], 2, "nowhere: no such folder"),
    "columns of another task": ([*BASE, "--task", "mrpc"], 2, "no column sentence1, sentence2"),
    "unknown protocol": ([*BASE, "--protocol", "magic"], 2, "unknown protocol 'magic'"),
    "unwritable storage": ([*BASE, "--storage", "sqlite:////proc/elsa.db"], 4, "/proc/elsa.db"),
    "unreachable database": ([*BASE, "--storage", "postgresql://u:secret@127.0.0.1:9/x"], 4, "127.0.0.1:9"),
    "unknown flag": ([*BASE, "--epocs", "3"], 2, "unknown flag --epocs: did you mean --epochs?"),
    "an unwritable report": ([*BASE, "--out", "/proc/report"], 2, "--out /proc/report cannot be written"),
    "an endless number of epochs": ([*BASE, "--epochs", "inf"], 2, "--epochs inf: use a number above 0"),
    "a weight decay below zero": ([*BASE, "--weight-decay", "-1"], 2, "--weight-decay -1.0"),
    "a seed that no float holds": ([*BASE, "--seeds", f"1,{2**53 + 1}"], 2, "at most 4,294,967,295"),
    "a million workers": ([*BASE, "--workers", "1000000"], 2, "--workers 1000000"),
    "a range without end": ([*BASE, "--frozen-layers", "0-99999999"], 2, "more than 100,000 values"),
    "a name of 300 characters": ([*BASE, "--study", "x" * 300], 2, "1 to 200 printable characters"),
    "longer than the model's positions": (
        [*BASE, "--max-length", "65"],
        2,
        "--max-length 65 is beyond tiny-bert, which takes 64 tokens",
    ),
    "a name like a flag": ([*BASE, "--study=-x"], 2, "--study '-x': a name that begins with -"),
    "a heartbeat below what clocks resolve": (
        [*BASE, "--heartbeat", "0.1"],
        2,
        "--heartbeat 0.1: use a number at least 0.25",
    ),
    "a grace period below what clocks resolve": (
        [*BASE, "--grace", "0.9"],
        2,
        "--grace 0.9: use a number at least 1",
    ),
    "grace too short": ([*BASE, "--heartbeat", "60", "--grace", "60"], 2, "too short"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_the_right_code_and_nothing_is_written(
    place: Path, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, code, words = BAD[case]
    before = set(os.listdir(place))
    with pytest.raises(SystemExit) as ended:
        command.run(launch.main, arguments)
    shown = capfd.readouterr()
    assert ended.value.code == code
    assert words in shown.err
    assert "secret" not in shown.err
    assert shown.err.count("\n") == 1, shown.err
    assert shown.out == ""
    assert set(os.listdir(place)) <= before | {"cache"}


def test_labels_outside_the_tasks_set_are_refused(place: Path) -> None:
    (place / "data" / "train.jsonl").write_text('{"sentence": "w1", "label": 7}\n')
    with pytest.raises(UsageError, match="example 1 has label 7"):
        launch.main(BASE)


def test_a_study_of_other_software_is_left_alone(place: Path) -> None:
    optuna.create_study(study_name="theirs", storage=f"sqlite:///{place}/elsa.db")
    with pytest.raises(SpecMismatch, match="was not made by this software"):
        launch.main([*BASE, "--study", "theirs"])


def test_join_only_needs_a_study_to_join(place: Path) -> None:
    with pytest.raises(StorageError):
        launch.main([*BASE, "--join-only"])
    assert not (place / "elsa.db").exists()


@pytest.mark.slow
def test_a_failing_trial_is_recorded_and_the_study_goes_on(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [f"rte,m,4,{depth},1e-3,{seed},,COMPLETE,accuracy,0.7," for depth in (0, 4) for seed in (1, 2)]
    rows += [f"rte,m,4,2,1e-3,{seed},,FAIL,accuracy,,diverged: the loss is nan" for seed in (1, 2)]
    header = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score,reason"
    (place / "trials.csv").write_text("\n".join([header, *rows]))
    recorded = ["--recorded", "trials.csv"]
    assert launch.main(recorded) == 1
    trials = study_of(place, "rte-m-grid").trials
    states = [(trial.params["frozen_layers"], trial.state.name) for trial in trials]
    assert sorted(states) == sorted([(d, "FAIL" if d == 2 else "COMPLETE") for d in (0, 2, 4)] * 2)
    shown = capfd.readouterr()
    assert "2 cells ended without a result" in shown.err
    assert "diverged: the loss is nan" in shown.out
    assert launch.main([*recorded, "--accept-failed"]) == 0


@pytest.mark.slow
def test_the_hub_being_away_is_exit_code_three(place: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hf"), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "study.launch", "--task", "mrpc"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1
    for way in ("--data", "--model", "HF_HOME", "--demo"):
        assert way in ended.stderr
    assert not (place / "elsa.db").exists()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0,6-12", (0, 6, 7, 8, 9, 10, 11, 12)), ("-1,0,2", (-1, 0, 2)), ("0-12:4", (0, 4, 8, 12)), ("3-2", ())],
)
def test_lists_and_ranges(text: str, numbers: tuple[int, ...]) -> None:
    assert lists.integers(text) == numbers


def test_ranges_of_rates_are_exact_decimals() -> None:
    assert lists.rates("1e-5-5e-5") == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    assert lists.rates("1e-5-5e-5:2e-5,1e-4") == (1e-5, 3e-5, 5e-5, 1e-4)


def test_a_number_of_seeds_counts_from_one() -> None:
    assert lists.seeds("3") == (1, 2, 3)
    assert lists.seeds("3-4") == (3, 4)


def test_the_elsa_command_reaches_the_others_and_guesses() -> None:
    assert dispatch(["layers", "--demo"]) == 0
    with pytest.raises(ElsaError, match="did you mean launch"):
        dispatch(["lunch"])


MISTAKES = {
    "storage": ["--demo", "--task", "mrpc", "--storage", "postgres//x"],
    "rates": ["--demo", "--task", "mrpc", "--learning-rates", "0"],
    "threshold": ["--demo", "--task", "mrpc", "--protocol", "adaptive", "--threshold", "1.5"],
    "task": ["--task", "mrpcc"],
    "data": ["--task", "mrpc", "--data", "./nowhere"],
    "model": ["--task", "mrpc", "--model", "./nowhere"],
    "out": ["--demo", "--task", "mrpc", "--out", "/proc/nowhere"],
    "table": ["--recorded", "nowhere.csv"],
}


@pytest.mark.parametrize("words", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_before_anything_slow_is_imported(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom objectives.contract import UsageError\nfrom study.launch import main\n"
        f"try:\n    main({words!r})\nexcept UsageError as error:\n    print(error)\n"
        "slow = {'torch', 'transformers', 'datasets', 'optuna', 'pandas', 'sqlalchemy.orm'}\n"
        "print('imported:', *sorted(slow & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    message, imported = answer.stdout.strip().splitlines()
    assert words[-1] in message or words[-2] in message
    assert imported == "imported:"
    assert list(tmp_path.iterdir()) == []
