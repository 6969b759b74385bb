"""Connection of one client with its broker: drives a session, obeys its commands, and knows how it all ends.

Strategy. The bytes go through the two sides (side.py); here is what happens seldom. A connection is

    OPEN       bytes flow
    CLOSING    nothing more is read; what is queued is being written
    LINGERING  FIN was sent to the client, and what it still sends is thrown away: a close with unread bytes would be a
               reset, and that can destroy what the client has not read yet
    CLOSED

and never goes back. A phase that lasts too long is ended from outside (timeouts.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from kproxy.rules.values.address import network_of
from kproxy.runtime.io.shaper import ConnectionShaper
from kproxy.runtime.io.side import CLOSING, DIALLING, ENDED, NAMES, PAUSED, Side
from kproxy.runtime.io.socket_io import has_sent_fin
from kproxy.session.commands import (
    BROKER,
    CLIENT,
    AskVersions,
    CloseBoth,
    Command,
    Compute,
    Dial,
    EnsureNodes,
    Pause,
    Reshape,
    Resume,
    Send,
    Shut,
    Wake,
    WakeAt,
)

from .protocols import AddressPair, ConnectionPhase, DrivenSession, Feed, HostPort, host_port

if TYPE_CHECKING:
    from kproxy.rules.exchange import Facts
    from kproxy.runtime.io.pollers import Deadline
    from kproxy.runtime.io.reactor import Reactor, SlowWork
    from kproxy.runtime.io.scheduler import Turn
    from kproxy.runtime.io.socket_io import Route
    from kproxy.runtime.io.splice import SplicedTap
    from kproxy.runtime.listeners.listener_ports import ClientAddresses
    from kproxy.runtime.upstreams.dialler import Cancellable
    from kproxy.runtime.upstreams.upstream import Upstream
    from kproxy.session.plan import Plan
    from kproxy.session.sasl.login import LoggedIn


CLOSED = ConnectionPhase.CLOSED  # no literal: what a call in between does to the phase is not seen by the type checker


EntryMethod = TypeVar("EntryMethod", bound=Callable[..., None])


def entry(method: EntryMethod) -> EntryMethod:
    """Run calls of `method`, which come from elsewhere, as a turn of the connection's own: they wait while its work is
    put aside, and may be put aside themselves."""

    @wraps(method)
    def enter(self: Connection, *args: Any, **named: Any) -> None:
        if self.frozen:
            self.put_off.append(partial(method, self, *args, **named))
        else:
            self.reactor.aside.enter(self, method, self, *args, **named)

    return cast("EntryMethod", enter)


class ConnectionTaps(Protocol):
    """Taps of all connections, as far as a connection tells them what happens."""

    def sent(self, connection: Connection, side: int, data: bytes | bytearray | memoryview, now: float) -> None: ...
    def closed(self, connection: Connection, now: float) -> None: ...


class ConnectionServer(Protocol):
    """Server that a connection belongs to."""

    @property
    def reactor(self) -> Reactor: ...
    @property
    def taps(self) -> ConnectionTaps: ...
    @property
    def slow_work(self) -> SlowWork: ...
    def wake(self, sessions: Sequence[Any]) -> None: ...
    def report(self, connection: Connection, now: float) -> None: ...
    def ended(self, connection: Connection) -> None: ...


class ConnectionListener(Protocol):
    """Listener that a connection has come in at. `connections`: how many of them are open."""

    connections: int

    @property
    def name(self) -> str: ...
    @property
    def tls(self) -> object: ...
    @property
    def side(self) -> type[Side]: ...
    @property
    def upstream(self) -> Upstream: ...
    def ensure(self, nodes: Mapping[int, HostPort], connection: Connection) -> ClientAddresses | None: ...


class ConnectionEnding(NamedTuple):
    """Reason why a connection ends, and whose doing it is: `blame` is "client", "broker" or empty."""

    cause: str = ""
    message: str = ""
    blame: str = ""


NOT_ENDED: Final = ConnectionEnding()
NO_CALLS: Final[list[Callable[[], None]]] = []
"""Stands for the calls that wait, as long as none may."""


class Connection:
    """Client's socket and broker's socket with the session between them; `server` is told by `server.ended(self)`.

    Once it is closed it has no sides, and they have no peers: what refers to each other would have to wait for the
    garbage collector, which would then have much to do where clients come and go.

    It has slots: most attributes are set late, for which Python would give each instance a dict of 800 bytes.
    """

    __slots__ = (
        "__weakref__",
        "active",
        "broker",
        "broker_address",
        "client",
        "client_address",
        "connected_after",
        "drain_at",
        "ending",
        "facts",
        "flow",
        "frozen",
        "half_closing",
        "leaving",
        "listener",
        "looked_after",
        "moved",
        "node",
        "obeying",
        "phase",
        "put_off",
        "race",
        "reactor",
        "route",
        "server",
        "session",
        "since",
        "tap",
        "turn",
        "unread",
        "wakes",
    )  # fmt: skip
    anonymous = False

    def __init__(
        self, server: ConnectionServer, listener: ConnectionListener, facts: Facts, session: DrivenSession,
        client: HostPort, node: int | None, now: float,
    ) -> None:  # fmt: skip
        self.server, self.listener, self.facts, self.session = server, listener, facts, session
        self.client_address, self.node = client, node
        session.owner = self
        self.reactor = server.reactor
        self.phase = ConnectionPhase.OPEN
        self.ending = NOT_ENDED
        self.client = listener.side(self, CLIENT, session.from_client, session.requests, session.commands)
        self.broker = listener.upstream.side(self, BROKER, session.from_broker, session.responses, session.commands)
        self.client.peer, self.broker.peer = self.broker, self.client
        self.active = self.since = now
        self.unread = now  # until when the client was not read, as far as timeouts.py has seen
        self.drain_at = inf  # when it has reached its greatest age
        self.moved = 0
        self.obeying = self.looked_after = False
        self.broker_address: HostPort | None = None
        self.connected_after: float | None = None  # seconds
        self.race: Cancellable | None = None
        self.route: Route | None = None
        self.leaving: CloseBoth | None = None
        self.tap: SplicedTap | None = None  # shows what passes to those who watch
        self.flow: ConnectionShaper | None = None
        self.half_closing: Side | None = None  # gets its FIN when what is queued for it has been written
        self.wakes: Sequence[Deadline] = ()
        self.turn: Turn | None = None  # in which it has work that was put aside
        self.frozen = False  # this work waits, and nothing else may run
        self.put_off = NO_CALLS  # until it is over

    @property
    def cause(self) -> str:
        return self.ending.cause

    @property
    def message(self) -> str:
        return self.ending.message

    @property
    def blame(self) -> str:
        return self.ending.blame

    # ---- work that is put aside

    @property
    def turns_of(self) -> Connection:
        """Return the owner of its callbacks' work: the connection itself."""
        return self

    @property
    def address(self) -> str:
        """Return the client's network, with whose connections it takes turns."""
        return network_of(self.client_address[0])

    @property
    def idle(self) -> bool:
        """Return True if no request is in flight."""
        return bool(self.session.idle)

    def freeze(self, turn: Turn) -> None:
        """Serve no events, as work of this connection is put aside in `turn`.

        Its request leaves the line of a quota: the first one in a line has to act when its time comes.
        """
        if self.turn is None:
            self.turn, self.put_off = turn, []
        if woken := self.session.step_aside():
            self.server.wake(woken)
        self.frozen = True
        if not self.closed:
            self.client.freeze()
            self.broker.freeze()

    def thaw(self) -> None:
        self.frozen = False

    def over(self) -> None:
        """Serve events again and make the calls that were put off: the work that was put aside is done."""
        self.turn = None
        calls, self.put_off = self.put_off, []
        if not self.closed:
            self.client.over()
            self.broker.over()
            self.server.wake((self.session,))  # it may have left the line of a quota
        for call in calls:
            if self.frozen:
                self.put_off.append(call)
            elif not self.closed:
                self.reactor.aside.enter(self, call)

    @entry
    def use(self, plan: Plan) -> None:
        if not self.closed:
            now = monotonic()
            self.session.use(plan, now)
            self.obey(now)

    @entry
    def granted(self, now: float) -> None:
        if not self.closed:
            self.session.granted(now)
            self.obey(now)

    @entry
    def watch(self, look: Callable[[], None]) -> None:
        """Call `look`, with which a tap looks at the connection anew, unless it is closed."""
        if not self.closed:
            look()

    # ---- commands

    def obey(self, now: float) -> None:
        """Carry out the session's commands, in order, until there are none."""
        if self.obeying:  # a command led to another call of the session: the loop below sees to that
            return
        self.obeying = True
        session = self.session
        commands = session.commands
        rest: Iterator[Command] = iter(())
        try:
            while commands and self.phase is not CLOSED:
                rest = iter(commands.copy())
                commands.clear()
                for command in rest:
                    OBEY[type(command)](self, command, now)
                    if self.phase is CLOSED:
                        return
        finally:
            self.obeying = False
            self.wake_others(rest)  # some are left if a command ended the connection, or raised
        if self.leaving is not None and self.phase is ConnectionPhase.OPEN and session.idle:
            self.close(self.leaving.cause, self.leaving.message)

    def send(self, command: Send, now: float) -> None:
        side = self.broker if command.side else self.client
        if self.phase is ConnectionPhase.OPEN or (self.phase is ConnectionPhase.CLOSING and side.sock is not None):
            if self.session.observer is not None:
                self.server.taps.sent(self, command.side, command.data, now)
            side.write(command.data, command.token)

    def dial(self, command: Dial, now: float) -> None:
        if self.phase is ConnectionPhase.OPEN:
            self.listener.upstream.dial(self)
            if self.race is not None:
                self.client.mute(DIALLING)

    def ask_versions(self, command: AskVersions, now: float) -> None:
        if self.phase is ConnectionPhase.OPEN:
            self.listener.upstream.versions.ask(self, command)

    def versions_known(self, answer: bytes) -> None:
        """Hand the session the ApiVersions answer that `ask_versions` was for."""
        if self.phase is ConnectionPhase.OPEN:
            now = monotonic()
            self.session.logins.versions_known(answer, now)
            self.obey(now)

    def ensure_nodes(self, command: EnsureNodes, now: float) -> None:
        if self.phase is ConnectionPhase.OPEN:
            addresses = self.listener.ensure(command.nodes, self)
            if addresses is not None:
                self.session.nodes_ready(addresses, now)

    @entry
    def nodes_known(self, addresses: ClientAddresses) -> None:
        """Hand the session the nodes' addresses that `ensure_nodes` was for."""
        if self.phase is ConnectionPhase.OPEN:
            now = monotonic()
            self.session.nodes_ready(addresses, now)
            self.obey(now)

    def pause(self, command: Pause, now: float) -> None:
        (self.broker if command.side else self.client).mute(PAUSED)

    def resume(self, command: Resume, now: float) -> None:
        (self.broker if command.side else self.client).unmute(PAUSED)

    def wake(self, command: Wake, now: float) -> None:
        self.server.wake(command.sessions)

    def wake_others(self, commands: Iterable[Command]) -> None:
        """Carry out the Wakes among commands that are not obeyed any more. Other connections wait for them."""
        for command in commands:
            if isinstance(command, Wake):
                self.server.wake(command.sessions)

    def begin(self) -> None:
        """Begin the session, the client's socket being attached. Most sessions have nothing to do then, for which a
        turn would take as long as making them."""
        if self.session.has_beginning:
            self.begin_session()

    @entry
    def begin_session(self) -> None:
        now = monotonic()
        self.session.begin(now)
        if self.session.commands:
            self.obey(now)

    def compute(self, command: Compute, now: float) -> None:
        self.server.slow_work.add(self.address, self, command.work)

    @entry
    def computed(self, result: object) -> None:
        """Hand the session the result that `compute` was for; not called once it is closed."""
        now = monotonic()
        self.session.logins.computed(result, now)
        self.obey(now)

    def wake_at(self, command: WakeAt, now: float) -> None:
        due = [one for one in self.wakes if one.call is not None]
        self.wakes = [*due, self.reactor.call_at(command.when, self.tick)]

    @entry
    def tick(self) -> None:
        """Tell the session that a time has come which it had named."""
        if not self.closed:
            now = monotonic()
            self.session.tick(now)
            self.obey(now)

    @entry
    def released(self) -> None:
        """Tell the session that a rule has let go of one of its requests."""
        if not self.closed:
            now = monotonic()
            self.session.released(now)
            self.obey(now)

    def shut(self, command: Shut, now: float) -> None:
        side = self.broker if command.side else self.client
        if side.out is None:
            side.half_close()
        else:
            self.half_closing = side

    def reshape(self, command: Reshape, now: float) -> None:
        if self.flow is not None:
            self.flow.end()
        self.flow = ConnectionShaper(self, command.shapes) if command.shapes else None

    @entry
    def cut(self, how: str, message: str, cause: str = "rule") -> None:
        """End the connection at this byte, whatever still waits to be written."""
        if self.closed:
            return
        for side in (self.client, self.broker):
            side.out, side.pending = None, 0
        if how == "rst":
            self.end(cause, message, reset=True)
        elif self.phase is ConnectionPhase.CLOSING:
            self.linger()
        else:
            self.close(cause, message)

    def sent(self, token: int, now: float) -> None:
        """Report to the session that the kernel has everything up to this token. A Wake is carried out at once: it may
        be long until this connection obeys again, or it may end before."""
        commands = self.session.commands
        self.session.sent(token, now)
        if commands and isinstance(wake := commands[-1], Wake):
            commands.pop()
            self.server.wake(wake.sessions)

    def close_by_command(self, command: CloseBoth, now: float) -> None:
        if command.cause == "drained" and self.leaving is not None:
            command = self.leaving  # which says why it was to be drained
        if command.reset:
            self.ending = self.ending._replace(blame=command.blame)
            self.end(command.cause, command.message, reset=True)
        else:
            self.close(command.cause, command.message, command.blame)

    # ---- the broker

    @entry
    def connected(self, sock: socket.SocketType, address: HostPort, login: LoggedIn | None = None) -> None:
        """Take the socket to a broker that the dialler has made."""
        self.race = None
        if self.phase is not ConnectionPhase.OPEN:
            sock.close()
            return
        self.broker_address = address
        self.connected_after = monotonic() - self.since
        try:
            self.broker.attach(sock)
        except OSError as error:
            self.failed(self.broker, error)
            return
        if self.closed:  # what was sent at last has woken its own session, which wanted the end
            return
        if self.client.muted & DIALLING:
            self.client.unmute(DIALLING)
        credentials = self.listener.upstream.credentials
        if login is not None and credentials is not None:
            now = monotonic()
            self.session.logins.logged_in(credentials, login, now)
            self.obey(now)

    @entry
    def unreachable(self, message: str, refused: bool = False) -> None:
        """Close: no broker could be reached, and the log says why. `refused`: it did not take kproxy's credentials."""
        self.race = None
        if refused and self.phase is ConnectionPhase.OPEN:
            now = monotonic()
            self.session.logins.refused_by_broker(message, now)
            self.obey(now)
        self.close("unreachable", message)

    @property
    def closed(self) -> bool:
        return self.phase is ConnectionPhase.CLOSED

    @property
    def client_left(self) -> bool:
        """Return True if the client has closed its end, although that may not have been read."""
        return not self.closed and has_sent_fin(self.client.sock)

    @property
    def origin(self) -> AddressPair | None:
        """Return the client's address and the one it has connected to; None without a client's socket."""
        sock, route = self.client.sock, self.route
        if sock is None:
            return None
        return self.client_address, host_port(sock.getsockname()) if route is None else route.destination

    @property
    def local_host(self) -> str:
        return host_port(self.client.sock.getsockname())[0] if self.client.sock is not None else ""

    # ---- ends

    def ended(self, side: Side, now: float) -> None:
        """Close, or answer what is in flight first: `side` will send no more."""
        if self.phase is ConnectionPhase.LINGERING:
            self.finish()
            return
        session, client, broker = self.session, self.client, self.broker
        if side is broker:
            self.listener.upstream.versions.forget(self)
        quiet = client.out is None and broker.out is None and broker.sock is not None
        if side is client and quiet and session.settled and self.phase is ConnectionPhase.OPEN:
            # The usual end, without the steps that it does not need.
            self.end("client_closed", "client closed", settled=True)
            return
        session.eof(side.which, now)
        if session.commands:
            self.obey(now)
        if self.phase is not ConnectionPhase.OPEN:
            return
        if side is self.broker:
            idle = self.session.idle
            self.broker.drop()
            self.close("broker_closed", "broker closed the connection" + ("" if idle else " with requests in flight"))
        elif self.session.idle:
            self.close("client_closed", "client closed the connection")
        else:  # it may still want the answers
            self.leave(CloseBoth("client_closed", "client closed the connection"))
            if self.broker.out is None:
                self.broker.shut()

    def leave(self, close: CloseBoth) -> None:
        if self.leaving is None:
            self.leaving = close
            self.client.feed = self.until_idle(self.client.feed)
            self.broker.feed = self.until_idle(self.broker.feed)

    def until_idle(self, feed: Feed) -> Feed:
        """Wrap `feed` with a look afterwards whether the session has become idle."""

        def feed_and_look(view: memoryview, n: int, now: float) -> int:
            go = feed(view, n, now)
            if self.session.idle and self.leaving is not None:
                self.session.commands.append(self.leaving)
            return go

        return feed_and_look

    def failed(self, side: Side, error: OSError) -> None:
        """Close after an error of a socket: what was on its way to it is lost, what came from it still goes on."""
        who, reason = NAMES[side.which], error.strerror or str(error)
        side.drop()
        if side is self.broker:
            self.listener.upstream.versions.forget(self)
        if side is self.client or self.phase is not ConnectionPhase.OPEN:
            self.end(f"{who}_reset", f"{who}: {reason}")
        else:
            self.close(f"{who}_reset", f"{who}: {reason}" + ("" if self.session.idle else ", with requests in flight"))

    def drained(self, side: Side) -> None:
        """Go on with what has waited until all was written to this side."""
        if self.phase is ConnectionPhase.CLOSING:
            self.linger()
        elif side is self.half_closing:
            side.half_close()
        elif self.leaving is not None and side is self.broker and self.client.muted & ENDED:
            side.shut()

    def close(self, cause: str, message: str, blame: str = "") -> None:
        """Read nothing more, write what is queued, then close."""
        if self.phase is not ConnectionPhase.OPEN:
            return
        self.phase = ConnectionPhase.CLOSING
        self.ending = ConnectionEnding(cause, message, blame)
        self.active = monotonic()
        self.wake_others(self.session.commands)  # a failed send may have kept them from being obeyed
        self.session.commands[:] = [one for one in self.session.commands if not isinstance(one, Wake)]
        self.client.mute(CLOSING)
        self.broker.mute(CLOSING)
        if self.race is not None:
            self.race.cancel()
            self.race = None
        if self.broker.sock is None:
            self.broker.drop()
        self.linger()

    def linger(self) -> None:
        """Send FIN to the client once nothing waits to be written, and linger."""
        if self.client.out is not None or self.broker.out is not None:
            return
        client = self.client
        if client.sock is None or client.muted & ENDED:  # gone, or it has said its own farewell
            self.finish()
            return
        self.broker.drop()
        self.phase = ConnectionPhase.LINGERING
        self.active = monotonic()
        client.feed = throw_away
        client.half_close()
        client.muted = 0
        client.unmute(0)

    def finish(self) -> None:
        self.end(self.cause, self.message)

    def end(self, cause: str, message: str, reset: bool = False, settled: bool = False) -> None:
        """Close both sockets now. The cause and message that were given first stand. `settled`: the session has been
        asked, and is."""
        if self.phase is ConnectionPhase.CLOSED:
            return
        if self.frozen and self.turn is not None:
            self.frozen = False
            self.turn.give_up()
        self.phase = ConnectionPhase.CLOSED
        first = self.ending
        self.ending = ConnectionEnding(first.cause or cause, first.message or message, first.blame)
        if self.race is not None:
            self.race.cancel()
        if self.flow is not None:
            self.flow.end()
        for deadline in self.wakes:
            self.reactor.cancel(deadline)
        if not (reset or settled or self.session.settled):
            self.broker.drain_unread()
        self.client.drop(reset)
        self.broker.drop(reset)
        now = monotonic()
        session = self.session
        session.end(now)
        self.wake_others(session.commands)
        session.commands.clear()
        self.server.report(self, now)
        self.server.taps.closed(self, now)
        self.server.ended(self)
        client, broker = self.client, self.broker
        client.feed = broker.feed = throw_away
        session.owner = None
        del client.peer, broker.peer, self.client, self.broker

    def crashed(self, error: Exception) -> None:
        """End the connection after an exception in one of its callbacks, which the reactor has logged."""
        self.end("crashed", f"{type(error).__name__}: {error}")

    @entry
    def drain(self, now: float, cause: str = "drained", message: str = "kproxy is shutting down") -> None:
        """Answer what is in flight, then close."""
        if self.phase is ConnectionPhase.OPEN:
            self.leave(CloseBoth(cause, message))
            self.session.drain(now)
            self.obey(now)


def throw_away(view: memoryview, n: int, now: float) -> int:
    """Forward no bytes: the feed of a client that lingers."""
    return 0


OBEY: Mapping[type, Callable[[Connection, Any, float], None]] = {
    Send: Connection.send,
    Dial: Connection.dial,
    AskVersions: Connection.ask_versions,
    EnsureNodes: Connection.ensure_nodes,
    Pause: Connection.pause,
    Resume: Connection.resume,
    Wake: Connection.wake,
    WakeAt: Connection.wake_at,
    Compute: Connection.compute,
    Shut: Connection.shut,
    Reshape: Connection.reshape,
    CloseBoth: Connection.close_by_command,
}
