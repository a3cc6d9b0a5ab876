"""The dashboard answers its own pages and nobody else's: hosts, origins, tokens, a real browser's attack."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIServer, make_server

import pytest
import stored
from browser import Watched, chromium
from test_dashboard import served

from objectives.contract import UsageError
from storage.database import Database
from study import dashboard
from study.dashboard import Serving
from study.reporting.guard import Guard

optuna_dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
TOKEN = "let-me-in-please"


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    opened = Database.open(sqlite_url, create=True)
    stored.create(opened)
    yield opened
    opened.close()


@contextmanager
def running(server: Any) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(600)


def ask(port: int, method: str, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in given)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def study_path(database: Database) -> str:
    return f"/api/studies/{database.study('mrpc-tiny').study_id}"


def test_a_delete_for_a_foreign_host_removes_nothing(database: Database) -> None:
    path = study_path(database)
    with running(dashboard.make_server(database, Serving(port=0, write=True))) as port:
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "",
        ):
            for method in ("DELETE", "GET"):
                status, _, said = ask(port, method, path, Host=host)
                assert (status, json.loads(said)["reason"]) == (
                    403,
                    "this dashboard is not reached by that name",
                )
        assert database.study_names() == ["mrpc-tiny"]
        assert ask(port, "DELETE", path, Host=f"localhost:{port}")[0] == 204
    assert database.study_names() == []


def test_changes_need_the_flag(database: Database) -> None:
    path = study_path(database)
    with running(dashboard.make_server(database, Serving(port=0))) as port:
        assert ask(port, "GET", path)[0] == 200
        for method in ("DELETE", "PUT", "POST", "PATCH"):
            status, _, said = ask(port, method, path)
            assert (status, json.loads(said)["reason"][:32]) == (403, "this dashboard is read-only: sta")
    assert database.study_names() == ["mrpc-tiny"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "file://{own}"},
        {"Origin": "//{own}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_changes_from_another_origin_are_refused(database: Database, headers: dict[str, str]) -> None:
    with running(dashboard.make_server(database, Serving(port=0, write=True))) as port:
        headers = {name: value.replace("{own}", f"127.0.0.1:{port}") for name, value in headers.items()}
        assert ask(port, "DELETE", study_path(database), **headers)[0] == 403
        assert ask(port, "GET", study_path(database), **headers)[0] == 200, "no page can read the answer"
        assert database.study_names() == ["mrpc-tiny"]
        own = {"Origin": f"http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}
        assert ask(port, "DELETE", study_path(database), **own)[0] == 204


def test_a_token_is_asked_for_and_kept_in_a_cookie(database: Database) -> None:
    path = study_path(database)
    with running(dashboard.make_server(database, Serving(port=0, write=True), TOKEN)) as port:
        assert ask(port, "GET", path)[0] == 401
        assert ask(port, "GET", f"{path}?token=wrong")[0] == 401
        assert ask(port, "DELETE", f"{path}?token={TOKEN}")[0] == 401
        assert ask(port, "GET", path, Authorization="Bearer wrong")[0] == 401
        assert ask(port, "GET", path, Authorization=f"Bearer {TOKEN}")[0] == 200
        status, headers, _ = ask(port, "GET", f"//evil.example/dashboard?a=1&token={TOKEN}")
        assert (status, headers["Location"]) == (303, "/evil.example/dashboard?a=1")
        cookie = headers["Set-Cookie"]
        assert TOKEN not in cookie
        assert "HttpOnly; SameSite=Strict" in cookie
        value = cookie.partition(";")[0]
        assert ask(port, "GET", path, Cookie=f"other=1; {value}")[0] == 200
        assert ask(port, "GET", path, Cookie=f"{value}0")[0] == 401
        assert ask(port, "GET", path, Cookie="\x01=;;=")[0] == 401
        assert ask(port, "DELETE", path, Cookie=value, Origin="http://evil.example")[0] == 403
        assert ask(port, "GET", path, Host="evil.example", Cookie=value)[0] == 403
        assert database.study_names() == ["mrpc-tiny"]
        assert ask(port, "DELETE", path, Cookie=value)[0] == 204


@pytest.mark.parametrize(
    ("host", "asked", "answered"),
    [
        ("127.0.0.1", "localhost:9000", True),
        ("127.0.0.1", "[::1]:9000", True),
        ("127.0.0.1", "LOCALHOST.", True),
        ("127.0.0.1", "10.0.0.7", False),
        ("127.0.0.1", "proxy.example", True),
        ("10.0.0.7", "10.0.0.7:80", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("node7", "node7:80", True),
        ("0.0.0.0", "10.0.0.8:80", True),
        ("::", "[fe80::1]:80", True),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "10.0.0.8.evil.example", False),
        ("127.0.0.1", "localhost:x", False),
        ("127.0.0.1", "[::1", False),
        ("127.0.0.1", "localhost/evil", False),
        ("127.0.0.1", "localhost, evil.example", False),
    ],
)
def test_the_names_that_are_answered_to(host: str, asked: str, answered: bool) -> None:
    def application(environ: object, start: Callable[..., object]) -> list[bytes]:
        start("200 OK", [])
        return [b""]

    said: list[tuple[str, list[tuple[str, str]]]] = []
    guard = Guard(application=application, host=host, allowed_hosts=frozenset({"proxy.example"}))
    guard({"HTTP_HOST": asked, "REQUEST_METHOD": "GET"}, lambda *given: said.append(given))
    assert said[0][0] == ("200 OK" if answered else "403 Forbidden")
    assert ("X-Frame-Options", "DENY") in said[0][1]


@pytest.mark.parametrize("bad", ["short", "ünïcödé-tökén", "with\nnewline"])
def test_a_token_that_cannot_be_one_is_refused_without_showing_it(bad: str) -> None:
    with pytest.raises(UsageError, match="--token: use at least 8 ASCII characters") as refused:
        dashboard.main(["--token", bad])
    assert bad not in str(refused.value)


ATTACK = """async ([target, own]) => {
  // Simple requests, which a browser sends to anybody, and ones that it asks about first.
  const tries = [
    ['POST', 'text/plain', `${target}/rename`, '{"study_name": "stolen"}'],
    ['PUT', 'application/json', `${target}/note`, '{"body": "stolen", "version": 0}'],
    ['DELETE', 'text/plain', target, null],
    ['POST', 'application/json', `${target}/rename`, '{"study_name": "stolen"}'],
  ];
  const statuses = [];
  for (const [method, type, url, body] of tries) {
    const settings = { method, body, headers: { 'Content-Type': type }, credentials: 'include' };
    if (!own && type === 'text/plain' && method === 'POST') settings.mode = 'no-cors';
    try { statuses.push((await fetch(url, settings)).status); } catch (error) { statuses.push(-1); }
  }
  return statuses;
}"""


class _Evil(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>A harmless page</h1>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def attack(port: int, study_id: int) -> dict[str, list[int]]:
    """From a foreign page, and from a foreign name that points at the dashboard (DNS rebinding)."""
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with running(HTTPServer(("127.0.0.1", 0), _Evil)) as elsewhere, chromium(rules) as browser:
        page = Watched(browser).page
        page.goto(f"http://evil.example:{elsewhere}/")
        assert page.inner_text("h1") == "A harmless page"
        target = f"http://127.0.0.1:{port}/api/studies/{study_id}"
        found = {"foreign page": page.evaluate(ATTACK, [target, False])}
        page.goto(f"http://evil.example:{port}/dashboard", wait_until="commit")
        found["rebinding"] = page.evaluate(ATTACK, [f"/api/studies/{study_id}", True])
        return found


@pytest.mark.slow
def test_a_browsers_attack_changes_nothing(database: Database) -> None:
    study_id = database.study("mrpc-tiny").study_id
    server = dashboard.make_server(database, Serving(port=0, write=True))
    guarded, answers = server.get_app(), []

    def watched(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        def answer(status: str, *rest: Any) -> Any:
            answers.append((environ["REQUEST_METHOD"], environ.get("HTTP_ORIGIN"), status))
            return start(status, *rest)

        return guarded(environ, answer)

    server.set_app(watched)
    with running(server) as port:
        found = attack(port, study_id)
        assert found["rebinding"] == [403] * 4
        # A browser sends this one to anybody, without asking first, and shows nobody the answer.
        assert [status for method, _, status in answers if method == "POST"] == ["403 Forbidden"] * 3
        assert database.study_names() == ["mrpc-tiny"]
        assert optuna_dashboard.get_note(database.study("mrpc-tiny").optuna_study) == ""
        with chromium() as browser:
            page = Watched(browser).page
            page.goto(f"http://127.0.0.1:{port}/dashboard", wait_until="commit")
            own = page.evaluate(ATTACK, [f"/api/studies/{study_id}", True])
        assert own[2] == 204, "its own pages may do so"
    assert database.study_names() == []


@pytest.mark.slow
def test_the_attack_works_where_nothing_guards(database: Database) -> None:
    """The control: without the guard a page of anybody renames and deletes."""
    study_id = database.study("mrpc-tiny").study_id
    bare = optuna_dashboard.wsgi(database.optuna_storage)
    with running(make_server("127.0.0.1", 0, bare, server_class=WSGIServer)) as port:
        found = attack(port, study_id)
    assert found["rebinding"][2] == 204
    assert database.study_names() == []


@pytest.mark.slow
def test_the_command_is_read_only_and_can_make_a_token(database: Database, sqlite_url: str) -> None:
    with served(sqlite_url, "--no-refresh", "--token", "auto", "--allow-host", "proxy.example") as address:
        port, query = int(urlsplit(address).port or 0), urlsplit(address).query
        assert ask(port, "GET", "/")[0] == 401
        status, headers, _ = ask(port, "GET", f"/?{query}", Host="proxy.example")
        assert status == 303
        cookie = headers["Set-Cookie"].partition(";")[0]
        status, _, said = ask(port, "DELETE", study_path(database), Cookie=cookie)
        assert (status, json.loads(said)["reason"][:26]) == (403, "this dashboard is read-onl")
    assert database.study_names() == ["mrpc-tiny"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--write"], True), ([], False), (["--write", "--token", "long enough"], False)],
)
def test_that_every_local_user_can_change_studies_is_said(
    database: Database,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: bool,
) -> None:
    monkeypatch.setattr(WSGIServer, "serve_forever", lambda server: None)
    dashboard.main(["--storage", sqlite_url, "--port", "0", "--no-refresh", *flags])
    assert ("every user of this machine can change" in capsys.readouterr().err) == said
