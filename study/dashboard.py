"""The command `dashboard`: optuna-dashboard on the study's storage, with a note and figures on each study."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.cli.command import add_storage, new_parser, note, run, storage_url
from study.cli.numbers import whole
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "dashboard", "Optuna-dashboard on the study's storage, while it runs or afterwards.", EXAMPLES
    )
    add_storage(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=whole(0, 65535), default=8080, help="port; 0 takes a free one (default: 8080)"
    )
    parser.add_argument(
        "--no-refresh", action="store_true", help="show notes and figures as they are, without renewing them"
    )
    parser.add_argument(
        "--write", action="store_true", help="allow changes: renaming and deleting studies, editing notes"
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        default=os.environ.get(TOKEN),
        help=f"ask for this token; auto makes one (default: ${TOKEN}, else none)",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer requests for this name, too, such as a proxy's; may be repeated",
    )
    arguments = parser.parse_args(argv)
    token = _token(arguments.token)
    _check_installed()
    from storage.database import Database

    address = storage_url(arguments.storage)
    # One for the pages, one for the notes: they need different transactions.
    database, writer = Database.open(address), Database.open(address)
    try:
        server = make_server(
            database,
            arguments.host,
            arguments.port,
            write=arguments.write,
            token=token,
            allowed_hosts=arguments.allow_host,
        )
        if arguments.host not in LOOPBACK and token is None:
            do = "read and change" if arguments.write else "read"
            note(
                f"anybody who reaches {arguments.host}:{server.server_port} can {do} the studies; see --token"
            )
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        shown = f"?token={token}" if arguments.token == AUTO else ""
        mode = "changes allowed" if arguments.write else "read-only"
        print(
            f"dashboard of {database.display_url}: http://{host}:{server.server_port}/{shown} "
            f"({mode}; Ctrl-C ends it)",
            flush=True,
        )
        with server, ExitStack() as stack:
            if not arguments.no_refresh:
                stack.enter_context(_publisher(writer))
            server.serve_forever()
    finally:
        database.close()
        writer.close()
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


def make_server(
    database: Database,
    host: str,
    port: int,
    *,
    write: bool = False,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
) -> WSGIServer:
    """A server that answers several requests at once, on an engine that may be shared with workers."""
    from wsgiref.simple_server import make_server as bind

    from optuna_dashboard import wsgi

    from storage.deadlines import READ_ONLY

    # On SQLite: a page that is being read must not keep workers from writing.
    database.optuna_storage.engine.update_execution_options(**{READ_ONLY: True})
    allowed = frozenset(name.lower().rstrip(".") for name in allowed_hosts)
    if host in EVERY_ADDRESS:
        allowed |= {socket.gethostname().lower()}
    application: Any = Guard(
        application=wsgi(database.optuna_storage), host=host, allowed_hosts=allowed, write=write, token=token
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
