"""Which requests the dashboard answers: a WSGI middleware in front of it.

A page of any web site, open in the same browser, can send requests to a dashboard on this machine, and by a
name of its own that points here (DNS rebinding) even read the answers. So a request must be for a name that
the dashboard was started for, a change must come from its own pages, and changes and access without a token
can be refused altogether.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
READING = ("GET", "HEAD")
HEADERS = [
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
]
READ_ONLY = "this dashboard is read-only: start it with --write to allow changes"

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


@dataclass(frozen=True, kw_only=True)
class Guard:
    application: Application
    host: str
    """The address that the server listens on."""
    allowed_hosts: frozenset[str] = frozenset()
    """Further names that it is reached by, such as a proxy's."""
    write: bool = False
    token: str | None = None
    """Needed for every request where it is set: as a bearer token, a cookie, or once as `?token=`."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *HEADERS], *error)

        if not self._knows(environ.get("HTTP_HOST", "")):
            return _refuse(environ, start, "403 Forbidden", "this dashboard is not reached by that name")
        if self.token is not None and not self._admitted(environ):
            return self._admit(environ, start)
        if environ["REQUEST_METHOD"] not in READING:
            if not self.write:
                return _refuse(environ, start, "403 Forbidden", READ_ONLY)
            if not _same_origin(environ):
                return _refuse(
                    environ, start, "403 Forbidden", "changes come from this dashboard's pages only"
                )
        return self.application(environ, start)

    def _knows(self, host: str) -> bool:
        name = _name(host)
        if name is None:
            return False
        if name in LOOPBACK | {self.host.lower()} | self.allowed_hosts:
            return True
        # An address cannot be made to point elsewhere, as a name can.
        return self.host in EVERY_ADDRESS and _is_address(name)

    def _admitted(self, environ: Environ) -> bool:
        kind, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() == "bearer" and _equal(given.strip(), self.token or ""):
            return True
        try:
            cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(_cookie_name(environ))
        except CookieError:
            return False
        return cookie is not None and _equal(cookie.value, _cookie_value(self.token or ""))

    def _admit(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """A cookie for the right `?token=`, and the same page without it; else 401."""
        fields = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        given = dict(fields).get("token", "")
        if environ["REQUEST_METHOD"] != "GET" or not _equal(given, self.token or ""):
            return _refuse(environ, start, "401 Unauthorized", "open the dashboard's address with ?token=…")
        rest = urlencode([(name, value) for name, value in fields if name != "token"])
        # One slash: two would name another host.
        place = "/" + quote(environ.get("PATH_INFO", "").lstrip("/")) + (f"?{rest}" if rest else "")
        cookie = f"{_cookie_name(environ)}={_cookie_value(given)}; Path=/; HttpOnly; SameSite=Strict"
        start("303 See Other", [("Location", place), ("Set-Cookie", cookie), ("Content-Length", "0")])
        return [b""]


def _name(host: str) -> str | None:
    """The name or address in a Host header, without the port, which a tunnel may change."""
    try:
        split = urlsplit(f"//{host}")
        name, _ = split.hostname, split.port
    except ValueError:
        return None
    return name.rstrip(".") if name and split.netloc == host and "@" not in host else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same_origin(environ: Environ) -> bool:
    """As browsers tell it; what tells nothing is no browser, and no page of anybody can make it ask."""
    if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") not in ("same-origin", "none"):
        return False
    origin = environ.get("HTTP_ORIGIN")
    if origin is None:
        return True
    try:
        split = urlsplit(origin)
    except ValueError:
        return False
    return split.scheme in ("http", "https") and split.netloc.lower() == environ["HTTP_HOST"].lower()


def _cookie_name(environ: Environ) -> str:
    """Cookies do not know ports, and several dashboards may run on one machine."""
    return f"elsa-dashboard-{environ.get('SERVER_PORT', '')}"


def _cookie_value(token: str) -> str:
    return hashlib.sha256(f"elsa dashboard {token}".encode(errors="replace")).hexdigest()


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode(errors="replace"))


def _refuse(environ: Environ, start: StartResponse, status: str, reason: str) -> Iterable[bytes]:
    """The dashboard's pages show the reason of a refused change."""
    api = environ.get("PATH_INFO", "").startswith("/api")
    kind, text = ("application/json", json.dumps({"reason": reason})) if api else ("text/plain", reason)
    body = f"{text}\n".encode()
    start(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]
