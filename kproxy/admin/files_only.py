"""The live view for files, without a proxy: `kproxy view --web FILE…`.

It is the page and the part of the API that needs no traffic, at a free port of loopback. Files are read as uploaded
ones are, each by a process of its own, and stay until the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGINT, SIGTERM

import trio
from starlette.applications import Starlette
from structlog.typing import FilteringBoundLogger

from kproxy.admin import check, completion, exchanges, resources, sources
from kproxy.admin.api import make_app
from kproxy.admin.backend import Backend
from kproxy.admin.capture_store import ProcessCaptures
from kproxy.admin.live import serve_admin
from kproxy.admin.operation import Operation
from kproxy.base.errors import InputError
from kproxy.base.named_file import open_named, reason
from kproxy.record.live_view.sources import MOST_SOURCES, OpenedCaptures
from kproxy.rules.document.store import RuleStore
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.readiness import Readiness
from kproxy.runtime.rules.keeper import RuleKeeper

from .problem import Problem

HOST = "127.0.0.1"
VERSION = tuple(one for one in resources.ABOUT_OPERATIONS if one.name == "get_version")
OPERATIONS: tuple[Operation, ...] = (
    *VERSION,
    *check.OPERATIONS,
    *completion.OPERATIONS,
    *sources.OPERATIONS,
    *exchanges.OPERATIONS,
)
"""Operations that need no proxy."""


@contextmanager
def files_backend(log: FilteringBoundLogger, most: int) -> Iterator[Backend]:
    """Give a backend without members, and with room for this many files."""
    reactor = Reactor(log)

    async def nothing() -> bytes:
        return b""

    async def readiness() -> Readiness:
        return Readiness((), {})

    store = RuleStore()
    kept = OpenedCaptures(max(most, MOST_SOURCES), stay=True)
    backend = Backend(
        RuleKeeper(store, lambda rules: None, reactor, log), (), readiness, nothing, ProcessCaptures(None),
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

    `told` gets the page's address when all are read. Raises InputError for a file that is none."""
    with files_backend(log, len(files)) as backend:
        for name in files:
            await add(backend, name)
        turns = count()
        # KeyboardInterrupt would be raised wherever the loop is, which may be in something that catches it
        with trio.open_signal_receiver(SIGINT, SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                url = await nursery.start(serve_admin, files_app(backend), HOST, port, log, lambda: next(turns))
                told(f"{url}/view/")
                async for _ in signals:
                    nursery.cancel_scope.cancel()


def files_app(backend: Backend) -> Starlette:
    """Return the application of a backend that has files only."""
    return make_app(backend, HOST, operations=OPERATIONS)


async def add(backend: Backend, name: str) -> None:
    """Read a file and add it to the sources. Raises InputError."""
    try:
        with open_named(name) as file:
            await sources.opened(backend.sources, file, Path(name).name, os.fstat(file.fileno()).st_size)
    except Problem as problem:
        raise InputError(problem.message) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {reason(error)}") from None
