"""Admin application: `/livez`, `/readyz`, `/readyz/CLUSTER`, `/metrics`, and the API below `/api`.

`/livez` and `/readyz` tell little and are open, since probes rarely carry tokens, and so are the files of the live view
(`assets.py`), which hold no data; all else passes the guard (`guard.py`). What the API can do is in the tables of
`rules.py`, `resources.py` and `tail.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from string import printable
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kproxy.record.component_collectors import CertificateFiles, ProcessCollector
from kproxy.record.metrics.traffic import OPEN_METRICS, exposition, registry_of
from kproxy.runtime.rules.keeper import DOCUMENTS

from . import (
    capture_download,
    check,
    completion,
    config,
    exchanges,
    held,
    resources,
    rules,
    send_again,
    sources,
    tail,
    view,
)
from .assets import PAGE, make_page_guard, page_file, to_page
from .backend import Backend
from .guard import JSON, Guard, make_guard
from .long_answer import LongAnswer
from .openapi import describe
from .operation import SLASH, Operation, OperationCall
from .problem import Problem, answer
from .refusals import RequestHandler, SafeAnswers, guarded, no_route

OPERATIONS: tuple[Operation, ...] = (
    *rules.OPERATIONS,
    *check.OPERATIONS,
    *completion.OPERATIONS,
    *config.OPERATIONS,
    *resources.CONNECTION_OPERATIONS,
    *resources.ABOUT_OPERATIONS,
    *tail.OPERATIONS,
    *held.OPERATIONS,
    *view.OPERATIONS,
    *exchanges.OPERATIONS,
    *send_again.OPERATIONS,
    *resources.CAPTURE_OPERATIONS,
    *capture_download.OPERATIONS,
    *sources.OPERATIONS,
)
DESCRIPTION = "/api/openapi.json"


def make_app(
    backend: Backend, host: str, certificates: CertificateFiles = MappingProxyType({}), *,
    operations: Sequence[Operation] = OPERATIONS,
) -> Starlette:  # fmt: skip
    """Make the application. `host` is the name that the port is bound to."""
    guard, page_guard = make_guard(backend.tokens, host), make_page_guard(backend.tokens, host)
    process = ProcessCollector(certificates)
    process_registry = registry_of(process)

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        readiness = await backend.readiness()
        clusters = {name: ready(readiness.of(name)) for name in readiness.clusters}
        return told(ready(readiness.waiting_for(backend.need)) | {"clusters": clusters})

    async def readyz_of(request: Request) -> Response:
        readiness, name = await backend.readiness(), request.path_params["cluster"].replace(SLASH, "/")
        if name not in readiness.clusters:
            return answer(Problem(404, "not_found", f'there is no cluster "{name}"'))
        return told(ready(readiness.of(name)))

    async def scrape(request: Request) -> Response:
        readiness = await backend.readiness()
        process.ready, process.clusters = readiness.flags(backend.need)
        await trio.to_thread.run_sync(process.look, process.files)
        own = b"".join(exposition(process_registry))
        return Response(await backend.scraped() + own, media_type=OPEN_METRICS)

    described: list[bytes] = []

    async def openapi(request: Request) -> Response:
        if not described:  # the first time it takes a second
            described.append(await trio.to_thread.run_sync(written_description, limiter=DOCUMENTS))
        return Response(described[0], media_type=JSON)

    routes = [
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/readyz/{cluster}", readyz_of),
        Route("/metrics", guarded(guard, backend.log, scrape)),
        Route(DESCRIPTION, guarded(guard, backend.log, openapi)),
    ]

    def of_view(answer_page: RequestHandler) -> RequestHandler:
        """Return what answers for the page while the config lets anybody look."""

        async def answered(request: Request) -> Response:
            if not backend.view.enabled:
                raise Problem(404, "not_found", f"there is no {request.scope['path']} here")
            return await answer_page(request)

        return answered

    routes += [
        Route(PAGE.rstrip("/"), guarded(page_guard, backend.log, of_view(to_page))),
        Route(PAGE + "{file:path}", guarded(page_guard, backend.log, of_view(page_file))),
    ]
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    for path, methods in by_path.items():
        handler = guarded(guard, backend.log, endpoint(backend, guard, methods))
        routes.append(Route(path, handler, methods=list(methods)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(SafeAnswers), Middleware(KeepSlashes)],
        exception_handlers={HTTPException: no_route},
    )
    app.router.redirect_slashes = False  # it answers before any guard, with an address made of the Host header
    return app


def ready(missing: list[str]) -> dict[str, Any]:
    """Return the answer of /readyz, as probes are told it."""
    return {"ready": not missing, "waiting_for": missing}


def told(body: dict[str, Any]) -> Response:
    """Make a response with the status that probes look at."""
    return JSONResponse(body, 200 if body["ready"] else 503)


@cache
def description() -> dict[str, Any]:
    """Describe the API as an OpenAPI document."""
    return describe(OPERATIONS)


@cache
def written_description() -> bytes:
    """Return the description as JSON, which is some ten milliseconds of work more."""
    return bytes(JSONResponse(description()).body)


def endpoint(backend: Backend, guard: Guard, methods: dict[str, Operation]) -> RequestHandler:
    """Return the handler of a path; Starlette sees to it that the method is one of these (HEAD is a GET)."""

    async def handle(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        writes = operation.writes

        def check() -> bool:
            may_write = guard(request)
            if writes and not may_write:
                raise Problem(403, "read_only", f"the token is for reading, and {operation.name} changes something")
            return may_write

        check()
        async with operation.called(request, check) as call:
            shown = await operation.handle(backend, call)
        if writes:
            tell_change(backend, request, operation, call)
        else:
            try:
                check()  # it may have waited for a minute, and tokens change
            except Problem:
                let_go(shown)
                raise
        if isinstance(shown, LongAnswer):
            return await shown.response(operation.status)
        if isinstance(shown, Response) and request.method == "HEAD":
            let_go(shown)
            return Response(media_type=operation.media)
        if isinstance(shown, Response):
            return shown
        return JSONResponse(shown.model_dump(mode="json"), operation.status)

    return handle


def let_go(shown: object) -> None:
    """Close the file of an answer that is not sent."""
    if isinstance(shown, capture_download.FileResponse):
        shown.close()


def tell_change(backend: Backend, request: Request, operation: Operation, call: OperationCall) -> None:
    """Log a change with the address that it came from, and who says to have made it."""
    peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
    of = "/".join(call.path.values()) or None
    backend.log.info("admin change", operation=operation.name, of=of, peer=peer, who=call.who or None)


NO_CHARACTER = quote("\N{REPLACEMENT CHARACTER}")
"""Stands for %00 in a path, which is the sign for a slash here: no name that has it is another name with a slash."""


class KeepSlashes:
    """Middleware for names with slashes: `%2F` in a path is part of a parameter, not of the path. Bytes of a query that
    are not ASCII, which HTTP does not allow, are taken as if they were written as they should be."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope.get("query_string", b"")
        if not query.isascii():
            scope = {**scope, "query_string": quote(query, safe=printable).encode()}
        raw = scope.get("raw_path", b"")
        if scope["type"] == "http" and (b"%2" in raw or b"%00" in raw):
            path = raw.partition(b"?")[0].decode("ascii", "replace").replace("%00", NO_CHARACTER)
            scope = {**scope, "path": unquote(path.replace("%2F", SLASH).replace("%2f", SLASH))}
        await self.app(scope, receive, send)
