"""The whole path on one machine: launch, resume, refuse, and everything that can be asked of it wrongly."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import tiny
from optuna.distributions import IntDistribution

from objectives.contract import (
    Cell,
    ElsaError,
    Report,
    SpecMismatch,
    StorageError,
    TrialFailed,
    TrialRecord,
    UsageError,
)
from objectives.finetune import FineTuning
from study import command, launch

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


def test_one_command_from_grid_to_operating_points_and_report(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "user_attrs_peak_memory_bytes" in study.trials_dataframe().columns


def test_the_same_command_again_runs_only_what_is_missing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch.main([*BASE, "--workers", "0"]) == 0
    assert "6 cells wait" in capsys.readouterr().out
    assert launch.main(BASE) == 0
    capsys.readouterr()

    def no_training(*_: object) -> None:
        raise AssertionError("something was trained again")

    monkeypatch.setattr("objectives.finetune.FineTuning.__call__", no_training)
    assert launch.main(BASE) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert len(study_of(place).trials) == 6


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
    with pytest.raises(SpecMismatch, match="add --extend if only"):
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
    assert launch.main([*BASE, "--joined", "--workers", "0"]) == 0, "workers of an older launcher go on"


def test_a_launcher_that_outlives_an_extension_tells_of_the_study_as_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = launch._work

    def extended_meanwhile(*arguments: object) -> int | None:
        code = work(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(launch, "_work", work)
        assert launch.main([*BASE, "--seeds", "3", "--extend", "--workers", "0"]) == 0
        return code

    monkeypatch.setattr(launch, "_work", extended_meanwhile)
    assert launch.main(BASE) == 0
    assert "grid: 6 of 9 cells final" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--seeds 1", "--extend only adds: --seeds lacks 2, which sst2-tiny-bert-grid has"),
        ("--seeds 3 --epochs 2", "recipe.epochs: 1.0 -> 2.0 .there -> here.; --extend adds depths"),
        ("--protocol paper", "--protocol paper has planned by the lists it had"),
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
    assert "36 training steps, 6 to 6 per cell" in shown
    assert "on this machine" in shown
    assert not (place / "elsa.db").exists()


def test_a_dry_run_knows_what_later_phases_may_cost(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main([*BASE, "--protocol", "paper", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "2 cells now, then 4 at the best learning rate" in shown
    assert "36 training steps" in shown
    search = [*BASE, "--protocol", "adaptive", "--dry-run"]
    assert launch.main([*search, "--budget", "5"]) == 0
    assert "within a budget of 5 cells" in capsys.readouterr().out
    assert launch.main(search) == 0
    shown = capsys.readouterr().out
    assert "full fine-tunings' worth of work" in shown
    assert "at most" in shown.splitlines()[-1]


def test_a_search_ends_with_the_threshold_it_searched(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = [*BASE, "--protocol", "adaptive", "--threshold", "0.8", "--budget", "4"]
    assert launch.main(search) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("At ")] == [
        "At 0.8 of the full model's quality"
    ]


def test_a_study_without_the_full_model_is_told_what_it_lacks(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main([*BASE, "--frozen-layers", "2,4", "--workers", "0"]) == 0
    assert "--frozen-layers 2,4 leaves out 0, the full model" in capsys.readouterr().err


def test_default_grid_is_zero_and_the_upper_half(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ["--task", "sst2", "--model", "./tiny-bert", "--data", "data", "--seeds", "1"]
    assert launch.main([*plain, "--workers", "0"]) == 0
    cells = {(t.params["frozen_layers"], t.params["learning_rate"]) for t in study_of(place).trials}
    assert {depth for depth, _ in cells} == {0, 2, 3, 4}
    assert {rate for _, rate in cells} == {1e-5, 2e-5, 3e-5, 4e-5, 5e-5}


BAD = {
    "extending without planning": ([*BASE, "--extend", "--join-only"], 2, "leave one of them out"),
    "a grace period without end": ([*BASE, "--grace", "inf"], 2, "grace period of inf s"),
    "a threshold without a search": ([*BASE, "--threshold", "0.8"], 2, "goes with --protocol adaptive"),
    "a budget without a search": ([*BASE, "--budget", "9"], 2, "--budget 9 goes with --protocol adaptive"),
    "a dry run on no database": ([*BASE, "--dry-run", "--storage", "elsa.db"], 2, "is not a database URL"),
    "unknown task": (["--task", "mrcp"], 2, "did you mean mrpc"),
    "no task": (["--demo"], 2, "--task is missing"),
    "unknown model folder": ([*BASE, "--model", "./nope"], 2, "./nope: no such folder"),
    "layers beyond the model": ([*BASE, "--frozen-layers", "0,5"], 2, "5 is beyond tiny-bert, which has 4"),
    "empty grid": ([*BASE, "--seeds", "0"], 2, "--seeds names no value"),
    "no number": ([*BASE, "--learning-rates", "fast"], 2, "'fast' is no number"),
    "rate out of range": ([*BASE, "--learning-rates", "3"], 2, "--learning-rates 3 is not between 0 and 1"),
    "no such data": ([*BASE, "--data", "nowhere"], 2, "nowhere: no such folder"),
    "columns of another task": ([*BASE, "--task", "mrpc"], 2, "no column sentence1, sentence2"),
    "unknown protocol": ([*BASE, "--protocol", "magic"], 2, "unknown protocol 'magic'"),
    "unwritable storage": ([*BASE, "--storage", "sqlite:////proc/elsa.db"], 4, "/proc/elsa.db"),
    "unreachable database": ([*BASE, "--storage", "postgresql://u:secret@127.0.0.1:9/x"], 4, "127.0.0.1:9"),
    "unknown flag": ([*BASE, "--warp"], 2, "--warp"),
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
    with pytest.raises(SpecMismatch, match="no study of this software"):
        launch.main([*BASE, "--study", "theirs"])


def test_join_only_needs_a_study_to_join(place: Path) -> None:
    with pytest.raises(StorageError):
        launch.main([*BASE, "--join-only"])
    assert not (place / "elsa.db").exists()


def test_a_failing_trial_is_recorded_and_the_study_goes_on(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FineTuning._run

    def diverge_at_two(self: FineTuning, cell: Cell, report: Report) -> TrialRecord:
        if cell.frozen_layers == 2:
            raise TrialFailed("diverged: the training loss is nan by step 3", retry=False)
        return real(self, cell, report)

    monkeypatch.setattr(FineTuning, "_run", diverge_at_two)
    assert launch.main(BASE) == 1
    states = [(trial.params["frozen_layers"], trial.state.name) for trial in study_of(place).trials]
    assert sorted(states) == sorted([(d, "FAIL" if d == 2 else "COMPLETE") for d in (0, 2, 4)] * 2)
    shown = capfd.readouterr()
    assert "2 cells ended without a result" in shown.err
    assert launch.main([*BASE, "--accept-failed"]) == 0
    assert "diverged: the training loss is nan" in shown.out


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
    assert command.integers(text, "--x") == numbers


def test_ranges_of_rates_are_exact_decimals() -> None:
    assert command.rates("1e-5-5e-5", "--x") == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    assert command.rates("1e-5-5e-5:2e-5,1e-4", "--x") == (1e-5, 3e-5, 5e-5, 1e-4)


def test_a_number_of_seeds_counts_from_one() -> None:
    assert command.seeds("3", "--x") == (1, 2, 3)
    assert command.seeds("3-4", "--x") == (3, 4)


def test_the_elsa_command_reaches_the_others_and_guesses() -> None:
    from study.__main__ import dispatch

    assert dispatch(["layers", "--demo"]) == 0
    with pytest.raises(ElsaError, match="did you mean launch"):
        dispatch(["lunch"])
