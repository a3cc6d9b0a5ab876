"""Where a database is: reads a storage URL, picks the driver, and refuses what cannot be shared safely."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import sqlalchemy
from sqlalchemy.engine import URL, make_url

from objectives.contract import HARMLESS, StorageError, UsageError, path_text, shortened

Kind = Literal["sqlite", "postgresql", "mysql"]

DRIVERS: dict[str, tuple[Kind, str, str, str]] = {
    "postgresql": ("postgresql", "postgresql+psycopg", "psycopg", "postgresql"),
    "postgres": ("postgresql", "postgresql+psycopg", "psycopg", "postgresql"),
    "mysql": ("mysql", "mysql+pymysql", "pymysql", "mysql"),
    "mariadb": ("mysql", "mysql+pymysql", "pymysql", "mysql"),
}
"""Scheme -> kind, SQLAlchemy driver, the module it needs, the extra that brings it."""

LONGEST_TIMEOUT = 86_400
"""Of SQLite, in seconds."""

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "9p", "drvfs", "ncpfs", "coda",
    "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "panfs", "wekafs", "orangefs", "pvfs2", "ocfs2", "gfs2",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.juicefs", "fuse.rclone",
    "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2", "fuse.goofys", "fuse.davfs",
})
# fmt: on


@dataclass(frozen=True)
class Address:
    """A storage URL that can be opened: driver present, and for SQLite a path that may be used."""

    url: URL
    kind: Kind
    scheme: str
    """As it was typed, which the driver's own name would hide."""

    @property
    def display(self) -> str:
        """For people: the password is hidden."""
        return _masked(self.url.set(drivername=self.scheme))

    @property
    def path(self) -> Path:
        """The file of a SQLite database."""
        assert self.kind == "sqlite"
        assert self.url.database is not None
        return Path(self.url.database)

    @property
    def text(self) -> str:
        return self.url.render_as_string(hide_password=False)

    @classmethod
    def parse(cls, text: str) -> Address:
        """From a URL as people write it; nothing is opened yet."""
        _check_secret(text)
        try:
            text.encode()
            url = make_url(text)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise UsageError(
                f"--storage {_recognisable(text)} is not a database URL: use sqlite:///FILE, "
                "postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
            ) from None
        typed = url.drivername
        scheme, _, driver = typed.partition("+")
        if scheme == "sqlite":
            return _sqlite(url)
        if scheme not in DRIVERS:
            raise UsageError(f"--storage {scheme}://… is not supported: use sqlite, postgresql or mysql")
        kind, full, module, extra = DRIVERS[scheme]
        if not driver:
            url = url.set(drivername=full)
            if find_spec(module) is None:
                raise UsageError(f"{scheme}:// needs {module}: pip install 'elsa-study[{extra}]'")
        else:
            _check_driver(url, scheme, driver)
        if not url.database:
            raise UsageError(f"--storage {_masked(url)} names no database: add /DATABASE")
        _check_options(url)
        return cls(url=url, kind=kind, scheme=typed)


def shown(source: str) -> str:
    """A storage URL or any other source, for people."""
    return Address.parse(source).display if "://" in source else source


def _masked(url: URL) -> str:
    """For people: no password, wherever in the URL it is."""
    hidden = {name: "***" for name in url.query if name not in HARMLESS}
    shown = url.update_query_dict(hidden).render_as_string(hide_password=True)
    return shown.replace("%2A%2A%2A", "***")


def _check_secret(text: str) -> None:
    """Refuse a password that would be cut at the wrong place, and then be taken for a host or a database.

    Nothing of what may belong to it is shown."""
    scheme, _, rest = text.partition("://")
    if not scheme.startswith("sqlite") and rest.count("@") > 1:
        raise UsageError(
            f"--storage {scheme[:20]}://… has more than one @: in a password write @ as %40, / as %2F, "
            ": as %3A and % as %25, or keep it in a file (PGPASSFILE)"
        )


def _check_driver(url: URL, scheme: str, driver: str) -> None:
    """Refuse a driver that was named and is not there, or needs another kind of program."""
    try:
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except (ImportError, sqlalchemy.exc.ArgumentError):
        usable = False
    else:
        usable = not dialect.is_async
    if not usable:
        raise UsageError(
            f"--storage {scheme}+{driver[:20]}://…: this driver is missing or cannot be used: "
            f"write {scheme}://… for the usual one"
        )


def _check_options(url: URL) -> None:
    """Refuse at once what the driver cannot read; some of it is only known when it connects."""
    try:
        url.get_dialect()().create_connect_args(url)
    except (ValueError, TypeError, sqlalchemy.exc.ArgumentError) as error:
        words = " ".join(str(error).split())
        raise UsageError(f"--storage {_masked(url)}: check the options after the ?: {words}") from None


def _recognisable(text: str) -> str:
    """Of what is no URL, as much as surely holds no password."""
    if not re.search("[:@?]", text):
        return shortened(text)
    scheme = re.match("|".join(["sqlite", *DRIVERS]), text)
    return f"{scheme[0]}…" if scheme else "…"


def _sqlite(url: URL) -> Address:
    if url.host or url.username:
        raise UsageError("--storage sqlite://… names a host: use sqlite:///FILE for a file on this machine")
    if not url.database or url.database == ":memory:":
        raise UsageError("an in-memory SQLite database cannot be shared: use sqlite:///FILE")
    if strange := sorted(set(url.query) - {"timeout"}):
        raise UsageError(f"--storage sqlite:///…: unknown option {strange[0]}: the only one is timeout")
    _check_options(url)
    try:
        path_text(url.database)
    except ValueError as error:
        raise UsageError(f"--storage sqlite:///{shortened(url.database)}: {error}") from None
    if "timeout" in url.query and not 0 <= float(str(url.query["timeout"])) <= LONGEST_TIMEOUT:
        raise UsageError(
            f"--storage sqlite:///…?timeout={url.query['timeout']}: use seconds from 0 to {LONGEST_TIMEOUT}"
        )
    return Address(
        url=url.set(drivername="sqlite", database=os.path.abspath(url.database)),
        kind="sqlite",
        scheme="sqlite",
    )


def check_place(text: str, *, create: bool) -> None:
    """Everything that can be known of a database before it is opened."""
    address = Address.parse(text)
    if address.kind == "sqlite":
        check_sqlite_file(address.path, create=create)


def check_sqlite_file(path: Path, *, create: bool) -> None:
    """Everything that can be known about the path before SQLite touches it."""
    if path.is_dir():
        raise StorageError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: the folder {path.parent} does not exist: create it or name another")
    if not path.exists():
        if not create:
            raise StorageError(f"there is no database {path}: launch a study first, or check --storage")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise StorageError(f"{path}: the folder {path.parent} is not writable: name another --storage")
    elif not os.access(path, os.R_OK | os.W_OK):
        raise StorageError(f"{path} is not writable: change its permissions or name another --storage")
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StorageError(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold: "
            "use a local folder, or PostgreSQL or MySQL for several machines"
        )


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that holds `path`, where the operating system shows it."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    wanted = path.resolve()
    found, kind = Path("/"), None
    for line in lines:
        _, mount, this_kind, *_ = line.split(" ")
        point = Path(mount.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # A later mount hides an earlier one on the same point.
        if wanted.is_relative_to(point) and len(point.parts) >= len(found.parts):
            found, kind = point, this_kind
    # Some container run-times serve their own, private root over 9p; that one is not shared.
    return None if kind == "9p" and found == Path("/") else kind
