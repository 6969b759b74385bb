"""Client of the admin API of a running proxy.

It uses `http.client`, which is enough for one request to one address. httpx would be a dependency, and its import takes
as long as the rest of a command.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from kproxy.base.errors import DocumentError, InputError, InternalError, KproxyError
from kproxy.base.named_file import BYTE_ORDER_MARK, not_for_headers, reason, text_named

DEFAULT = "http://127.0.0.1:9190"
JSON, YAML, EVENTS = "application/json", "application/yaml", "text/event-stream"
TIMEOUT = 30.0
"""Timeout of a response in seconds, in addition to the time that the request asks the proxy to wait."""
PROBE_TIMEOUT = 4.0
"""Timeout of a probe in seconds: most health checks that run `kproxy ready` have a limit of five."""

LONGEST_LINE = 16 << 20
"""Bytes of the longest line of a stream; kproxy's own lines are shorter than a megabyte."""

F = TypeVar("F", bound=Callable[..., Any])


class Refused(InputError):
    """Error response of the admin API; `code` is one of the codes in the API's description."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class ServerEvent(NamedTuple):
    """Event of a stream: id to resume after, name, and data as text; name and data are empty for a comment."""

    id: str
    name: str
    data: str


class Admin:
    """Client of the admin API at `url`. `token` is sent as a bearer token if it is not None."""

    def __init__(self, url: str = DEFAULT, token: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(f"expected http://HOST:PORT, got {url!r}", param_hint="--admin")
        try:
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise click.BadParameter(f"{url!r} has an impossible port", param_hint="--admin") from None
        self.url, self.host, self.prefix = url, parts.hostname, parts.path.rstrip("/")
        self.connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.token = token

    def __call__(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = JSON,
        query: Mapping[str, Any] | None = None, wait: float = 0.0,
    ) -> Any:  # fmt: skip
        """Send a request and return the JSON of its response. Values of `query` that are None are left out.

        `wait`: seconds that the request asks the proxy to wait. Raises InternalError if no server responds,
        DocumentError for an invalid body, Refused for any other error response.
        """
        headers = {"Accept": JSON} | self._authorization()
        if method in ("POST", "PUT"):
            headers["Content-Type"] = kind
        with self._response(method, self._target(path, query), body, headers, timeout=TIMEOUT + wait) as response:
            status, data = response.status, response.read()
        return self._read(status, data)

    def probe(self, path: str) -> tuple[int, str]:
        """Return status and text of a path that needs no token. Raises InternalError if no server responds."""
        with self._response("GET", self.prefix + path, timeout=PROBE_TIMEOUT) as response:
            return response.status, response.read().decode(errors="replace").strip()

    def stream(self, path: str, query: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """Yield the lines of an endless response as they arrive. Empty lines (keepalives) are left out. Raises as
        `__call__` does, and InternalError if the response ends."""
        for line in self._lines(path, query, {}):
            if line.strip():
                yield line

    def events(self, path: str, query: Mapping[str, Any], last: str = "") -> Iterator[ServerEvent]:
        """Yield the server-sent events of an endless response, and its comments (keepalives).

        `last`: id of the last processed event; the proxy resumes after it. Raises as `stream` does.
        """
        headers = {"Accept": EVENTS} | ({"Last-Event-ID": last} if last else {})
        name, data, ident = "", [], last
        for line in self._lines(path, query, headers):
            field, _, value = line.rstrip(b"\r\n").decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    name = value
                case "data":
                    data.append(value)
                case "id":
                    ident = value
                case "" if line.startswith(b":"):
                    yield ServerEvent(ident, "", "")
                case "":
                    if data:
                        yield ServerEvent(ident, name or "message", "\n".join(data))
                    name, data = "", []

    def other_server(self, response: str) -> InternalError:
        """Error for a server at this URL that is not kproxy. `response`: its response, such as `status 404`."""
        return InternalError(f"expected kproxy's admin API, got {response} (at {self.url})")

    def _lines(self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of an endless response with their line ends. Raises as `stream` does."""
        with self._response(
            "GET", self._target(path, query), headers={**self._authorization(), **headers}, timeout=TIMEOUT
        ) as response:
            if response.status != 200:
                self._read(response.status, response.read())
            while line := response.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise self.other_server(f"a line of {LONGEST_LINE} bytes")
                yield line
        raise InternalError(f"the proxy at {self.url} has ended")

    @contextmanager
    def _response(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({}),
        *, timeout: float,
    ) -> Iterator[http.client.HTTPResponse]:  # fmt: skip
        """Send a request, and yield its response. Raises InternalError if no server responds."""
        connection = self.connect(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, target, body, dict(headers))
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise InternalError(self._nothing(error)) from error
        finally:
            connection.close()

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self.prefix + path + (f"?{urlencode(given)}" if given else "")

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _nothing(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | socket.timeout):
            return f"no answer from {self.url} in time"
        if isinstance(error, OSError):
            why = (error.strerror or str(error)).lower()
            return f"nothing answers at {self.url} ({why}); is a proxy running there with --admin?"
        return str(self.other_server(type(error).__name__))

    def _read(self, status: int, data: bytes) -> Any:
        try:
            body = json.loads(data)
            if 200 <= status < 300:
                return body
            error = body["error"]
            code, message, mistakes = error["code"], error["message"], error["mistakes"]
        except (ValueError, KeyError, TypeError):
            raise self.other_server(f"status {status}") from None
        if mistakes:
            raise DocumentError([f"{one['where']}: {one['message']}" for one in mistakes])
        hint = ", in KPROXY_TOKEN or by --token-file" if code == "unauthorized" else ""
        raise Refused(code, f"{message}{hint}")


def segment(name: object) -> str:
    """Return a name, quoted as one segment of a URL's path."""
    return quote(str(name), safe="")


def with_admin(function: F) -> F:
    """Add the options that select the proxy; the function gets an Admin as its first argument."""

    @click.option(
        "--admin",
        "url",
        envvar="KPROXY_ADMIN",
        default=DEFAULT,
        show_default=True,
        metavar="URL",
        help="Where the proxy serves its admin API; also KPROXY_ADMIN.",
    )
    @click.option(
        "--token-file",
        metavar="FILE",
        envvar="KPROXY_TOKEN_FILE",
        help="File with the token (default: KPROXY_TOKEN).",
    )
    @wraps(function)
    def wrapper(url: str, token_file: str | None, **arguments: Any) -> Any:
        try:
            admin = Admin(url, shown_token(token_file))
        except KproxyError as error:
            raise click.UsageError(f"--token-file: {error}" if token_file else str(error)) from None
        return function(admin, **arguments)

    return wrapper  # type: ignore[return-value]


LONGEST_TOKEN = 65_536
"""Bytes of the longest file with a token."""


def shown_token(file: str | None) -> str | None:
    """Return the token from a file or from KPROXY_TOKEN; None if empty. Raises KproxyError for a token that cannot be
    read or sent."""
    if file is None:
        where, token = "KPROXY_TOKEN", os.environ.get("KPROXY_TOKEN", "").strip()
    else:
        try:
            where, token = file, text_named(file, LONGEST_TOKEN).removeprefix(BYTE_ORDER_MARK).strip()
        except OSError as error:
            raise KproxyError(f"{file}: the token cannot be read: {reason(error)}") from None
    if (problem := not_for_headers(token)) is not None:  # http.client would show it in its message
        raise KproxyError(f"{where}: the token cannot be sent: {problem}")
    return token or None
