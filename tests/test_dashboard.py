"""The dashboard shows our note and figures, they follow the study, and publishing never fails a run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import stored
from browser import Watched, chromium
from launches import wait_until
from sqlalchemy.engine import make_url

from objectives.contract import UsageError
from storage.database import Database
from storage.studies import StoredStudy
from study import dashboard
from study.dashboard import Serving
from study.reporting.publish import STAMP, Publisher, publish, publish_if_due, publish_last

optuna_dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    opened = Database.open(sqlite_url, create=True)
    yield opened
    opened.close()


def plots(database: Database) -> dict[str, str]:
    from optuna_dashboard._custom_plot_data import get_plotly_graph_objects

    study = database.study("mrpc-tiny").optuna_study
    return get_plotly_graph_objects(study._storage.get_study_system_attrs(study._study_id))


@pytest.mark.slow
def test_note_and_figures_follow_the_study_on_every_database(database_url: str) -> None:
    database = Database.open(database_url, create=True)
    try:
        study = stored.create(database)
        publish(study)
        assert "No trial is complete yet." in optuna_dashboard.get_note(study.optuna_study)
        stored.run(study, cells=20)
        publish(study)
        halfway = optuna_dashboard.get_note(study.optuna_study)
        assert "NOT FINISHED: 16 trials waiting or running; the answer may change." in halfway
        assert "16 waiting" in halfway
        stored.run(study)
        publish(study)
        note = optuna_dashboard.get_note(study.optuna_study)
        assert "35 cells complete, 1 failed, 0 running, 0 waiting." in note
        assert "NOT FINISHED" not in note
        assert "- 95 % interval: " in note
        assert "RECORDED" in note
        password = make_url(database_url).password
        assert not password or f":{password}@" not in note
        found = plots(database)
        assert sorted(found) == ["elsa-depth-rate-0", "elsa-quality-0"]
        assert all("RECORDED" in text for text in found.values())
    finally:
        database.close()


def test_the_note_says_how_to_join(database: Database) -> None:
    study = stored.create(database)
    publish(study)
    note = optuna_dashboard.get_note(study.optuna_study)
    assert "elsa work mrpc-tiny" in note
    assert "only processes on its own machine can join" in note


def test_what_people_wrote_in_the_note_is_kept(database: Database) -> None:
    study = stored.create(database)
    optuna_dashboard.save_note(study.optuna_study, "Ask Ada before deleting this.")
    publish(study)
    first = optuna_dashboard.get_note(study.optuna_study)
    assert first.endswith("Ask Ada before deleting this.")
    optuna_dashboard.save_note(study.optuna_study, f"{first}\nBob agrees.")
    stored.run(study, cells=5)
    publish(study)
    second = optuna_dashboard.get_note(study.optuna_study)
    assert f"{study.counts().complete} cells complete" in second
    assert second.endswith("Ask Ada before deleting this.\nBob agrees.")
    assert second.count("is kept") == 1


def test_published_only_when_something_finished(database: Database) -> None:
    study = stored.create(database)
    assert publish_if_due(study, name="a", every_seconds=60)
    assert not publish_if_due(study, name="a", every_seconds=60)
    stored.run(study, cells=1)
    assert publish_if_due(study, name="a", every_seconds=60)


def test_of_many_launchers_one_publishes(database: Database) -> None:
    study = stored.create(database)
    stored.run(study, cells=10)
    published: list[str] = []

    def launcher(name: str) -> None:
        mine = Database.open(database.address.text)
        if publish_if_due(mine.study("mrpc-tiny"), name=name, every_seconds=60):
            published.append(name)
        mine.close()

    threads = [threading.Thread(target=launcher, args=(f"launcher-{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(published) == 1
    stored.run(study, cells=1)
    other = "launcher-x"
    assert not publish_if_due(study, name=other, every_seconds=60), "the first one is still at it"
    assert publish_if_due(study, name=other, every_seconds=0.0), "the first one is gone"


def test_a_stamp_from_a_wrong_clock_blocks_nobody(database: Database) -> None:
    study = stored.create(database)
    study.set_attribute(STAMP, {"by": "elsewhere", "at": time.time() + 86400, "finished": 99})
    assert publish_if_due(study, name="a", every_seconds=60)


def test_publisher_keeps_the_note_fresh_and_tells_trouble_once(database: Database) -> None:
    study = stored.create(database)
    told: list[str] = []
    with Publisher(lambda: [study], name="a", on_trouble=told.append, every_seconds=0.05):
        stored.run(study, cells=8)
        complete = study.counts().complete
        wait_until(
            lambda: f"{complete} cells complete" in optuna_dashboard.get_note(study.optuna_study),
            "the note is fresh",
        )
    assert told == []


def test_a_publisher_in_trouble_says_so_once_and_goes_on(database: Database) -> None:
    study = stored.create(database)
    calls = threading.Semaphore(0)

    def broken() -> list[StoredStudy]:
        calls.release()
        raise RuntimeError("no\nluck")

    told: list[str] = []
    with Publisher(broken, name="a", on_trouble=told.append, every_seconds=0.01):
        for _ in range(3):
            assert calls.acquire(timeout=600)
    assert len(told) == 1
    assert "no luck" in told[0]
    database.optuna_storage.delete_study(study.study_id)
    publish_last([study], told.append)
    assert len(told) == 2


def test_a_missing_extra_is_a_usage_error(database: Database) -> None:
    code = (
        "import sys; sys.modules['optuna_dashboard'] = None\n"
        "from study.cli.command import run\nfrom study.dashboard import main\n"
        f"run(main, ['--storage', {database.address.text!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'elsa-study[dashboard]'" in done.stderr


def test_a_taken_port_is_a_usage_error(database: Database) -> None:
    with dashboard.make_server(database, Serving(port=0)) as server:
        taken = server.server_port
        with pytest.raises(UsageError, match=f"--port {taken} cannot be listened on"):
            dashboard.make_server(database, Serving(port=taken))


@contextmanager
def served(url: str, *flags: str) -> Iterator[str]:
    """The address of a dashboard started as people start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "study.dashboard", "--storage", url, "--port", "0", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.split(": ", 1)[1].split(" ")[0]
    finally:
        process.terminate()
        process.wait(600)


@pytest.mark.slow
def test_the_dashboard_shows_note_and_plots_while_workers_write(database: Database, sqlite_url: str) -> None:
    study = stored.create(database)
    stored.run(study, cells=20)
    with chromium() as browser, served(sqlite_url) as address:
        assert address.startswith("http://127.0.0.1:")
        watched = Watched(browser)
        page = watched.page
        page.goto(f"{address}dashboard/studies/{study.study_id}", wait_until="commit")
        for title in ("Relative quality against frozen layers", "Score by depth and learning rate"):
            page.wait_for_selector(f".gtitle:has-text('{title}')")
        stored.run(study)
        page.goto(f"{address}dashboard/studies/{study.study_id}/note", wait_until="commit")
        page.wait_for_selector("h1:has-text('bert-tiny on MRPC')")
        page.wait_for_selector("text=elsa work mrpc-tiny")
        assert watched.requested_elsewhere(address) == []
        watched.close()
