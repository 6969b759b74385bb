"""kproxy in front of brokers during a test in another language: `kproxy mock --admin`.

It has the config of `kproxy run`, with three differences. It runs in a thread, since signals and standard input belong
to the command. It ends at once, without a drain. It keeps each exchange, so a test can query it later.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import trio

from kproxy.app.app import ProxyProcess
from kproxy.app.config.document import Config
from kproxy.app.main import leaves, read_rules
from kproxy.base.errors import InternalError
from kproxy.base.logs import make_log
from kproxy.runtime.protocols import show

from .embedded import PATIENCE, NoBroker
from .mock_rules import mock_rules


class FrontProxy(ProxyProcess):
    """Proxy that leaves signals to the command, and reads its rule files at the start only."""

    async def start_listening(self, nursery: trio.Nursery) -> None:
        """Do nothing: signals come to the main thread, those to read rule files again among them."""

    @property
    def address(self) -> str:
        """Return `host:port` of the listener, for clients."""
        (listener,) = self.server.listeners
        return show((listener.config.bind.host, listener.port))

    async def ask(self) -> None:
        """Ask the brokers once. Raises NoBroker when none of them answers: clients would only wait for long."""
        (probe,) = self.watch.probes.values()
        try:
            with trio.fail_after(PATIENCE / 2):
                await probe.ask()
        except (OSError, trio.TooSlowError) as error:
            reason = str(error) or "no answer in time"
            raise NoBroker(f"no broker answers: {reason}") from None


class FrontThread:
    """Thread with a proxy of this config, to be started once and stopped once. It calls `ended` when the proxy ends
    without `stop`; `failure` is the reason then. `mock`: the brokers are librdkafka's mock cluster."""

    def __init__(self, config: Config, ended: Callable[[], object] = lambda: None, *, mock: bool = False) -> None:
        self.config, self.ended, self.mock = config, ended, mock
        self.stopping = False
        self.failure = ""
        self.started: Future[FrontProxy] = Future()
        self.thread = threading.Thread(target=self._run, name="kproxy", daemon=True)
        self.token: trio.lowlevel.TrioToken
        self.scope: trio.CancelScope

    def start(self) -> FrontProxy:
        """Return the proxy once it serves. Raises KproxyError and OSError when that cannot be."""
        self.thread.start()
        return self.started.result()

    def stop(self) -> None:
        """Close all connections and ports, and return when the thread has ended."""
        self.stopping = True
        if self.started.done() and self.started.exception() is None and self.thread.is_alive():
            with suppress(trio.RunFinishedError):  # it has just exited
                self.token.run_sync_soon(self.scope.cancel)
        self.thread.join(PATIENCE)

    def _run(self) -> None:
        reason: BaseException = InternalError("for no reason that it told")
        try:
            trio.run(self._main)
            if self.stopping:
                return
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits for the start
            reason = next(leaves(error), error) if isinstance(error, BaseExceptionGroup) else error
        if not self.started.done():
            self.started.set_exception(reason)
        else:
            self.failure = f"the proxy has ended: {reason!r}"
            self.ended()

    async def _main(self) -> None:
        log = make_log("human", "error", sys.stderr)
        store, files = read_rules(self.config, log)
        if self.mock:
            document, _ = mock_rules()  # the hooks end with the process
            store.replace_files([document, *(one.document for one in store.documents)], monotonic())
        proxy = FrontProxy(self.config, store.rule_set, log, store=store, files=files)
        async with trio.open_nursery() as nursery:
            self.token, self.scope = trio.lowlevel.current_trio_token(), nursery.cancel_scope
            await nursery.start(proxy.run)
            await proxy.ask()
            self.started.set_result(proxy)


def front_config(upstream: str, admin: str, rules: tuple[str, ...] = (), seed: int | None = None) -> Config:
    """Return the config of a proxy at a free port of loopback. `upstream`, `admin`: addresses that have been checked;
    `rules`: files and folders."""
    document: Mapping[str, Any] = {
        "clusters": {"main": {"bootstrap": upstream.split(",")}},
        "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
        "admin": {"bind": admin}, "rules": list(rules), "seed": seed, "view": {"always": True},
    }  # fmt: skip
    return Config.model_validate(document)


@contextmanager
def front(config: Config, ended: Callable[[], object] = lambda: None, *, mock: bool = False) -> Iterator[FrontProxy]:
    """Run a proxy of this config; the arguments are those of FrontThread. Raises KproxyError and OSError if it cannot
    start, InternalError if it ended before the block."""
    thread = FrontThread(config, ended, mock=mock)
    try:
        yield thread.start()
    finally:
        thread.stop()
        if thread.thread.is_alive():
            raise InternalError(f"the proxy has not ended within {PATIENCE:g} s")
        if thread.failure:
            raise InternalError(thread.failure)
