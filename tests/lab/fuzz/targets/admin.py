"""The admin API under any method, path, query, headers and body.

- never 500, never an exception: each request is answered, a refusal with a code that its page lists for that status
- bodies are read as they come, in pieces
- what was refused has changed nothing: after it the same rules are there
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import structlog
import trio
import trio.testing
from pydantic import BaseModel
from starlette.types import Message

from kproxy.admin.api import OPERATIONS, make_app
from kproxy.admin.backend import process_backend
from kproxy.admin.problem import CODES
from kproxy.app.app import ProxyProcess
from kproxy.app.config.document import Config
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source
from tests.lab.fuzz.feed import Feed

CONFIG = {
    "clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
    "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
}
FILE = "rules:\n  - {name: base, kind: delay, delay: 5ms}\n"
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH")
PROBES = {"/metrics", "/livez", "/readyz", "/readyz/{cluster}"}
PATHS = sorted({one.path for one in OPERATIONS} | PROBES | {"/api/openapi.json", "/"})
NAMES = (b"base", b"a", b"1", b"%2F", b"a%2Fb", b"%00", b"\xff", b"")
TYPES = (b"application/json", b"application/yaml", b"", b"text/plain", b"APPLICATION/JSON;charset=x")
HEADERS = (b"host", b"origin", b"authorization", b"content-length", b"content-type")
MOST = 5
"""Requests of one input."""


def drop(logger: Any, level: str, fields: Any) -> Any:
    raise structlog.DropEvent


@contextmanager
def application() -> Iterator[tuple[Any, RuleStore]]:
    """An admin application without sockets, with one rule in a file."""
    config = Config.model_validate(CONFIG)
    wrapper = structlog.make_filtering_bound_logger(0)
    log = structlog.wrap_logger(None, processors=[drop], wrapper_class=wrapper)
    store = RuleStore(7, config.places())
    store.replace_files([Source("a.yaml", FILE)], monotonic())
    proxy = ProxyProcess(config, store.rule_set, log, store=store)
    proxy.keeper.started()
    backend = process_backend(
        proxy.keeper, proxy.server, lambda: proxy.readiness, lambda: (b"metrics",), proxy.log,
        captures=proxy.make_pool_captures(), view=proxy.view_terms(),
    )  # fmt: skip
    try:
        yield make_app(backend, "127.0.0.1"), store
    finally:
        proxy.reactor.close()


def check(data: bytes) -> None:
    """One input: some requests, one after the other. Work for threads is done at once, since a clock that jumps does
    not wait for it."""
    with patch.object(trio.to_thread, "run_sync", at_once):
        trio.run(requests, Feed(data), clock=trio.testing.MockClock(autojump_threshold=0))


async def at_once(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Stand in for `trio.to_thread.run_sync`."""
    await trio.lowlevel.checkpoint()
    return work(*arguments)


async def requests(feed: Feed) -> None:
    with application() as (app, store):
        for _ in range(MOST):
            before = names(store)
            status, body, method = await ask(app, feed)
            if status >= 400:
                assert names(store) == before
                if method != "HEAD":
                    assert status == 503 or json.loads(body)["error"]["code"] in CODES[status]
            if not feed:
                return


def names(store: RuleStore) -> list[str]:
    return [running.name for running in store.rule_set.live]


async def ask(app: Any, feed: Feed) -> tuple[int, bytes, str]:
    method = feed.pick(METHODS)
    path = feed.pick(PATHS).encode() if feed.below(8) else b"/" + feed.piece()
    for word in (b"{name}", b"{id}"):
        path = path.replace(word, feed.pick(NAMES) if feed.below(4) else feed.piece())
    path = path.partition(b"?")[0]
    query, kind, pieces, body = feed.piece(), feed.pick(TYPES), feed.below(5), feed.piece()
    headers = [(b"host", b"127.0.0.1:9190"), (b"content-type", kind)]
    if not pieces:
        headers.append((b"content-length", str(len(body)).encode()))
    for _ in range(feed.below(3)):
        headers.append((feed.pick(HEADERS), feed.piece()))  # noqa: PERF401 -- in the order of the bytes
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query, "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9190),
    }  # fmt: skip
    step = pieces or len(body) or 1
    parts = [body[at : at + step] for at in range(0, len(body), step)] or [b""]
    sent: list[Message] = []

    async def receive() -> Message:
        if not parts:
            await trio.sleep(1)
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    with trio.move_on_after(5000) as limit, suppress(ConnectionError):
        await app(scope, receive, send)
    assert sent and not limit.cancelled_caught, (method, path)
    status = sent[0]["status"]
    content = b"".join(one.get("body", b"") for one in sent[1:])
    assert status != 500, content
    return status, content, method


VALUES = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def filled(model: type[BaseModel]) -> bytes:
    """Return JSON that has every field of a model with a value of its first type."""
    fields = model.model_json_schema().get("properties", {})
    types = {name: one.get("anyOf", [one])[0].get("type") for name, one in fields.items()}
    return json.dumps({name: VALUES.get(str(kind), "10s") for name, kind in types.items()}).encode()


def seeds() -> Iterator[bytes]:
    """Every operation, with a body that it takes."""
    rule = json.dumps({"name": "a", "kind": "delay", "delay": "5ms"}).encode()
    document = b'{"rules": [' + rule + b"]}"
    for one in OPERATIONS:
        at, named = bytes((METHODS.index(one.method), 1, PATHS.index(one.path))), "{" in one.path
        if isinstance(one.body, type):
            body = filled(one.body)
        else:
            body = {"rule": rule, "document": document, "bytes": b"none", None: b""}[one.body]
        for name in (0, 1) if named else (0,):
            yield at + (bytes((1, name)) if named else b"") + bytes((0, 0, 0, len(body))) + body + b"\0"
    yield bytes((2, 1, PATHS.index("/api/rules"), 7)) + b"ttl=10s" + bytes((0, 3, len(document))) + document + b"\0"
    yield (
        bytes((1, 1, PATHS.index("/api/rules"), 18))
        + b"origin=test&ttl=1s"
        + bytes((1, 0, 13))
        + b"rules: [{a: }"
        + b"\0"
    )


WORDS = [
    b"ttl=", b"origin=test", b"replace=true", b"hits=", b"timeout=1e9", b"count=applied", b"&", b"%2F", b"filter=",
    b'"kind": "', b'{"rules": [', b"1e400", b"Infinity", b"NaN", b'"\\ud800"', b"which=all", b"reset=1", b"-0", b"null",
]  # fmt: skip
