"""Trials in trackers: TensorBoard's files, MLflow's SQLite, W&B offline, Trackio; and trackers gone wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import own
import pytest
import tiny
from launches import start, wait_until, write_table

from objectives.contract import UsageError
from storage.database import Database
from study import launch
from study.workers import tracking
from study.workers.events import Event
from study.workers.jobs import Job, load_jobs
from study.workers.options import Caching, Keeping, Places
from study.workers.tracking import Sender, tracked
from study.workers.worker import run_worker

Told = tuple[list[Job], list[Event]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a worker tells of a study of two cells."""
    folder = tmp_path_factory.mktemp("study")
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ELSA_STORAGE", raising=False)
        tiny.save_model("bert", folder / "tiny")
        own.save(folder / "news.csv", own.news(40))
        words = (
            "--data news.csv --model ./tiny --frozen-layers 0,4 --learning-rates 1e-3, --seeds 1, --epochs 2"
        )
        assert launch.main([*words.split(), "--study", "my news", "--workers", "0"]) == 0
        database = Database.open("sqlite:///elsa.db")
        jobs = load_jobs(database, ["my news"], Places(caching=Caching(cache_dir="cache")))
        run_worker(jobs, worker="w0", on_event=events.append)
        database.close()
    return jobs, events


def send(told: Told, name: str) -> dict[int, Event]:
    """Tell a tracker all of it; the trials' last events by number."""
    jobs, events = told
    seen: list[Event] = []
    with tracked(jobs, Keeping(track=(name,)), seen.append) as tell:
        for event in events:
            tell(event)
    assert seen == events, "whoever listened before still hears everything"
    return {event.number: event for event in events if event.kind == "finished" and event.number is not None}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking, "LAST_SECONDS", 240)  # a busy machine is no broken tracker
    return tmp_path


def test_tensorboard_files_hold_curve_costs_and_score(told: Told, place: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    finished = send(told, "tensorboard")
    folders = sorted(path for path in (place / "tracking" / "my-news").iterdir())
    assert [path.name[:5] for path in folders] == ["00000", "00001"]
    for number, folder in enumerate(folders):
        record = finished[number].record
        assert record is not None
        found = EventAccumulator(str(folder))
        found.Reload()
        losses = found.Scalars("train_loss")
        assert [(value.step, value.value) for value in losses] == [
            (point.step, pytest.approx(point.train_loss)) for point in record.curve
        ]
        assert found.Scalars("score")[-1].value == pytest.approx(record.score)
        assert found.Scalars("trainable_parameters")[-1].value == record.trainable_parameters


def test_a_launch_has_its_workers_track_their_trials(place: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    table = write_table(place / "table.csv", depths=2, seeds=1)
    storage = f"sqlite:///{place}/a.db"
    flags = ["--recorded", table, "--storage", storage, "--workers", 1, "--track", "tensorboard"]
    launcher = start([*flags, "--study", "told"], place, cwd=place)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output
    folders = sorted((place / "tracking" / "told").iterdir())
    found = []
    for folder in folders:
        run = EventAccumulator(str(folder))
        run.Reload()
        found.append(round(run.Scalars("score")[-1].value, 4))
    assert found == [0.901, 0.891]


@pytest.mark.slow
def test_mlflow_has_a_run_per_trial_in_an_experiment_per_study(
    told: Told, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{place}/mlflow.db")
    finished = send(told, "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("my-news")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2
    for run in runs:
        event = finished[int(run.data.params["trial"])]
        assert event.record is not None
        assert event.cell is not None
        assert run.info.status == "FINISHED"
        assert run.data.params["frozen_layers"] == str(event.cell.frozen_layers)
        assert run.data.params["batch_size"] == "16"
        assert run.data.metrics["score"] == pytest.approx(event.record.score)
        assert len(client.get_metric_history(run.info.run_id, "train_loss")) == len(event.record.curve)


def logged(data: bytes) -> Iterator[bytes]:
    """The records of W&B's file, which has the format of LevelDB's logs after seven bytes of its own."""
    block, head = 32768, 7
    at, record = 7, b""
    while at + head <= len(data):
        if block - at % block < head:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + head : at + head + length]
        at += head + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def wandb_runs(folder: Path) -> list[tuple[set[tuple[str, str]], set[str]]]:
    """Of each run in W&B's files: its group and project, and the names of what it logged."""
    from wandb.proto import wandb_internal_pb2

    runs = []
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        groups, names = set(), set()
        for data in logged(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                groups.add((record.run.run_group, record.run.project))
            names |= {"/".join(item.nested_key) or item.key for item in record.history.item}
        runs.append((groups, names))
    return runs


@pytest.mark.slow
def test_wandb_offline_has_a_run_per_trial_grouped_by_study(
    told: Told, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    send(told, "wandb")

    def written() -> bool:
        runs = wandb_runs(place / "tracking")
        return len(runs) == 2 and all(
            groups == {("my-news", "elsa")} and {"score", "train_loss", "train_seconds"} <= names
            for groups, names in runs
        )

    # A process of W&B's own writes the files; on a busy machine it is still at it when a run has finished.
    wait_until(written, "two runs, each of this group and with its score")


@pytest.mark.slow
def test_trackio_has_a_run_per_trial(told: Told, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(place / "trackio"))
    from trackio.sqlite_storage import SQLiteStorage

    send(told, "trackio")
    runs = SQLiteStorage.get_runs("my-news")
    assert len(runs) == 2


@pytest.mark.slow
def test_mlflow_writes_into_the_folder_for_trackers(
    told: Told, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    # Set and removed, so that what is set meanwhile is removed again.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    send(told, "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{place}/tracking/mlflow.db")
    assert client.get_experiment_by_name("my-news") is not None
    assert [path.name for path in place.iterdir()] == ["tracking"]


class Pretend:
    """A tracker that does as it is told."""

    begun: list[Pretend]
    during: Callable[[str], None]

    def __init__(self, **_: Any) -> None:
        self.values: list[dict[str, float]] = []

    def start(self) -> None:
        type(self).begun.append(self)
        type(self).during("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.configuration = values

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        type(self).during("log")
        self.values.append(values)

    def finish(self) -> None:
        type(self).during("finish")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> type[Pretend]:
    from accelerate import tracking as theirs

    # One of its own for each test: a thread that an earlier one left hanging may still write.
    made = type("Made", (Pretend,), {"begun": [], "during": lambda what: None})
    monkeypatch.setitem(theirs.LOGGER_TYPE_TO_CLASS, "tensorboard", made)
    return made


def sender(told: Told, said: list[str]) -> Sender:
    return Sender("tensorboard", "tracking", {job.study.name: job.spec for job in told[0]}, said.append)


def test_a_tracker_that_fails_is_mentioned_once_and_tried_again_with_the_next_trial(
    told: Told, pretend: type[Pretend]
) -> None:
    def failing(what: str) -> None:
        if what == "log" and len(pretend.begun) == 1:
            raise ConnectionError("nobody\nthere")

    pretend.during = failing  # type: ignore[assignment, method-assign]
    said: list[str] = []
    sent = sender(told, said)
    for event in told[1]:
        sent.offer(event)
    sent.close(600)
    assert said == ["tracker tensorboard failed (ConnectionError: nobody there); trials go on"]
    first, second = pretend.begun
    assert (first.values, len(second.values)) == ([], 3)


def test_a_tracker_that_cannot_start_is_said_to_who_displays(told: Told, pretend: type[Pretend]) -> None:
    def failing(what: str) -> None:
        raise PermissionError("not writable")

    pretend.during = failing  # type: ignore[assignment, method-assign]
    jobs, events = told
    seen: list[Event] = []
    with tracked(jobs, Keeping(track=("tensorboard",)), seen.append, "w0") as tell:
        for event in events:
            tell(event)
    (found,) = [event for event in seen if event.kind == "untracked"]
    assert (found.worker, found.study) == ("w0", "my news")
    assert found.reason == "tracker tensorboard failed (PermissionError: not writable); trials go on"


def test_a_tracker_that_hangs_holds_nobody_up(
    told: Told, pretend: type[Pretend], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    pretend.during = lambda what: go_on.wait(600)  # type: ignore[assignment, method-assign, misc]
    monkeypatch.setattr(tracking, "MOST_EVENTS", 5)
    said: list[str] = []
    sent = sender(told, said)
    for event in told[1] * 20:
        sent.offer(event)
    sent.close(0)
    assert said == ["tracker tensorboard is too slow: it misses values; trials go on"]
    # Its thread must not reach for the next test's tracker.
    go_on.set()
    wait_until(sent._events.empty, "a tracker that goes on")
    sent.close(600)


def test_a_failure_and_a_release_end_their_runs(told: Told, pretend: type[Pretend]) -> None:
    claimed = next(event for event in told[1] if event.kind == "claimed")
    ends = {"failed": "failed", "released": "given_up", "lost": "given_up"}
    said: list[str] = []
    sent = sender(told, said)
    for kind in ends:
        sent.offer(claimed)
        sent.offer(Event(kind=kind, worker="w0", study="my news", cell=claimed.cell, number=0, reason="x"))  # type: ignore[arg-type]
    sent.close(600)
    assert said == []
    assert [run.values for run in pretend.begun] == [[{name: 1.0}] for name in ends.values()]
    assert pretend.begun[0].configuration["learning_rate"] == 1e-3


def test_unknown_and_absent_trackers_are_refused(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    from study.workers import trackers

    with pytest.raises(UsageError, match="--track wandbb: unknown tracker: did you mean wandb"):
        Keeping(track=("wandbb",))
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"--track mlflow needs the package mlflow: pip install"):
        launch.main(["--demo", "--task", "mrpc", "--track", "mlflow"])
