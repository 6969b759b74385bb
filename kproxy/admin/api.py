"""`/livez`, `/readyz`, `/metrics`.

Security. The port is for loopback unless a token is set (the config sees to that). On loopback the Host header must
name this machine, so that a web page in a browser here cannot reach it under a name of its own (DNS rebinding); with
a token the token decides. `/livez` and `/readyz` tell nothing and are open, since probes rarely carry tokens.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
OPEN_METRICS = "text/plain; version=0.0.4; charset=utf-8"

Reasons = Callable[[], list[str]]
"""Why kproxy is not ready; empty when it is."""


def make_app(reasons: Reasons, metrics: Callable[[], bytes], token: str | None, host: str) -> Starlette:
    """The application. `host` is the name that the port is bound to."""

    def refusal(request: Request) -> Response | None:
        if token is not None:
            given = request.headers.get("authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return None
            return PlainTextResponse("a bearer token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        named = hostname(request.headers.get("host", ""))
        if named in LOCAL or named == host:
            return None
        return PlainTextResponse(f"host {named!r} is not this machine\n", 403)

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        missing = reasons()
        return JSONResponse({"ready": not missing, "waiting_for": missing}, 503 if missing else 200)

    async def scrape(request: Request) -> Response:
        return refusal(request) or Response(metrics(), media_type=OPEN_METRICS)

    return Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", scrape)])


def hostname(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.rpartition(":")[0] if header.count(":") == 1 else header
