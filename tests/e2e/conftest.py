"""Shared by the tests of whole proxies against brokers that misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kproxy.testing.plugin import Proxies
from kproxy.testing.process import free_port
from tests.support.fake_broker import FakeBroker

MakeFake = Callable[..., FakeBroker]


@pytest.fixture
def fake() -> Iterator[MakeFake]:
    """Makes fake brokers that live until the end of the test; settings as of FakeBroker."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(FakeBroker(**settings))


@pytest.fixture
def proxy_with(kproxy_process: Proxies) -> Callable[..., Any]:
    """Starts a proxy before the given bootstrap servers with one listener; `limits`, `listener` and so on go into
    the config document as they are, `wait=False` does not wait for the brokers to answer."""

    def start(*bootstrap: str, wait: bool = True, **parts: Any) -> Any:
        cluster = {"bootstrap": list(bootstrap), **parts.pop("cluster", {})}
        listener = {"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main", **parts.pop("listener", {})}
        config = {"clusters": {"main": cluster}, "listeners": [listener], **parts}
        return kproxy_process(config=json.loads(json.dumps(config)), brokers_answer=wait)

    return start


def closed(proxy: Any, cause: str) -> float:
    """How many connections have ended for that cause."""
    return float(proxy.metric("kproxy_connections_closed_total", cause=cause))
