"""Methods of each process that carries traffic, for the admin API: of this process, or of a worker by remote calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Literal

from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.watch import ViewTotals, ViewWatch
from kproxy.runtime.connection import Connection
from kproxy.runtime.connection_view import ConnectionEnd, describe
from kproxy.runtime.io.channel import remote
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.protocols import ConnectionPhase, show
from kproxy.runtime.rule_keeper import RuleKeeper
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.rewrite.addresses import controller_id

from .editor import KeptNamesShown, MatchesShown, names_in, rehearse
from .held import HeldBody, HeldRows, HeldShown, ResumeBody
from .held_frames import HeldFrames
from .held_news import HeldNews, HeldNewsShown
from .kept import FoundExchanges, KeptExchanges
from .models import (
    ClusterShown,
    ConnectionShown,
    EndShown,
    EndsShown,
    ListenerShown,
    NodeShown,
    Role,
    SentAgainShown,
    TopologyShown,
    calendar_time,
)
from .problem import Problem
from .tail import TailLines
from .view import ViewSource

if TYPE_CHECKING:
    from .exchange_sender import ExchangeSender

RecycleChoice = Literal["outdated", "all"]


PATIENCE = 5.0
"""Timeout of a worker's answer in seconds: an operator waits that long."""
LONG = 28.0
"""Timeout in seconds of a worker that waits for a broker: longer than `exchange_sender.PATIENCE`, shorter than commands
wait."""


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """View config, and `make_watch`, called once by the first viewer."""

    config: ViewConfig
    make_watch: Callable[[], ViewWatch]


class Member:
    """Process that carries traffic. Remote methods raise Problem if the process refuses or does not respond, and
    MemberGone if it ends. `view`: None disables the live view."""

    def __init__(self, server: Server, keeper: RuleKeeper, index: int = 0, view: ViewTerms | None = None) -> None:
        self.server, self.keeper, self.index, self.view_terms = server, keeper, index, view
        self._kept: KeptExchanges | None = None
        self._sender: ExchangeSender | None = None
        self.records = view is None or view.config.records
        self.masks = ViewerMasks(lambda: keeper.store.rule_set, server.schemas)
        self.held_frames = HeldFrames(
            server.desk, server.reactor, server.limits.max_frame_bytes, self.records, self.masks
        )
        self.news = HeldNews(self.held_frames)
        if view is not None and view.config.enabled and view.config.record_from_start:
            self._kept = self.kept_exchanges

    def use_view(self, view: ViewConfig) -> None:
        if self.view_terms is None or self.view_terms.config == view:
            return
        self.view_terms = replace(self.view_terms, config=view)
        self.records = self.held_frames.records = view.records
        if self._kept is not None:
            self._kept.records = view.records
            self._kept.watch.keep(view.buffer_size)
        elif view.enabled and view.record_from_start:
            self._kept = self.kept_exchanges

    @property
    def process(self) -> Server | None:
        """Identity of the current process; None while a worker accepts no connections."""
        return self.server

    @remote(PATIENCE)
    async def connections(self) -> Iterator[ConnectionShown]:
        """Return the open connections, oldest first."""
        everyone = sorted(self.open_connections(), key=number_of)
        return (self.show_connection(each) for each in everyone if each.phase is ConnectionPhase.OPEN)

    @remote(PATIENCE)
    async def ends(self) -> EndsShown:
        """Return the last connections that ended, the newest first."""
        return EndsShown(ended=[show_end(one) for one in reversed(self.server.last_ends)])

    @remote(PATIENCE)
    async def close_connection(self, number: str, reset: bool) -> ConnectionShown:
        connection = self.find(number)
        shown = self.show_connection(connection)
        if reset:
            connection.end("admin", "closed over the admin API", reset=True)
        else:
            connection.close("admin", "closed over the admin API")
        return shown

    @remote(PATIENCE)
    async def recycle_connection(self, number: str) -> ConnectionShown:
        connection = self.find(number)
        shown = self.show_connection(connection)
        recycle(connection)
        return shown

    @remote(PATIENCE)
    async def recycle_connections(self, which: RecycleChoice) -> int:
        """Recycle the connections of this choice, counted before any is closed."""
        chosen: list[Connection] = []

        def look() -> Iterator[None]:
            for connection in self.open_connections():
                if which == "all" or self.is_outdated(connection):
                    chosen.append(connection)
                yield

        await in_turns(look())
        chosen = [each for each in chosen if each.leaving is None and each.phase is ConnectionPhase.OPEN]
        await in_turns(map(recycle, chosen))
        return len(chosen)

    @remote(PATIENCE)
    async def topology(self) -> TopologyShown:
        """Return the known clusters without addresses of nodes, and the listeners."""
        server = self.server
        return TopologyShown(
            clusters={name: await show_cluster(upstream) for name, upstream in server.upstreams.items()},
            listeners={
                listener.name: ListenerShown(
                    address=show((listener.config.bind.host, listener.port)),
                    cluster=listener.config.cluster,
                    tls=listener.tls is not None,
                    connections=listener.connections,
                )
                for listener in server.listeners
            },
        )

    @remote()
    def tail(self, text: str, body: bool, unmasked: bool) -> TailLines:
        """Return the lines of exchanges that match a filter, for one listener; with their messages if `body`."""
        return TailLines(self.server, Filter(text), body, None if unmasked else self.masks)

    @remote(PATIENCE)
    async def rehearse(self, text: str) -> MatchesShown:
        """Return the matches of rules, a valid JSON document, among kept exchanges."""
        return await rehearse(text, self.kept(), self.records, self.masks)

    @remote(PATIENCE)
    async def names(self) -> KeptNamesShown:
        """Return the names in kept exchanges."""
        return await names_in(self.kept())

    def kept(self) -> Sequence[ObservedExchange]:
        """Return the exchanges kept for the view, newest first."""
        return [] if self._kept is None else [one.seen for one in self._kept.watch.ring.newest()]

    # ---- for those who look

    @property
    def kept_exchanges(self) -> KeptExchanges:
        """Exchanges kept for the view; created by the first viewer."""
        if self._kept is None:
            if self.view_terms is None:
                raise Problem(403, "view_off", "there is no view here")
            self._kept = KeptExchanges(
                self.view_terms.make_watch(), self.view_terms.config.records, self.server.reactor, self.masks
            )
            self._kept.find_cache = self.server.schemas
        return self._kept

    @remote()
    def view(self, text: str, rows: int, after: int | None) -> ViewSource:
        """Return at most `rows` rows a second for a viewer with this filter. `after`: position up to which the viewer
        has all rows; None: it has no rows."""
        return ViewSource(self.kept_exchanges.watch, self.server.reactor.notify, Filter(text), rows, after)

    @remote(PATIENCE)
    async def view_totals(self) -> ViewTotals:
        return self.kept_exchanges.watch.totals()

    @remote(PATIENCE)
    async def exchanges(self, text: str, before: int | None, limit: int, after: int | None) -> FoundExchanges:
        """Return the kept exchanges that match a filter, the newest first, with numbers below `before` and positions
        after `after`."""
        return await self.kept_exchanges.exchanges(text, before, limit, after)

    @remote(PATIENCE)
    async def exchange(self, number: int, first: int, unmasked: bool) -> str:
        """Return the details of one exchange as JSON, with the steps of its frames from number `first` on."""
        return await self.kept_exchanges.exchange(number, first, unmasked)

    @remote(PATIENCE)
    async def exchange_frame(self, number: int, of: str, side: str, unmasked: bool) -> str:
        """Return one frame of an exchange in base64."""
        return await self.kept_exchanges.exchange_frame(
            number, "response" if of == "response" else "request", "broker" if side == "broker" else "client", unmasked
        )

    @remote(PATIENCE)
    async def saved_exchange(self, number: int, unmasked: bool) -> str:
        """Return an exchange as a capture of its own, in base64."""
        return await self.kept_exchanges.saved_exchange(number, unmasked)

    @remote(LONG)
    async def send_again(self, number: int, confirm: str) -> SentAgainShown:
        """Send the request of an exchange again. `confirm`: its API, needed if the request changes something."""
        if self._sender is None:
            from .exchange_sender import ExchangeSender

            self._sender = ExchangeSender(self.server, self.kept_exchanges)
        return await self._sender.send(number, confirm)

    # ---- held frames

    @remote(PATIENCE)
    async def held(self) -> HeldRows:
        """Return the frames that rules hold, oldest first."""
        return await self.held_frames.show_all()

    @remote(PATIENCE)
    async def held_frame(self, number: str, first: int) -> str:
        """Return a held frame with its bytes, and its steps from number `first` on, as JSON."""
        return await self.held_frames.show_frame(number, first)

    @remote(PATIENCE)
    async def held_preview(self, number: str, body: ResumeBody) -> str:
        """Return a held frame as it would leave with an edit, as JSON."""
        return await self.held_frames.preview(number, body)

    @remote(PATIENCE)
    async def held_action(self, number: str, body: HeldBody) -> HeldShown:
        """Apply an action to a held frame, and return the frame after it."""
        return await self.held_frames.call(number, body)

    @remote(PATIENCE)
    async def resume_held(self, rule: str | None, who: str) -> int:
        """Resume the frames that this rule holds; None: of all rules. Return their number."""
        return await self.held_frames.resume_all(rule, who)

    @remote(PATIENCE)
    async def held_news(self, number: int | None) -> HeldNewsShown:
        """Return changes of held frames after this number; None: all held frames."""
        return await self.news.since(number)

    # ---- connections

    def open_connections(self) -> list[Connection]:
        """Return connections in use, without those that only wait for the client's FIN."""
        return [each for each in self.server.connections if each.phase is ConnectionPhase.OPEN]

    def find(self, number: str) -> Connection:
        for connection in self.open_connections():
            if str(number_of(connection)) == number:
                return connection
        raise no_such_connection(number)

    def is_outdated(self, connection: Connection) -> bool:
        """True if a new connection would be bound to other rules or another config."""
        return (
            self.server.is_outdated(connection)
            or connection.session.rules.key != self.keeper.store.rule_set.bind(connection.facts).key
        )

    def show_connection(self, connection: Connection) -> ConnectionShown:
        facts, bound = connection.facts, connection.session.rules
        return ConnectionShown(
            id=number_of(connection),
            cluster=facts.cluster,
            sni=facts.sni,
            certificate=facts.certificate,
            client_id=connection.session.identity.client_id,
            principal=connection.session.identity.principal,
            software=connection.session.identity.software,
            since=calendar_time(connection.since),
            in_flight=connection.session.awaited,
            rules=list(bound.rules),
            version=bound.key,
            outdated=self.is_outdated(connection),
            leaving=connection.leaving is not None,
            **describe(connection),
        )


def show_end(end: ConnectionEnd) -> EndShown:
    return EndShown(
        id=end.number, listener=end.listener, client=show(end.client), client_id=end.client_id, node=end.node,
        broker=None if end.broker is None else show(end.broker), since=calendar_time(end.since),
        ended=calendar_time(end.ended), client_bytes=end.read[0], broker_bytes=end.read[1], cause=end.cause,
        reason=end.message, blame=end.blame,
    )  # fmt: skip


def number_of(connection: Connection) -> int:
    """Return the connection's number, its id in the API and in rules."""
    serial: int = connection.session.number
    return serial


def no_such_connection(number: str) -> Problem:
    return Problem(404, "no_such_connection", f'there is no connection "{number}"')


def recycle(connection: Connection) -> None:
    """Drain, then close: the client reconnects under the rules in force."""
    if connection.phase is ConnectionPhase.OPEN:
        connection.drain(monotonic(), "recycled", "recycled over the admin API")


async def show_cluster(upstream: Upstream) -> ClusterShown:
    """Controllers have ids below -1 in the topology, see `session.rewrite.addresses`."""
    nodes: list[NodeShown] = []

    def add() -> Iterator[None]:
        for node, (host, port) in sorted(upstream.topology.nodes.items()):
            role: Role = "broker" if node >= 0 else "controller"
            own_id = node if node >= 0 else controller_id(node)
            nodes.append(NodeShown(id=own_id, host=host, port=port, role=role, addresses={}))
            yield

    await in_turns(add())
    return ClusterShown(bootstrap=[str(server) for server in upstream.config.bootstrap], nodes=nodes)
