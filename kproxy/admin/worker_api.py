"""Interface between the admin API and each process that carries traffic: this process or a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol

from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig
from kproxy.runtime.connection import Connection
from kproxy.runtime.connection_view import ConnectionEnd, describe
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.protocols import ConnectionPhase, show
from kproxy.runtime.rule_keeper import RuleKeeper
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.rewrite.addresses import controller_id

from .held import HeldBody, HeldRows, HeldShown, ResumeBody
from .held_frames import HeldFrames
from .held_news import HeldNews, HeldNewsShown
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

if TYPE_CHECKING:
    from kproxy.record.live_view.watch import ViewTotals, ViewWatch

    from .editor import KeptNamesShown, MatchesShown
    from .exchange_sender import ExchangeSender
    from .kept import FoundExchanges, KeptExchanges
    from .view import ProcessViewSource, ViewSource

RecycleChoice = Literal["outdated", "all"]


class TailSource(Protocol):
    """Lines of one member for one listener, between `begin` and `end`."""

    @property
    def dropped(self) -> int:
        """Return the number of exchanges that did not fit so far."""

    async def begin(self) -> None:
        """Add the sink: later exchanges are complete. Raises Problem."""

    async def next(self) -> bytes:
        """Return lines as soon as there are any; none after a while. Raises MemberGone."""

    def end(self) -> None: ...


class Member(Protocol):
    """Process that carries traffic. Methods raise Problem if it refuses or does not respond, and MemberGone if it
    ends."""

    @property
    def index(self) -> int: ...

    @property
    def process(self) -> object | None:
        """Identity of the member's current process; None while it accepts no connections."""

    async def connections(self) -> Iterator[ConnectionShown]:
        """Return the open connections, oldest first."""

    async def ends(self) -> EndsShown:
        """Return the last connections that ended, the newest first."""

    async def close_connection(self, number: str, reset: bool) -> ConnectionShown: ...
    async def recycle_connection(self, number: str) -> ConnectionShown: ...

    async def recycle_connections(self, which: RecycleChoice) -> int:
        """Recycle the connections of this choice, counted before any is closed."""

    async def topology(self) -> TopologyShown:
        """Return the known clusters without addresses of nodes, and the listeners."""

    def tail(self, number: int, text: str) -> TailSource:
        """Return the source of lines for a listener with this number and filter."""

    async def rehearse(self, text: str) -> MatchesShown:
        """Return the matches of rules, a valid JSON document, among kept exchanges."""

    async def names(self) -> KeptNamesShown:
        """Return the names that the exchanges kept here have."""

    async def held(self) -> HeldRows:
        """Return the frames that rules hold, oldest first."""

    async def held_frame(self, number: str, first: int) -> str:
        """Return one of them with its bytes, and its steps from number `first` on, as JSON."""

    async def held_preview(self, number: str, body: ResumeBody) -> str:
        """Return one of them as it would leave with an edit, as JSON."""

    async def held_action(self, action: str, number: str, body: HeldBody) -> HeldShown:
        """Do one of `held_models.BODIES` to a held frame, and return it as it is then."""

    async def resume_held(self, rule: str | None, who: str) -> int:
        """Let go what this rule holds, or any; return how many frames that were."""

    async def held_news(self, number: int | None) -> HeldNewsShown:
        """Return changes of held frames after this number; None: all held frames."""

    # ---- for those who look

    def view(self, number: int, text: str, rows: int, after: int | None) -> ViewSource:
        """Return the source of rows for a viewer with this number and filter; `after`: the place it has seen."""

    async def view_totals(self) -> ViewTotals:
        pass

    async def exchanges(self, text: str, before: int | None, limit: int, after: int | None) -> FoundExchanges:
        """Return the kept exchanges that a filter holds for, the newest first, with numbers below `before` and places
        behind `after`."""

    async def exchange(self, number: int, first: int) -> str:
        """Return the details of one exchange as JSON, with the steps of its frames from number `first` on."""

    async def exchange_frame(self, number: int, of: str, side: str) -> str:
        """Return one frame of an exchange in base64."""

    async def saved_exchange(self, number: int) -> str:
        """Return an exchange as a capture of its own, in base64."""

    async def send_again(self, number: int, confirm: str) -> SentAgainShown:
        """Send the request of an exchange again. `confirm`: its API, needed where it changes something."""


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """View config, and `make_watch`, called once by the first viewer."""

    config: ViewConfig
    make_watch: Callable[[], ViewWatch]


class ProcessMember:
    """Member in this process. `view`: None disables the live view."""

    def __init__(self, server: Server, keeper: RuleKeeper, index: int = 0, view: ViewTerms | None = None) -> None:
        self.server, self.keeper, self.index, self.view_terms = server, keeper, index, view
        self._kept: KeptExchanges | None = None
        self._sender: ExchangeSender | None = None
        self.records = view is None or view.config.records
        self.held_frames = HeldFrames(server.desk, server.reactor, server.limits.max_frame_bytes, self.records)
        self.news = HeldNews(self.held_frames)
        if view is not None and view.config.enabled and view.config.always:
            self._kept = self.kept_exchanges

    def use_view(self, view: ViewConfig) -> None:
        """Apply another view config."""
        if self.view_terms is None or self.view_terms.config == view:
            return
        self.view_terms = replace(self.view_terms, config=view)
        self.records = self.held_frames.records = view.records
        if self._kept is not None:
            self._kept.records = view.records
            self._kept.watch.keep(view.kept)
        elif view.enabled and view.always:
            self._kept = self.kept_exchanges

    @property
    def process(self) -> Server:
        return self.server

    async def connections(self) -> Iterator[ConnectionShown]:
        everyone = sorted(self.open_connections(), key=number_of)
        return (self.show_connection(each) for each in everyone if each.phase is ConnectionPhase.OPEN)

    async def ends(self) -> EndsShown:
        return EndsShown(ended=[show_end(one) for one in reversed(self.server.last_ends)])

    async def close_connection(self, number: str, reset: bool) -> ConnectionShown:
        connection = self.find(number)
        shown = self.show_connection(connection)
        if reset:
            connection.end("admin", "closed over the admin API", reset=True)
        else:
            connection.close("admin", "closed over the admin API")
        return shown

    async def recycle_connection(self, number: str) -> ConnectionShown:
        connection = self.find(number)
        shown = self.show_connection(connection)
        recycle(connection)
        return shown

    async def recycle_connections(self, which: RecycleChoice) -> int:
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

    async def topology(self) -> TopologyShown:
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

    def tail(self, number: int, text: str) -> TailLines:
        return TailLines(self.server.taps.fanout, self.server.reactor.notify, Filter(text))

    async def rehearse(self, text: str) -> MatchesShown:
        from .editor import rehearse

        return await rehearse(text, self.kept(), self.records)

    async def names(self) -> KeptNamesShown:
        from .editor import names_in

        return await names_in(self.kept())

    def kept(self) -> Sequence[ObservedExchange]:
        """Return the exchanges kept for the view, newest first."""
        return [] if self._kept is None else [one.seen for one in self._kept.watch.ring.newest()]

    # ---- for those who look

    @property
    def kept_exchanges(self) -> KeptExchanges:
        """Exchanges kept for the view; created by the first viewer."""
        if self._kept is None:
            from .kept import KeptExchanges

            if self.view_terms is None:
                raise Problem(403, "view_off", "there is no view here")
            self._kept = KeptExchanges(
                self.view_terms.make_watch(), self.view_terms.config.records, self.server.reactor
            )
        return self._kept

    def view(self, number: int, text: str, rows: int, after: int | None) -> ProcessViewSource:
        from .view import ProcessViewSource

        return ProcessViewSource(self.kept_exchanges.watch, self.server.reactor.notify, Filter(text), rows, after)

    async def view_totals(self) -> ViewTotals:
        return self.kept_exchanges.watch.totals()

    async def exchanges(self, text: str, before: int | None, limit: int, after: int | None) -> FoundExchanges:
        return await self.kept_exchanges.exchanges(text, before, limit, after)

    async def exchange(self, number: int, first: int) -> str:
        return await self.kept_exchanges.exchange(number, first)

    async def exchange_frame(self, number: int, of: str, side: str) -> str:
        return await self.kept_exchanges.exchange_frame(
            number, "response" if of == "response" else "request", "broker" if side == "broker" else "client"
        )

    async def saved_exchange(self, number: int) -> str:
        return await self.kept_exchanges.saved_exchange(number)

    async def send_again(self, number: int, confirm: str) -> SentAgainShown:
        if self._sender is None:
            from .exchange_sender import ExchangeSender

            self._sender = ExchangeSender(self.server, self.kept_exchanges)
        return await self._sender.send(number, confirm)

    # ---- held frames

    async def held(self) -> HeldRows:
        return await self.held_frames.show_all()

    async def held_frame(self, number: str, first: int) -> str:
        return await self.held_frames.show_frame(number, first)

    async def held_preview(self, number: str, body: ResumeBody) -> str:
        return await self.held_frames.preview(number, body)

    async def held_action(self, action: str, number: str, body: HeldBody) -> HeldShown:
        return await self.held_frames.call(number, body)

    async def resume_held(self, rule: str | None, who: str) -> int:
        return await self.held_frames.resume_all(rule, who)

    async def held_news(self, number: int | None) -> HeldNewsShown:
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
