"""A proxy in a thread of this process, whose config changes while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import trio
import yaml

from kproxy.app.app import ProxyProcess, prepared
from kproxy.app.config.changes import FLAGS, Origin
from kproxy.app.config.document import config_from
from kproxy.app.config.keeper import CheckedConfig, ConfigKeeper
from kproxy.base.errors import DocumentError
from kproxy.base.logs import make_log
from kproxy.protocol import Message
from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.values.source import Source, raise_mistakes
from kproxy.session.cluster import VERSION
from kproxy.testing.embedded import LastLines, _alone
from tests.support.fake_broker import FakeBroker

T = TypeVar("T")
PATIENCE = 60.0


def document(text: str) -> Source:
    """A config as it comes over the API."""
    return Source("<api>", text)


class LiveProxy:
    """A proxy with the config of this document, while it is entered."""

    def __init__(self, config: Mapping[str, Any] | str, origin: Origin = FLAGS) -> None:
        self.text = config if isinstance(config, str) else yaml.safe_dump(dict(config), sort_keys=False)
        self.origin, self.said = origin, LastLines()
        self.ready: Future[None] = Future()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.proxy: ProxyProcess
        self.keeper: ConfigKeeper
        self.token: trio.lowlevel.TrioToken
        self.stop: trio.Event

    def __enter__(self) -> Self:
        _alone.acquire()
        self.thread.start()
        try:
            self.ready.result(PATIENCE)
        except BaseException:
            self.thread.join(PATIENCE)
            _alone.release()
            raise
        return self

    def __exit__(self, *given: object) -> None:
        self.token.run_sync_soon(self.stop.set)
        self.thread.join(PATIENCE)
        _alone.release()

    def call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done in the proxy's thread."""
        return trio.from_thread.run_sync(work, trio_token=self.token)

    def apply(self, config: Mapping[str, Any] | str, **more: Any) -> CheckedConfig:
        """Put another config in force. Raises what the keeper raises."""
        text = config if isinstance(config, str) else yaml.safe_dump(dict(config), sort_keys=False)
        return trio.from_thread.run(lambda: self.keeper.apply(document(text), **more), trio_token=self.token)

    def mistakes(self, config: Mapping[str, Any] | str) -> list[str]:
        """Return the mistakes for which a config is refused."""
        try:
            self.apply(config)
        except DocumentError as error:
            return error.mistakes
        raise AssertionError("it was not refused")

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  # raised in the test's thread
            if not self.ready.done():
                self.ready.set_exception(error)

    async def _main(self) -> None:
        source = document(self.text)
        config = config_from(source, Path() if self.origin.path is None else self.origin.path.parent)
        raise_mistakes([source])
        assert config is not None
        proxy = self.proxy = prepared(config, make_log("human", "info", self.said))
        self.keeper = proxy.configs = ConfigKeeper(config, self.origin, proxy, proxy.keeper, proxy.files, proxy.log)
        self.stop, self.token = trio.Event(), trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.reactor.run)
                await nursery.start(proxy.server.serve)
                proxy.listening = True
                proxy.keeper.started()
                proxy.watch_clusters()
                proxy.parts.start()
                if proxy.audit is not None:
                    proxy.audit.start(nursery)
                await proxy.start_measuring(nursery)
                self.ready.set_result(None)
                await self.stop.wait()
                if proxy.audit is not None:
                    await proxy.audit.close()
                nursery.cancel_scope.cancel()
        finally:
            proxy.reactor.close()


class NamedBroker(FakeBroker):
    """A fake broker whose cluster has this id; an empty one says none. It is node `node`, and the only one."""

    def __init__(self, cluster_id: str, node: int = 1, **more: Any) -> None:
        self.cluster_id = cluster_id
        super().__init__(answers={METADATA: answer_with_id}, **more)
        self.nodes = {node: (self.host, self.port)}


def answer_with_id(broker: FakeBroker, stream: Any, request: Message) -> None:
    """Answer Metadata with the broker's nodes and its cluster's id."""
    assert isinstance(broker, NamedBroker)
    nodes = broker.nodes.items()
    brokers = [{"node_id": node, "host": host, "port": port, "rack": None} for node, (host, port) in nodes]
    body: dict[str, Any] = {"throttle_time_ms": 0, "brokers": brokers, "cluster_id": broker.cluster_id or None,
                            "controller_id": -1, "topics": []}  # fmt: skip
    if request.version == VERSION:
        body["cluster_authorized_operations"] = -2147483648
    broker.respond(stream, request, body)
