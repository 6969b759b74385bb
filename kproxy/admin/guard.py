"""Guard of the admin address against requests that may not be made.

The address is for loopback unless a token is set (the config sees to that). Against web pages in a browser here:

- The Host header must name this machine, so that no page reaches it under a name of its own (DNS rebinding); with a
  token the token decides instead, which such a page does not have.
- An Origin header must be that of this address itself. Nothing else answers with CORS headers here, so a page of
  another origin can read nothing and send nothing but what a form can send, and
- a form cannot send `application/json`, which every POST and PUT must be, with or without a body.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from starlette.requests import Request

from .problem import Problem

LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
JSON, YAML = "application/json", "application/yaml"

Guard = Callable[[Request], None]


def make_guard(token: str | None, host: str) -> Guard:
    """Return a function that raises Problem for requests that may not be. `host` is the name that the port is bound
    to."""

    def check(request: Request) -> None:
        headers = request.headers
        if token is not None:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                raise Problem(401, "unauthorized", "a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})
        else:
            named = hostname(headers.get("host", ""))
            if named not in LOCAL and named != host:
                raise Problem(403, "foreign_host", f"host {named!r} is not this machine")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            raise Problem(403, "foreign_origin", f"origin {origin!r} is not this address")

    return check


def hostname(header: str) -> str:
    """Return the name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.rpartition(":")[0] if header.count(":") == 1 else header


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
