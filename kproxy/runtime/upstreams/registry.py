"""Client of schema registries: fills the caches of schemas that conditions and viewers read.

One connection is kept for each registry, with one request at a time. A lookup that several readers want runs once.
After FAILURES failures in a row, the registry counts as down, and one request every RETRY seconds probes it. Redirects
are not followed: the header with the password would go elsewhere.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic

import h11
import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.base.errors import InternalError, UnusableSetting
from kproxy.record.otlp.config import parse_url
from kproxy.rules.content.lookups import ACCEPT, MOST_BODY, LookupResult, Response, look_up
from kproxy.rules.content.schemas import SchemaCache, SchemaKey
from kproxy.rules.values.tls import UpstreamTls
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.config.registries import RegistryConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.socket_io import attempt, send
from kproxy.runtime.io.tls import BrokerTls
from kproxy.runtime.protocols import HostPort

from .dialler import Race
from .resolve import Resolver

FAILURES = 3
RETRY = 5.0
"""Seconds between two requests to a registry that is down."""
MOST_PENDING = 1000
"""Lookups of one registry that wait. Readers ask again later for others."""
PARSING = trio.CapacityLimiter(1)
"""Responses are parsed in a thread, one at a time: a schema of 10,000 types takes some 50 ms."""
READ = 1 << 16
EVENTS = 100
"""Parts of responses that are read between two checkpoints. A chunk of a response can have one byte."""
MOST_HEADERS = 1 << 14


class RegistryClient:
    """Client of one registry, which fills `cache`. Raises UnusableSetting for TLS files that cannot be used."""

    def __init__(self, name: str, config: RegistryConfig, reactor: Reactor, counts: Counter[tuple[str, str]]) -> None:
        self.name, self.config, self.reactor, self.counts = name, config, reactor, counts
        self.log = LogThrottle(reactor.log.bind(registry=name))
        self.cache = SchemaCache(monotonic, config.cache, config.id_bytes, self.want)
        address = parse_url(config.url, "", "")
        self.server: HostPort = address.host, address.port
        self.prefix = address.prefix
        self.resolver, self.tls = Resolver(), None
        if address.tls:
            tls, log = config.tls or UpstreamTls(), reactor.log.bind(registry=name)
            try:
                self.tls = BrokerTls(tls, config.timeout, reactor.step, log)
            except InternalError as error:
                raise UnusableSetting(("registries", name, "tls"), f"registry {name}: {error}") from error
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.headers = [("host", f"{host}:{address.port}"), ("accept", ACCEPT), ("user-agent", "kproxy")]
        if config.username is not None and config.password is not None:
            user = f"{config.username}:{config.password.get_secret_value()}"
            self.headers.append(("authorization", f"Basic {b64encode(user.encode()).decode()}"))
        self.pending: dict[SchemaKey, list[Callable[[], object]]] = {}
        """Lookups that run, with the callbacks at their end."""
        self.sending = trio.Lock()
        self.connection: HttpConnection | None = None
        self.failures, self.retry_at = 0, 0.0

    def want(self, key: SchemaKey, done: Callable[[], object] | None = None) -> bool:
        """Start the lookup of a key. `done` is called at its end. Returns False if no lookup is possible now."""
        waiting = self.pending.get(key)
        if waiting is None:
            now = monotonic()
            if len(self.pending) >= MOST_PENDING or (self.cache.is_down and now < self.retry_at):
                return False
            self.retry_at = now + RETRY
            waiting = self.pending[key] = []
            self.reactor.spawn(self.fetch, key)
        if done is not None:
            waiting.append(done)
        return True

    async def fetch(self, key: SchemaKey) -> None:
        """Look up a key, put the result into the cache, and call the waiting callbacks."""
        result = LookupResult("unreachable", problem="lookup was cancelled")
        try:
            result = await self.result(key)
            if result.is_answer:
                self.cache.put(key, result.found)
        finally:
            self.note(key, result)
            for done in self.pending.pop(key):
                done()

    def note(self, key: SchemaKey, result: LookupResult) -> None:
        """Count a result, and open or close the circuit."""
        self.counts[self.name, result.outcome] += 1
        if result.is_answer:
            if self.cache.is_down:
                self.reactor.log.info("schema registry responds again", registry=self.name)
            self.failures, self.cache.is_down = 0, False
            if result.outcome == "invalid":
                self.log.warning("schema cannot be used", key=key, lookup=key.lookup, schema=key.text,
                                 reason=result.problem)  # fmt: skip
            return
        self.failures += 1
        self.log.warning("schema registry does not respond", key=result.problem, reason=result.problem)
        if self.failures >= FAILURES:
            self.cache.is_down = True

    async def result(self, key: SchemaKey) -> LookupResult:
        requests = look_up(key)

        def step(response: Response) -> str | LookupResult:
            try:
                return requests.send(response)
            except StopIteration as end:
                found: LookupResult = end.value
                return found

        try:
            path: str | LookupResult = next(requests)
            while isinstance(path, str):
                path = await trio.to_thread.run_sync(step, await self.request(path), limiter=PARSING)
            return path
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return LookupResult("unreachable", problem=text)

    async def request(self, path: str) -> Response:
        """Send a request and return its response. Raises OSError and h11.ProtocolError."""
        async with self.sending:
            with trio.move_on_after(self.config.timeout):
                try:
                    try:
                        return await self.exchange(path)
                    except (ConnectionError, h11.RemoteProtocolError):
                        if self.connection is None or not self.connection.is_used:
                            raise
                        self.close()  # the registry had closed the kept connection
                        return await self.exchange(path)
                except BaseException:
                    self.close()
                    raise
            self.close()
            raise TimeoutError(f"no response within {self.config.timeout:g} s")

    async def exchange(self, path: str) -> Response:
        if self.connection is None:
            self.connection = HttpConnection(await self.connect())
        response = await self.connection.get(self.prefix + path, self.headers)
        if not self.connection.is_reusable:
            self.close()
        return response

    async def connect(self) -> socket.SocketType:
        """Return a connection. Raises OSError."""
        settled = trio.Event()
        outcome: list[socket.SocketType | str] = []

        def won(sock: socket.SocketType, server: HostPort) -> None:
            outcome.append(sock)
            self.reactor.notify(settled)

        def lost(tried: Mapping[str, str]) -> None:
            outcome.append("; ".join(f"{server}: {reason}" for server, reason in tried.items()))
            self.reactor.notify(settled)

        race = Race(self.reactor, self.resolver, self.tls, self.config.timeout, [self.server], won, lost)
        try:
            async with self.reactor.step:
                race.start()
            await settled.wait()
        except BaseException:
            race.cancel()
            for sock in outcome:
                if not isinstance(sock, str):
                    sock.close()
            raise
        if isinstance(outcome[0], str):
            raise OSError(outcome[0])
        return outcome[0]

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class HttpConnection:
    """Connection for one request at a time. `is_used`: it has had a response before."""

    def __init__(self, sock: socket.SocketType) -> None:
        self.sock, self.is_used = sock, False
        self.state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)
        self.is_reusable = True

    async def get(self, path: str, headers: Iterable[tuple[str, str]]) -> Response:
        """Send a GET and return its response. Raises OSError and h11.ProtocolError."""
        state = self.state
        data = state.send(h11.Request(method="GET", target=path, headers=list(headers))) or b""
        await send(self.sock, data + (state.send(h11.EndOfMessage()) or b""))
        status, body, events = 0, bytearray(), 0
        while True:
            event = state.next_event()
            events += 1
            if not events % EVENTS:
                await trio.lowlevel.checkpoint()  # a read that does not block has none, so no timeout would end this
            if event is h11.NEED_DATA:
                more: bytes = await attempt(self.sock, lambda: self.sock.recv(READ))
                if not more and not status:
                    raise ConnectionResetError("expected a response, got a closed connection")
                state.receive_data(more)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_BODY:
                    self.is_reusable = False
                    return Response(status, None)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
        self.is_used = True
        self.is_reusable = state.our_state is h11.DONE and state.their_state is h11.DONE
        if self.is_reusable:
            state.start_next_cycle()
        return Response(status, bytes(body))

    def close(self) -> None:
        with suppress(OSError):
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()


class Registries(Collector):
    """Registries of a process, with their metrics. `use` follows another config."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.clients: dict[str, RegistryClient] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def prepare(self, configs: Mapping[str, RegistryConfig]) -> Callable[[], None]:
        """Return the function that puts these registries in force. Clients with the same config keep their caches.
        Raises UnusableSetting."""
        before = self.clients
        after = {
            name: before[name]
            if name in before and before[name].config == config
            else RegistryClient(name, config, self.reactor, self.counts)
            for name, config in configs.items()
        }

        def commit() -> None:
            for name, client in self.clients.items():
                if after.get(name) is not client:
                    client.close()
            self.clients = after

        return commit

    def cache(self, cluster: str | None) -> SchemaCache | None:
        """Return the cache of a cluster's registry; None if it has none."""
        client = self.client(cluster)
        return None if client is None else client.cache

    def client(self, cluster: str | None) -> RegistryClient | None:
        for client in self.clients.values():
            if not client.config.clusters or cluster in client.config.clusters:
                return client
        return None

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "kproxy_registry_requests", "Lookups in a schema registry, by outcome.", labels=["registry", "outcome"]
        )
        for labels, number in sorted(self.counts.items()):
            requests.add_metric(labels, number)
        yield requests
        cached = GaugeMetricFamily(
            "kproxy_registry_cached_schemas", "Schemas in memory, by registry.", labels=["registry"]
        )
        up = GaugeMetricFamily(
            "kproxy_registry_up", "1 if the schema registry responds, 0 after three failures.", labels=["registry"]
        )
        for name, client in self.clients.items():
            cached.add_metric([name], len(client.cache))
            up.add_metric([name], 0 if client.cache.is_down else 1)
        yield cached
        yield up
