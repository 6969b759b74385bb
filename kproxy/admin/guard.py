"""Guard of the admin address, and the application that all HTTP servers of kproxy share.

The guard runs before routing: a request without a valid token matches no route, and its body is not read.

Without a token the address is bound to loopback (the config checks this). Defences against web pages in a local
browser:

- The Host header must name this machine (DNS rebinding). With a token the token decides.

- An Origin header must be this address. No response has CORS headers, so other origins cannot read responses, and send
only what an HTML form sends.

- POST and PUT need `application/json`, even without a body, and uploads of captures `application/octet-stream`. HTML
forms send neither.

- Sec-Fetch-Site, if present, must be `same-origin` or `none`.

The read token allows all requests that change nothing. All refusals have one form, and all responses forbid sniffing,
sharing and caching.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from string import printable
from urllib.parse import quote, unquote

import trio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError

from .problem import Problem, answer, problem_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Content-Security-Policy of every file."""
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"  # Content-Security-Policy of responses other than the page
SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time: a page of another version of kproxy would not fit its API
}
LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
SLASH = "\x00"  # Placeholder of %2F in a path parameter
JSON, YAML, BYTES = "application/json", "application/yaml", "application/octet-stream"
OWN_SITES = frozenset(("same-origin", "none"))
"""Values of Sec-Fetch-Site of a page of this address, and of a person who has typed it or opened a bookmark."""


@dataclass
class AdminTokens:
    """Tokens of the admin address; a reload may change them. `full`: allows everything; None: no token is required.
    `read`: allows requests that change nothing; effective only with `full`."""

    full: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)
    streams: dict[trio.CancelScope, bytes] = field(default_factory=dict, repr=False, compare=False)
    """Streams that are under way, with the Authorization header that each was asked for with."""

    def use(self, other: AdminTokens) -> None:
        """Replace the tokens, and end streams that the new tokens do not allow."""
        self.full, self.read = other.full, other.read
        for scope, given in self.streams.items():
            if not self.allows(given):
                scope.cancel()

    def allows(self, given: bytes) -> bool:
        """True if an Authorization header allows reading."""
        return self.full is None or is_bearer(given, self.full) or is_bearer(given, self.read)

    def check(self, given: bytes) -> None:
        """Raise Problem if an Authorization header does not allow reading."""
        if not self.allows(given):
            raise Problem(401, "unauthorized", "a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})

    @contextmanager
    def while_allowed(self, asked: Scope) -> Iterator[trio.CancelScope]:
        """Scope of a stream: cancelled when its token is revoked."""
        given = authorization_of(Headers(scope=asked))
        with trio.CancelScope() as scope:
            self.streams[scope] = given
            try:
                yield scope
            finally:
                del self.streams[scope]


_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")

Guard = Callable[[Request], bool]
"""Returns whether a request may change something. Raises Problem when it may not be at all."""


def make_guard(tokens: AdminTokens, host: str) -> Guard:
    """`host` is the name that the port is bound to."""

    def check(request: Request) -> bool:
        headers = request.headers
        may_write = True
        if tokens.full is not None:
            given = authorization_of(headers)
            tokens.check(given)
            may_write = is_bearer(given, tokens.full)
        else:
            check_host(request, host)
        for origin in headers.getlist("origin"):
            if origin.partition("://")[2] != headers.get("host"):
                raise Problem(403, "foreign_origin", f"origin {origin!r} is not this address")
        for site in headers.getlist("sec-fetch-site"):
            if site not in OWN_SITES:
                raise Problem(403, "foreign_site", f"a page of another site has sent this (Sec-Fetch-Site: {site!r})")
        return may_write

    return check


def authorization_of(headers: Headers) -> bytes:
    """Return the first Authorization header of a request; empty if absent."""
    return headers.get("authorization", "").encode()


def is_bearer(given: bytes, token: str | None) -> bool:
    """True if an Authorization header contains this token; compares in constant time."""
    return token is not None and hmac.compare_digest(given, f"Bearer {token}".encode())


def check_host(request: Request, host: str) -> None:
    """Raise Problem if the Host header names neither this machine nor `host`."""
    named = hostname(request.headers.get("host", ""))
    if named not in LOCAL and named != host:
        raise Problem(403, "foreign_host", f"host {named!r} is not this machine")


def hostname(header: str) -> str:
    """Return the name in a Host header without its port; the whole header if it is malformed."""
    found = _HOST.fullmatch(header)
    return found[1] if found else header


def media_type(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the Content-Type of a request. Raises Problem if it is not allowed."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        media = f'"{given}"' if given else "none"
        raise Problem(
            415, "unsupported_media_type", f"expected Content-Type {' or '.join(allowed)}, got {media}",
            headers={"Accept": ", ".join(allowed)},
        )  # fmt: skip
    return given


DEFAULT_HEADERS = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {**SAFE, "Content-Security-Policy": DATA_POLICY, "Cache-Control": "no-store"}.items()
)
"""Default headers of all responses, refusals included: browsers must not sniff, share or cache them."""
REPLACEMENT = quote("\N{REPLACEMENT CHARACTER}")  # replaces %00 in a path, which SLASH uses


class GuardedApp:
    """ASGI application that guards each request before it is routed, and sends all refusals in one form.

    `guard_of`: returns the guard of a path; None: the path is open.
    """

    def __init__(
        self, routes: Sequence[BaseRoute], guard_of: Callable[[str], Guard | None], log: FilteringBoundLogger
    ) -> None:
        # A redirect to a path with another slash would name the Host header of the request.
        self.router = Router(routes, redirect_slashes=False)
        self.guard_of, self.log = guard_of, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the router rejects WebSockets
            await self.router(scope, receive, send)
            return
        started = False

        async def send_with_defaults(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                message["headers"] = [*headers, *(one for one in DEFAULT_HEADERS if one[0] not in given)]
            await send(message)

        scope = {**normalized(scope), "app": self}  # with an app, the router raises HTTPException for 404 and 405
        try:
            guard = self.guard_of(scope["path"])
            if guard is not None:
                guard(Request(scope))
            await self.router(scope, receive, send_with_defaults)
        except Exception as error:
            if started:
                raise
            await answer(self.problem(error, scope))(scope, receive, send_with_defaults)

    def problem(self, error: Exception, scope: Scope) -> Problem:
        """Convert an exception to a Problem; log unexpected ones."""
        path = scope["path"]  # `Request.url` contains the Host header, which may be any text
        match error:
            case Problem():
                return error
            case KproxyError():
                return problem_of(error)
            case HTTPException(status_code=405, headers=headers):
                allowed = (headers or {}).get("Allow", "")
                message = f"{scope['method']} is not for {path}, allowed: {allowed}"
                return Problem(405, "method_not_allowed", message, headers=headers)
            case HTTPException():
                return Problem(404, "not_found", f"there is no {path} here")
        self.log.error("request failed", path=path, exc_info=error)
        # The error's text may contain a secret of the document in the body.
        return Problem(500, "internal", f"{type(error).__name__}, see the log of kproxy")


def normalized(scope: Scope) -> Scope:
    """Return the scope with `%2F` in its path as SLASH, and with an ASCII query.

    `%2F` is part of a name, not of the path. HTTP allows only ASCII in a query; other bytes are percent-encoded.
    """
    query, raw = scope.get("query_string", b""), scope.get("raw_path", b"")
    if not query.isascii():
        scope = {**scope, "query_string": quote(query, safe=printable).encode()}
    if b"%2" in raw or b"%00" in raw:
        path = raw.partition(b"?")[0].decode("ascii", "replace").replace("%00", REPLACEMENT)
        scope = {**scope, "path": unquote(path.replace("%2F", SLASH).replace("%2f", SLASH))}
    return scope
