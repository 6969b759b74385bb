"""Guard of the admin address against requests that may not be made.

The address is for loopback unless a token is set (the config sees to that). Against web pages in a browser here:

- The Host header must name this machine, so that no page reaches it under a name of its own (DNS rebinding); with a
  token the token decides instead, which such a page does not have.
- An Origin header must be that of this address itself. Nothing else answers with CORS headers here, so a page of
  another origin can read nothing and send nothing but what a form can send, and
- a form cannot send `application/json`, which every POST and PUT must be, with or without a body (but for a capture's
  bytes, which are `application/octet-stream`: no form can send that either).
- Browsers say in Sec-Fetch-Site whose page has sent a request. Where they do, it must be this address's own, or a
  person who has typed the address.

Whoever shows the token for reading may ask for everything, and change nothing.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from .problem import Problem

LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
JSON, YAML, BYTES = "application/json", "application/yaml", "application/octet-stream"
OWN_SITES = frozenset(("same-origin", "none"))
"""Values of Sec-Fetch-Site of a page of this address, and of a person who has typed it or opened a bookmark."""


@dataclass
class AdminTokens:
    """Tokens of the admin address, which may change. `full`: for everything; None: this machine may do everything
    without one. `read`: for whoever may look and change nothing; it is only of use beside the other."""

    full: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)
    streams: dict[trio.CancelScope, bytes] = field(default_factory=dict, repr=False, compare=False)
    """Streams that are under way, with the Authorization header that each was asked for with."""

    def use(self, other: AdminTokens) -> None:
        """Ask for the other tokens from now on, and end the streams that could not be asked for with these."""
        self.full, self.read = other.full, other.read
        for scope, given in self.streams.items():
            if not self.allows(given):
                scope.cancel()

    def allows(self, given: bytes) -> bool:
        """Return True if an Authorization header lets look."""
        return self.full is None or is_bearer(given, self.full) or is_bearer(given, self.read)

    def check(self, given: bytes) -> None:
        """Check that an Authorization header lets look. Raises Problem."""
        if not self.allows(given):
            raise Problem(401, "unauthorized", "a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})

    @contextmanager
    def while_allowed(self, asked: Scope) -> Iterator[trio.CancelScope]:
        """Go on with a stream as long as the tokens allow what it was asked for with."""
        given = shown_by(Headers(scope=asked))
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
    """Return the guard of an address that asks for these tokens. `host` is the name that the port is bound to."""

    def check(request: Request) -> bool:
        headers = request.headers
        may_write = True
        if tokens.full is not None:
            given = shown_by(headers)
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


def shown_by(headers: Headers) -> bytes:
    """Return the Authorization header of a request, the first if there are several; empty if there is none."""
    return headers.get("authorization", "").encode()


def is_bearer(given: bytes, token: str | None) -> bool:
    """Return True if an Authorization header shows this token; the time it takes tells nothing about the token."""
    return token is not None and hmac.compare_digest(given, f"Bearer {token}".encode())


def check_host(request: Request, host: str) -> None:
    """Check that the Host header names this machine, or `host`. Raises Problem."""
    named = hostname(request.headers.get("host", ""))
    if named not in LOCAL and named != host:
        raise Problem(403, "foreign_host", f"host {named!r} is not this machine")


def hostname(header: str) -> str:
    """Return the name in a Host header, without its port; all of one that is no name with a port."""
    found = _HOST.fullmatch(header)
    return found[1] if found else header


def media_type(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the Content-Type of a request that writes. Raises Problem when it is none of these."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        media = f'"{given}"' if given else "none"
        raise Problem(
            415, "unsupported_media_type", f"the Content-Type must be {' or '.join(allowed)}, found {media}",
            headers={"Accept": ", ".join(allowed)},
        )  # fmt: skip
    return given
