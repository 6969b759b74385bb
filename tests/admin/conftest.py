"""The admin application of a proxy that has no sockets, asked in process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import unquote

import pytest
import structlog
import trio
from starlette.types import Message

from kproxy.admin.api import description, make_app, written_description
from kproxy.admin.backend import process_backend
from kproxy.admin.editor import kinds_shown
from kproxy.admin.guard import AdminTokens
from kproxy.app.app import ProxyProcess
from kproxy.app.config.document import Config
from kproxy.rules.document.store import RuleStore
from kproxy.rules.kinds import KINDS
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Source
from tests.rules.conftest import Tiny, TinyCode
from tests.support.held_api import Held

JSON = "application/json"
CONFIG = {
    "clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
    "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
}


@dataclass
class Answer:
    """Of the API."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Api:
    """Calls the application. `token`, `read`: what it asks for, as in `AdminTokens`."""

    def __init__(self, proxy: ProxyProcess, token: str | None = None, read: str | None = None) -> None:
        self.proxy, self.closed = proxy, False
        backend = process_backend(proxy.keeper, proxy.server, lambda: proxy.readiness, lambda: [b"metrics"], proxy.log,
                                  captures=proxy.make_pool_captures(), view=proxy.view_terms())  # fmt: skip
        self.backend, self.members = backend, backend.members
        backend.tokens = AdminTokens(token, read)
        self.app = make_app(backend, "127.0.0.1")

    def close(self) -> None:
        """Its proxy's descriptors; twice is once."""
        if not self.closed:
            self.proxy.reactor.close()
        self.closed = True

    def running(self, name: str) -> ActiveRule:
        """The live rule of that name."""
        found = self.proxy.keeper.running(name)
        assert found is not None
        return found

    async def __call__(
        self, method: str, path: str, body: Any = None, *, kind: str | None = JSON, pieces: int = 0,
        receive: Callable[[], Any] | None = None, **headers: str,
    ) -> Answer:  # fmt: skip
        """`body`: text and bytes as they are, all else as JSON. `kind`: the Content-Type. `pieces`: so many bytes come
        at once, without a Content-Length. `receive`: what comes behind the body."""
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else "" if body is None else json.dumps(body)).encode()
        data: bytes = body
        given = {"host": "127.0.0.1:9190"} | ({"content-type": kind} if kind else {}) | headers
        if not pieces:
            given.setdefault("content-length", str(len(data)))
        raw, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(raw), "raw_path": raw.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9190),
        }  # fmt: skip
        step = pieces or len(data) or 1
        parts = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
        sent: list[Message] = []

        async def give() -> Message:
            if not parts:  # without `receive` the connection stays open, and nothing comes
                return await (receive or trio.sleep_forever)()
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts) or receive is not None}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, give, send)
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], answered, b"".join(one.get("body", b"") for one in sent[1:]))


@pytest.fixture
def logged() -> list[dict[str, Any]]:
    """What the proxy has logged."""
    return []


@pytest.fixture
def make_api(monkeypatch: pytest.MonkeyPatch, logged: list[dict[str, Any]]) -> Iterator[Callable[..., Api]]:
    """`make_api("a.yaml text", token=…)`: the API of a proxy with that rule file in force."""
    stack = ExitStack()
    monkeypatch.setitem(KINDS, "tiny", Tiny)
    monkeypatch.setitem(KINDS, "tiny_code", TinyCode)
    for cached in (kinds_shown, description, written_description):
        stack.callback(cached.cache_clear)  # it has seen them, and they go

    def capture(logger: Any, level: str, fields: Any) -> Any:
        logged.append({"level": level, **fields})
        raise structlog.DropEvent

    def make(text: str = "rules: []", token: str | None = None, read: str | None = None) -> Api:
        config = Config.model_validate(CONFIG)
        wrapper = structlog.make_filtering_bound_logger(0)
        log = structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper)
        store = RuleStore(7, config.places())
        store.replace_files([Source("a.yaml", text)], monotonic())
        proxy = ProxyProcess(config, store.rule_set, log, store=store)
        proxy.keeper.started()
        api = Api(proxy, token, read)
        stack.callback(api.close)
        return api

    with stack:
        yield make


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    """With one rule in a file, `base`."""
    return make_api("rules:\n  - {name: base, kind: tiny}\n")


@pytest.fixture
def make_held(make_api: Callable[..., Api]) -> Callable[..., Held]:
    """`make_held("at: both")`: such a rule in force; `other`: a second rule, as YAML."""
    return lambda more="at: both", other="": Held(
        make_api(f"rules:\n  - {{name: hold, kind: intercept, {more}}}\n  {other}\n")
    )
