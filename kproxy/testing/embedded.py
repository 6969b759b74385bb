"""kproxy in a thread of this process, with its own trio loop, so that it runs independently of the test.

Strategy. Only its thread accesses the proxy. Other threads pass their work to `call`, which goes through trio's queue,
wakes the loop and returns the result. So a call also sees the results of all earlier work: when a client has a
response, the counters include the rule that gave it. The work never waits for the caller, so a caller that blocks its
own event loop does not cause a deadlock.

`front` serves tests in other languages (`kproxy mock --admin`). It has the config of `kproxy run`, but leaves signals
and standard input to the command, and ends without a drain. The live view records from its start.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

import trio

from kproxy.app.app import ProxyProcess
from kproxy.app.config.document import Config
from kproxy.app.main import leaves, read_rules
from kproxy.base.errors import InternalError
from kproxy.base.logs import make_log
from kproxy.rules.document.read import Document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import Barred, Gate, MatchingRules
from kproxy.runtime.protocols import show
from kproxy.runtime.rule_keeper import CounterName

from .exchanges import Topics
from .mock_rules import NAMES, mock_rules
from .recorder import LARGEST, OWN, Tape

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that the proxy's thread may take for a call; it takes microseconds unless a hook blocks it."""
MOST_CONNECTIONS = 1000
"""Limit of connections, more than clients of a test open; the process's limit of open files (the test's own) is raised
to match."""
LOG_LINES = 200
"""Number of lines of the proxy's log that are kept."""

_alone = threading.Lock()  # connections of a process share one read buffer (runtime/io/side.py): one thread serves them


class LastLines(io.StringIO):
    """A stream for the proxy's log that keeps its last lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LOG_LINES)

    def write(self, text: str) -> int:
        self.lines.extend(line for line in text.splitlines() if line)
        return len(text)


class NoBroker(InternalError):
    """Error if no broker of the upstream answers before a proxy starts in front of it."""


class OpenGate(Gate):
    """Gate that admits all clients at the listener `OWN`."""

    def ask(self, facts: Facts) -> Barred | None:
        return None if facts.listener == OWN else super().ask(facts)

    def check_quietly(self, facts: Facts) -> Barred | None:
        return None if facts.listener == OWN else super().check_quietly(facts)


class Recorded(ProxyProcess):
    """A proxy with a listener `OWN`, where only rules about names act."""

    def bind(self, facts: Facts) -> MatchingRules:
        bound = super().bind(facts)
        if facts.listener != OWN:
            return bound
        live = tuple(part for part in bound.live if part.name in NAMES)
        return replace(bound, advertise=None, versions=None, live=live, key=f"{OWN} {bound.key}")

    def gate(self) -> Gate:
        return OpenGate(self.rules.live)


class Embedded:
    """A proxy in front of `upstream` (`host:port,…`), to be started once and stopped once.

    `store` has its rules, `tape` the exchanges, `topics` the names of topic ids from Metadata responses. `lasting`:
    documents in force for all tests, set by `keep`; `prefix`: of all names on the brokers, by a rule among them.
    `mock`: the upstream is librdkafka's mock cluster; `mock_rules` are then in force before all others.
    """

    def __init__(self, upstream: str, seed: int = 0, *, mock: bool = False) -> None:
        self.upstream, self.mock = upstream, mock
        self.said = LastLines()
        self.store, self.topics = RuleStore(seed), Topics()
        self.tape = Tape()
        self.lasting: list[Document] = []
        self.prefix = ""
        self._built_in: list[Document] = []
        self._free_hooks: Callable[[], None] = nothing
        self.thread = threading.Thread(target=self._run, name="kproxy", daemon=True)
        self._started: Future[None] = Future()
        self._holds = False
        self.proxy: Recorded
        self.token: trio.lowlevel.TrioToken
        self.nursery: trio.Nursery

    # ---- from the test's thread

    def start(self) -> None:
        """Start the proxy and return once clients can connect. Raises KproxyError when that cannot be."""
        if not _alone.acquire(blocking=False):
            raise InternalError("a kproxy runs in this process already, and there can be one at a time")
        self._holds = True
        try:
            self.thread.start()
            self._started.result(PATIENCE)
            if self.mock:
                document, self._free_hooks = mock_rules()
                self._built_in = [document]
                self.load([])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close all connections and ports, and return when the thread has ended."""
        if self._started.done() and self._started.exception() is None and self.thread.is_alive():
            self.token.run_sync_soon(self.nursery.cancel_scope.cancel)
        self.thread.join(PATIENCE)
        if self._holds and not self.thread.is_alive():
            self._holds = False
            _alone.release()
            self._free_hooks()
            self._free_hooks = nothing

    @property
    def bootstrap_servers(self) -> str:
        """Return `host:port` of the listener, for clients."""
        return self._address(0)

    @property
    def own_bootstrap_servers(self) -> str:
        """Return `host:port` of the listener without faults and without a tape."""
        return self._address(1)

    def _address(self, number: int) -> str:
        listener = self.proxy.server.listeners[number]
        return f"{listener.config.bind.host}:{listener.port}"

    @property
    def inside(self) -> bool:
        """Return True in the proxy's own thread, as in a Python function of a rule."""
        return threading.current_thread() is self.thread

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of `work()`, done in the proxy's thread. Raises the exceptions of `work`."""
        __tracebackhide__ = True
        if self.inside:
            return work()
        done: Future[T] = Future()
        self._hand_over(lambda: settle(done, work), done)
        return self._result(done, PATIENCE)

    def load(self, documents: Iterable[Document]) -> None:
        """Replace the loaded documents by these. Raises DocumentError."""
        whole = [*self._built_in, *documents]
        self.call(lambda: self.proxy.keeper.load("file", lambda store, now: store.replace_files(whole, now)))

    def keep(self, documents: Iterable[Document], prefix: str = "") -> None:
        """Put documents into force as long as the proxy lives, whatever tests load besides. `prefix`: the one that a
        rule among them gives to all names. Raises DocumentError."""
        self.lasting, self.prefix = list(documents), prefix
        self.load(self.lasting)

    def reached(self, name: str, hits: int, count: CounterName, timeout: float) -> Future[bool]:
        """Return a future that becomes True as soon as the counter of this rule is `hits` or more, and False after
        `timeout` seconds. Raises InternalError in the proxy's thread."""
        if self.inside:
            raise InternalError("a hook must not wait for the proxy, since it runs in the proxy's thread")
        done: Future[bool] = Future()

        async def wait() -> None:
            try:
                with trio.move_on_after(timeout) as limit:
                    await self.proxy.keeper.waiters.wait(name, hits, count)
            except Exception as error:  # noqa: BLE001  # raised in the thread that waits
                done.set_exception(error)
            else:
                done.set_result(not limit.cancelled_caught)

        self._hand_over(lambda: self.nursery.start_soon(wait), done)
        return done

    def log(self) -> str:
        return "\n".join(self.said.lines)

    def _hand_over(self, work: Callable[[], object], done: Future[T]) -> None:
        try:
            self.token.run_sync_soon(work)
        except trio.RunFinishedError:
            done.set_exception(InternalError("the proxy of this test has been stopped"))

    def _result(self, done: Future[T], timeout: float) -> T:
        try:
            return done.result(timeout)
        except NotInTime:
            raise InternalError(
                f"the proxy's thread has not answered for {timeout:g} s: does a hook block it?"
            ) from None

    # ---- in the proxy's thread

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits for the start
            first = first_of(error)
            if not self._started.done():
                self._started.set_exception(first)
            else:
                self.said.write(f"the proxy has ended: {first!r}\n")

    async def _main(self) -> None:
        proxy = self.proxy = self._made()
        try:
            async with trio.open_nursery() as nursery:
                self.nursery, self.token = nursery, trio.lowlevel.current_trio_token()
                await nursery.start(proxy.reactor.run)
                await nursery.start(proxy.server.serve)
                await ask_brokers(proxy, f"no broker of the upstream {self.upstream} answers")
                proxy.listening = True
                proxy.keeper.started()
                self._started.set_result(None)
        finally:
            proxy.reactor.close()

    def document(self) -> dict[str, Any]:
        cluster = {"bootstrap": [each.strip() for each in self.upstream.split(",")]}
        listeners = [{"name": name, "bind": "127.0.0.1:0", "cluster": "test"} for name in ("test", OWN)]
        limits = {"max_connections": MOST_CONNECTIONS}
        return {"clusters": {"test": cluster}, "listeners": listeners, "limits": limits}

    def _made(self) -> Recorded:
        config = Config.model_validate(self.document())
        self.store.listeners = config.places()
        proxy = Recorded(config, self.store.rule_set, make_log("human", "warning", self.said), store=self.store)
        taps = proxy.server.taps
        self.tape.taps = taps.open_taps
        taps.fanout.add_alone(self.tape, LARGEST)
        return proxy


def nothing() -> None:
    """Do nothing."""


def settle(done: Future[T], work: Callable[[], T]) -> None:
    """Do the work, and put its result or its exception into the future."""
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001  # raised where it was asked for
        done.set_exception(error)


async def ask_brokers(proxy: ProxyProcess, problem: str) -> None:
    """Send one request to the brokers. Raises NoBroker, which begins with `problem`, if none of them responds: clients
    would wait for a long time without a reason."""
    (probe,) = proxy.watch.probes.values()
    try:
        with trio.fail_after(PATIENCE / 2):
            await probe.ask()
    except (OSError, trio.TooSlowError) as error:
        raise NoBroker(f"{problem}: {str(error) or 'no answer in time'}") from None


def first_of(error: BaseException) -> BaseException:
    """Return the first exception in a group, or the exception itself."""
    return next(leaves(error), error) if isinstance(error, BaseExceptionGroup) else error


class FrontProxy(ProxyProcess):
    """Proxy that leaves signals to the command, and reads its rule files at the start only."""

    async def start_listening(self, nursery: trio.Nursery) -> None:
        """Do nothing: signals come to the main thread, those to read rule files again among them."""

    @property
    def address(self) -> str:
        """Return `host:port` of the listener, for clients."""
        (listener,) = self.server.listeners
        return show((listener.config.bind.host, listener.port))


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
        reason: BaseException = InternalError("expected an error of the proxy, got none")
        try:
            trio.run(self._main)
            if self.stopping:
                return
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits for the start
            reason = first_of(error)
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
            await ask_brokers(proxy, "no broker answers")
            self.started.set_result(proxy)


def front_config(upstream: str, admin: str, rules: tuple[str, ...] = (), seed: int | None = None) -> Config:
    """Return the config of a proxy at a free port of loopback. `upstream`, `admin`: addresses that have been checked;
    `rules`: files and folders."""
    document: Mapping[str, Any] = {
        "clusters": {"main": {"bootstrap": upstream.split(",")}},
        "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
        "admin": {"bind": admin}, "rules": list(rules), "seed": seed, "view": {"record_from_start": True},
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
