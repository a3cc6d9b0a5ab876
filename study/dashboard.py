"""The command `dashboard`: optuna-dashboard on the study's storage, with a note and figures on each study."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.command import add_storage, new_parser, note, run, storage_url

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from storage.database import Database
    from storage.studies import StoredStudy
    from study.publish import Publisher
    from study.spec import StudySpec

EXAMPLES = """\
  python -m study.dashboard
  python -m study.dashboard --storage postgresql://user@host/studies --port 9000
"""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "dashboard", "Optuna-dashboard on the study's storage, while it runs or afterwards.", EXAMPLES
    )
    add_storage(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port; 0 takes a free one (default: 8080)")
    parser.add_argument(
        "--no-refresh", action="store_true", help="show notes and figures as they are, without renewing them"
    )
    arguments = parser.parse_args(argv)
    _check_installed()
    from storage.database import Database

    address = storage_url(arguments.storage)
    # One for the pages, one for the notes: they need different transactions.
    database, writer = Database.open(address), Database.open(address)
    try:
        server = make_server(database, arguments.host, arguments.port)
        if arguments.host not in LOOPBACK:
            note(f"anybody who reaches {arguments.host}:{server.server_port} can read and change the studies")
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        print(
            f"dashboard of {database.display_url}: http://{host}:{server.server_port}/ (Ctrl-C ends it)",
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


def _publisher(database: Database) -> Publisher:
    """Keeps the notes fresh where no launcher does: workers that only join do not publish."""
    from study.publish import Publisher

    return Publisher(lambda: our_studies(database), name=f"dashboard-{os.getpid()}", on_trouble=note)


def our_studies(database: Database) -> list[tuple[StoredStudy, StudySpec]]:
    from study.spec import StudySpec

    studies = [database.study(name) for name in database.study_names()]
    specs = [(study, study.attributes().get("spec")) for study in studies]
    return [(study, StudySpec.from_json(spec)) for study, spec in specs if spec is not None]


def make_server(database: Database, host: str, port: int) -> WSGIServer:
    """A server that answers several requests at once, on an engine that may be shared with workers."""
    from wsgiref.simple_server import make_server as bind

    from optuna_dashboard import wsgi

    from storage.engine import READ_ONLY

    # On SQLite: a page that is being read must not keep workers from writing.
    database.optuna_storage.engine.update_execution_options(**{READ_ONLY: True})
    application: Any = wsgi(database.optuna_storage)
    logging.getLogger("optuna_dashboard").setLevel(logging.WARNING)
    try:
        return bind(host, port, application, server_class=_server_class(host), handler_class=_quiet_handler())
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--host {host} --port {port} cannot be listened on: {reason}; name another --port"
        ) from error


def _check_installed() -> None:
    from study.publish import MISSING

    try:
        import optuna_dashboard  # noqa: F401
    except ImportError as error:
        raise UsageError(MISSING) from error


def _server_class(host: str) -> type[WSGIServer]:
    import socket
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            # The standard one looks its own name up, which may wait for a name server that is away.
            from socketserver import TCPServer

            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
            self.setup_environ()

    return Server


def _quiet_handler() -> Any:
    from wsgiref.simple_server import WSGIRequestHandler

    class Handler(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """A line per request would bury what a person should know."""

    return Handler


if __name__ == "__main__":
    run(main)
