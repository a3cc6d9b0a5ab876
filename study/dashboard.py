"""The command `dashboard`: optuna-dashboard on the study's storage, with a note and figures on each study."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from objectives.settings import setting
from study.cli import flags
from study.cli.command import add_storage, existing_storage, new_parser, note, run
from study.reporting.guard import EVERY_ADDRESS, LOOPBACK, Guard

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from storage.database import Database
    from storage.studies import StoredStudy
    from study.reporting.publish import Publisher

EXAMPLES = """\
  elsa dashboard
  elsa dashboard --storage postgresql://user@host/studies --port 9000
  elsa dashboard --host 0.0.0.0 --token auto --write
"""
TOKEN = "ELSA_DASHBOARD_TOKEN"
SHORTEST_TOKEN = 8
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Serving:
    host: str = setting("127.0.0.1", metavar="HOST", help="address to listen on")
    port: int = setting(8080, metavar="PORT", help="port; 0 takes a free one", least=0, most=65535)
    refresh: bool = setting(True, help="renew notes and figures: show them as they are")
    write: bool = setting(False, help="allow changes: renaming and deleting studies, editing notes")
    token: str | None = setting(
        None, metavar="TEXT", help="ask for this token; auto makes one", default_text="none", env=TOKEN
    )
    allow_host: tuple[str, ...] = setting(
        (),
        metavar="NAME",
        help="additional host name to accept, such as a proxy's; may be repeated",
        repeat=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "dashboard", "Optuna-dashboard on the study's storage, while it runs or afterwards.", EXAMPLES
    )
    add_storage(parser)
    flags.add_settings(parser, "the server", Serving)
    arguments = parser.parse_args(argv)
    serving = flags.made(Serving, arguments)
    # An empty variable is a mistake, not a server for everybody.
    token = _token(os.environ.get(TOKEN) if serving.token is None else serving.token)
    address = existing_storage(arguments.storage)
    _check_installed()
    from storage.database import Database

    # One for the pages, one for the notes: they need different transactions.
    with Database.open(address) as database, Database.open(address) as writer, ExitStack() as stack:
        server = stack.enter_context(make_server(database, serving, token))
        if serving.host not in LOOPBACK and token is None:
            do = "read and change" if serving.write else "read"
            note(f"anybody who reaches {serving.host}:{server.server_port} can {do} the studies; see --token")
        elif serving.write and token is None:
            note("every user of this machine can change the studies; see --token")
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        shown = f"?token={token}" if serving.token == AUTO else ""
        mode = "changes allowed" if serving.write else "read-only"
        print(
            f"dashboard of {database.display_url}: http://{host}:{server.server_port}/{shown} "
            f"({mode}; Ctrl-C ends it)",
            flush=True,
        )
        if serving.refresh:
            stack.enter_context(_publisher(writer))
        server.serve_forever()
    return 0


def _token(given: str | None) -> str | None:
    if given == AUTO:
        return secrets.token_urlsafe(24)
    if given is not None and (len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isprintable()):
        # Never shown: it is a secret.
        raise UsageError(f"--token: use at least {SHORTEST_TOKEN} ASCII characters, or auto")
    return given


def _publisher(database: Database) -> Publisher:
    """Keeps the notes fresh where no launcher does: workers that only join do not publish."""
    from study.reporting.publish import Publisher

    return Publisher(lambda: our_studies(database), name=f"dashboard-{os.getpid()}", on_trouble=note)


def our_studies(database: Database) -> list[StoredStudy]:
    studies = [database.study(name) for name in database.study_names()]
    return [study for study in studies if "spec" in study.attributes()]


def make_server(database: Database, serving: Serving, token: str | None = None) -> WSGIServer:
    """A server that answers several requests at once, on an engine that may be shared with workers."""
    from wsgiref.simple_server import make_server as bind

    from optuna_dashboard import wsgi

    from storage.deadlines import READ_ONLY

    # A page that is being read must not keep workers from writing; on servers it does not.
    if database.address.kind == "sqlite":
        database.optuna_storage.engine.update_execution_options(**{READ_ONLY: True})
    allowed = frozenset(name.lower().rstrip(".") for name in serving.allow_host)
    host, port = serving.host, serving.port
    if host in EVERY_ADDRESS:
        allowed |= {socket.gethostname().lower()}
    application: Any = Guard(
        application=wsgi(database.optuna_storage),
        host=host,
        allowed_hosts=allowed,
        write=serving.write,
        token=token,
    )
    logging.getLogger("optuna_dashboard").setLevel(logging.WARNING)
    try:
        return bind(host, port, application, server_class=_server_class(host), handler_class=_quiet_handler())
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--host {host} --port {port} cannot be listened on: {reason}; name another --port"
        ) from error


def _check_installed() -> None:
    from study.reporting.publish import MISSING

    try:
        import optuna_dashboard  # noqa: F401
    except ImportError as error:
        raise UsageError(MISSING) from error


def _server_class(host: str) -> type[WSGIServer]:
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            # The standard one asks a name server for its own name, which may take long.
            from socketserver import TCPServer

            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
            self.setup_environ()

    return Server


def _quiet_handler() -> Any:
    from wsgiref.simple_server import WSGIRequestHandler

    class Handler(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a line per request would hide the messages that matter."""

    return Handler


if __name__ == "__main__":
    run(main)
