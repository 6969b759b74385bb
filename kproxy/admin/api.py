"""Admin application: `/livez`, `/readyz`, `/readyz/CLUSTER`, `/metrics`, the page below `/view/`, and the API below
`/api`.

Probes rarely carry tokens, so `/livez` and `/readyz` are open and return little. The files of the page contain no data
and are open as well. All other paths, unknown ones included, pass the guard (`guard.py`). Each module of operations
contains a table of its paths.

`serve_files` serves the page and the operations that need no proxy, for `kproxy view --web FILE…`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import count
from pathlib import Path
from signal import SIGINT, SIGTERM
from types import MappingProxyType
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InputError
from kproxy.base.named_file import open_named, reason
from kproxy.record.component_collectors import CertificateFiles, ProcessCollector
from kproxy.record.live_view.reading import MOST_SOURCES, OpenedCaptures
from kproxy.record.metrics.traffic import OPEN_METRICS, exposition, registry_of
from kproxy.rules.document.store import RuleStore
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.readiness import Readiness
from kproxy.runtime.rule_keeper import DOCUMENTS, RuleKeeper

from . import captures, editor, exchanges, held, process, rules, sources, tail, view
from .backend import Backend
from .guard import JSON, SAFE, SLASH, AdminTokens, Guard, GuardedApp, check_host, make_guard
from .http_server import serve_admin
from .limits import CLOSE, RESPONSES, network_of_peer
from .operation import Operation, OperationCall, describe
from .problem import Problem
from .responses import GuardedStream, LongResponse

OPERATIONS: tuple[Operation, ...] = (
    *rules.OPERATIONS,
    *editor.OPERATIONS,
    *process.CONFIG_OPERATIONS,
    *process.CONNECTION_OPERATIONS,
    *process.ABOUT_OPERATIONS,
    *tail.OPERATIONS,
    *held.OPERATIONS,
    *view.OPERATIONS,
    *exchanges.OPERATIONS,
    *exchanges.SEND_OPERATIONS,
    *captures.OPERATIONS,
    *sources.OPERATIONS,
)
DESCRIPTION, PAGE = "/api/openapi.json", "/view"
PAGE_FILES, READY = f"{PAGE}/", "/readyz/"  # prefixes of paths
OPEN_PATHS = ("/livez", "/readyz")


def make_app(
    backend: Backend, host: str, certificates: CertificateFiles = MappingProxyType({}), *,
    operations: Sequence[Operation] = OPERATIONS,
) -> GuardedApp:  # fmt: skip
    """`host` is the name that the port is bound to."""
    guard, page_guard = make_guard(backend.tokens, host), make_page_guard(backend.tokens, host)
    collector = ProcessCollector(certificates)
    process_registry = registry_of(collector)

    def guard_of(path: str) -> Guard | None:
        if path in OPEN_PATHS or path.startswith(READY):
            return None
        return page_guard if path == PAGE or path.startswith(PAGE_FILES) else guard

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        readiness = await backend.readiness()
        clusters = {name: ready(readiness.of(name)) for name in readiness.clusters}
        return readiness_response(ready(readiness.waiting_for(backend.need)) | {"clusters": clusters})

    async def readyz_of(request: Request) -> Response:
        readiness, name = await backend.readiness(), request.path_params["cluster"].replace(SLASH, "/")
        if name not in readiness.clusters:
            raise Problem(404, "not_found", f'there is no cluster "{name}"')
        return readiness_response(ready(readiness.of(name)))

    async def scrape(request: Request) -> Response:
        readiness = await backend.readiness()
        collector.ready, collector.clusters = readiness.flags(backend.need)
        await trio.to_thread.run_sync(collector.read_expiries, collector.files)
        own = b"".join(exposition(process_registry))
        return Response(await backend.scraped() + own, media_type=OPEN_METRICS)

    async def openapi(request: Request) -> Response:
        # The first call takes a second.
        return Response(await trio.to_thread.run_sync(written_description, limiter=DOCUMENTS), media_type=JSON)

    async def page(request: Request) -> Response:
        if not backend.view.enabled:
            raise Problem(404, "not_found", f"there is no {request.scope['path']} here")
        return await page_file(request)

    routes = [
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route(READY + "{cluster}", readyz_of),
        Route("/metrics", scrape),
        Route(DESCRIPTION, openapi),
        Route(PAGE, page),
        Route(PAGE_FILES + "{file:path}", page),
    ]
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    routes += [Route(path, endpoint(backend, guard, ops), methods=list(ops)) for path, ops in by_path.items()]
    return GuardedApp(routes, guard_of, backend.log)


def ready(missing: list[str]) -> dict[str, Any]:
    return {"ready": not missing, "waiting_for": missing}


def readiness_response(body: dict[str, Any]) -> Response:
    return JSONResponse(body, 200 if body["ready"] else 503)


@cache
def description() -> dict[str, Any]:
    return describe(OPERATIONS)


@cache
def written_description() -> bytes:
    """Serialize the description, which takes some ten milliseconds."""
    return bytes(JSONResponse(description()).body)


def endpoint(backend: Backend, guard: Guard, methods: dict[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a path. Starlette rejects other methods; HEAD is handled as GET."""

    async def handle(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        writes = operation.writes

        def check() -> bool:
            may_write = guard(request)
            if writes and not may_write:
                raise Problem(403, "read_only", f"the token is for reading, and {operation.name} changes something")
            if "view_off" in operation.refusals and not backend.view.enabled:
                headers = CLOSE if operation.body == "bytes" else None
                raise Problem(403, "view_off", "the config has `view: {enabled: false}`", headers=headers)
            return may_write

        check()
        network = network_of_peer(request)
        if "too_many_answers" in operation.refusals:
            RESPONSES.check(network)
        async with operation.called(request, check) as call:
            shown = await operation.handle(backend, call)
        if writes:
            log_change(backend, request, operation, call)
        else:
            try:
                check()  # it may have waited for a minute, and tokens change
            except Problem:
                close_stream(shown)
                raise
        if isinstance(shown, LongResponse):
            return await shown.response(operation.status, network)
        if isinstance(shown, Response) and request.method == "HEAD":
            close_stream(shown)
            return Response(media_type=operation.media)
        if isinstance(shown, Response):
            return shown
        return JSONResponse(shown.model_dump(mode="json"), operation.status)

    return handle


def close_stream(shown: object) -> None:
    """Release what a response holds that is not sent."""
    if isinstance(shown, GuardedStream):
        shown.close()


def log_change(backend: Backend, request: Request, operation: Operation, call: OperationCall) -> None:
    """Log a change with its peer address and the name in `Kproxy-Who`."""
    peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
    of = "/".join(call.path.values()) or None
    backend.log.info("admin change", operation=operation.name, of=of, peer=peer, who=call.who or None)


HOST = "127.0.0.1"
VERSION = tuple(one for one in process.ABOUT_OPERATIONS if one.name == "get_version")
FILE_OPERATIONS: tuple[Operation, ...] = (
    *VERSION,
    *editor.OPERATIONS,
    *sources.OPERATIONS,
    *exchanges.OPERATIONS,
)
"""Operations that need no proxy."""


@contextmanager
def files_backend(log: FilteringBoundLogger, most: int) -> Iterator[Backend]:
    """Backend without members, with room for `most` files."""
    reactor = Reactor(log)

    async def nothing() -> bytes:
        return b""

    async def readiness() -> Readiness:
        return Readiness((), {})

    store = RuleStore()
    kept = OpenedCaptures(max(most, MOST_SOURCES), stay=True)
    no_captures: Any = None  # their operations need a proxy
    backend = Backend(
        RuleKeeper(store, lambda rules: None, reactor, log), (), readiness, nothing, no_captures,
        lambda listener, nodes: {}, log, sources=kept,
    )  # fmt: skip
    try:
        yield backend
    finally:
        kept.close()
        reactor.close()


async def serve_files(
    files: Sequence[str], log: FilteringBoundLogger, told: Callable[[str], None], port: int = 0
) -> None:
    """Read captures and serve the page for them until cancelled, SIGINT or SIGTERM.

    `told` receives the page's URL after all files are read. Raises InputError for an unreadable file.
    """
    with files_backend(log, len(files)) as backend:
        for name in files:
            await add_file(backend, name)
        turns = count()
        # KeyboardInterrupt would be raised wherever the loop is, which may be in something that catches it
        with trio.open_signal_receiver(SIGINT, SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                url = await nursery.start(serve_admin, files_app(backend), HOST, port, log, lambda: next(turns))
                told(f"{url}/view/")
                async for _ in signals:
                    nursery.cancel_scope.cancel()


def files_app(backend: Backend) -> GuardedApp:
    return make_app(backend, HOST, operations=FILE_OPERATIONS)


async def add_file(backend: Backend, name: str) -> None:
    """Add a file to the sources. Raises InputError."""
    try:
        with open_named(name) as file:
            await sources.opened(backend.sources, file, Path(name).name, os.fstat(file.fileno()).st_size)
    except Problem as problem:
        raise InputError(problem.message) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {reason(error)}") from None


INDEX = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
"""Media types by the ending of a file's name."""


@dataclass(frozen=True, slots=True)
class Asset:
    data: bytes
    media: str
    etag: str


def make_page_guard(tokens: AdminTokens, host: str) -> Guard:
    """Return the guard of the page's files. Where a token guards the data, the page may be open under any name, behind
    a reverse proxy too. A link to the page on some other page may be followed."""

    def check(request: Request) -> bool:
        if tokens.full is None:
            check_host(request, host)
        return False

    return check


async def page_file(request: Request) -> Response:
    """Return a file of the page, or 304 if the browser has it. Raises Problem."""
    if request.scope["path"] == PAGE:
        # The page names its files by relative paths. The redirect is relative for reverse proxies that add a prefix.
        return RedirectResponse("view/", headers=SAFE)
    assets = await trio.to_thread.run_sync(all_assets, limiter=DOCUMENTS)
    asset = assets.get(request.path_params["file"] or INDEX)
    if asset is None:
        raise Problem(404, "not_found", f"there is no {request.scope['path']} here")
    headers = {**SAFE, "ETag": asset.etag}
    if asset.etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(asset.data, media_type=asset.media, headers=headers)


@cache
def all_assets() -> dict[str, Asset]:
    """Read all files of the page, about 300 kB, by their paths."""
    return dict(below(files("kproxy").joinpath("admin", "page"), ""))


def below(folder: Traversable, path: str) -> list[tuple[str, Asset]]:
    """Return the files in a folder and its subfolders, with their paths."""
    found: list[tuple[str, Asset]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += below(one, f"{path}{one.name}/")
        else:
            data = one.read_bytes()
            media = TYPES.get(one.name.rpartition(".")[2], TYPES[""]) if "." in one.name else TYPES[""]
            found.append((f"{path}{one.name}", Asset(data, media, f'"{sha256(data).hexdigest()[:32]}"')))
    return found
