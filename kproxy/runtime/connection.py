"""Connection of one client with its broker: drives a session, executes its commands, and handles its end.

Strategy. The two sides (side.py) forward bytes; this module handles rare events. The phases of a connection are

    OPEN       bytes flow
    CLOSING    reads are stopped; queued bytes are being written
    LINGERING  FIN was sent to the client, and its remaining bytes are discarded: a close with unread bytes would send
               a reset, which can destroy responses that the client has not read yet
    CLOSED

in this order. timeouts.py ends a phase that lasts too long.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

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
    LoadSchemas,
    Pause,
    Reshape,
    Resume,
    Send,
    Shut,
    Wake,
    WakeAt,
)

from .protocols import AddressPair, ConnectionPhase, Feed, HostPort, host_port

if TYPE_CHECKING:
    from kproxy.rules.content.schemas import SchemaKey
    from kproxy.rules.exchange import Facts
    from kproxy.runtime.io.pollers import Deadline
    from kproxy.runtime.io.scheduler import Fiber
    from kproxy.runtime.io.socket_io import Route
    from kproxy.runtime.listeners.listener import Listener
    from kproxy.runtime.listeners.listener_ports import ClientAddresses
    from kproxy.runtime.server import Server
    from kproxy.runtime.upstreams.dialler import PendingDial
    from kproxy.session.plan import Plan
    from kproxy.session.sasl.login import LoggedIn
    from kproxy.session.session import Session

    from .tap import Tap


CLOSED = ConnectionPhase.CLOSED  # not a literal: the type checker would narrow the phase across calls that change it


EntryMethod = TypeVar("EntryMethod", bound=Callable[..., None])


def entry(method: EntryMethod) -> EntryMethod:
    """Run external calls of `method` in the connection's turn. They are queued while the connection's work is
    suspended, and can be suspended themselves."""

    @wraps(method)
    def enter(self: Connection, *args: Any, **named: Any) -> None:
        if self.frozen:
            self.put_off.append(partial(method, self, *args, **named))
        else:
            self.reactor.aside.enter(self, method, self, *args, **named)

    return cast("EntryMethod", enter)


class ConnectionEnding(NamedTuple):
    """Reason for the end of a connection. `blame` is "client", "broker" or empty."""

    cause: str = ""
    message: str = ""
    blame: str = ""


NOT_ENDED: Final = ConnectionEnding()
NO_CALLS: Final[list[Callable[[], None]]] = []
"""Placeholder for the queue of deferred calls while calls are not deferred."""


class Connection:
    """Client socket and broker socket with the session between them. Calls `server.ended(self)` at its end.

    A closed connection drops its sides, and they drop their peers. This avoids reference cycles, which would load the
    garbage collector when clients connect and disconnect often.

    It has slots: most attributes are set late, and Python would allocate a dict of 800 bytes per instance.
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
        "tapped",
        "turn",
        "unread",
        "wakes",
    )  # fmt: skip
    anonymous = False
    client: Side
    broker: Side
    since: float

    def __init__(
        self, server: Server, listener: Listener, facts: Facts, session: Session,
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
        self.unread = now  # last time when timeouts.py saw the client's reads paused
        self.drain_at = inf  # when it reaches its maximum age
        self.moved = 0
        self.obeying = self.looked_after = False
        self.broker_address: HostPort | None = None
        self.connected_after: float | None = None  # seconds
        self.race: PendingDial | None = None
        self.route: Route | None = None
        self.leaving: CloseBoth | None = None
        self.tap: Tap | None = None  # forwards traffic to observers
        self.tapped: Callable[[], tuple[Feed, Feed]] | None = None  # feeds of a tap around those of the session
        self.flow: ConnectionShaper | None = None
        self.half_closing: Side | None = None  # gets its FIN after its queued bytes
        self.wakes: Sequence[Deadline] = ()
        self.turn: Fiber | None = None  # turn with suspended work
        self.frozen = False  # suspended work blocks all other calls
        self.put_off = NO_CALLS  # calls deferred until then

    @property
    def cause(self) -> str:
        return self.ending.cause

    @property
    def message(self) -> str:
        return self.ending.message

    @property
    def blame(self) -> str:
        return self.ending.blame

    # ---- suspended work

    @property
    def turns_of(self) -> Connection:
        """Return the owner of the callbacks' work: the connection itself."""
        return self

    @property
    def address(self) -> str:
        """Return the client's network, the unit of fair scheduling."""
        return network_of(self.client_address[0])

    @property
    def idle(self) -> bool:
        """Return True if no request is in flight."""
        return bool(self.session.idle)

    def freeze(self, turn: Fiber) -> None:
        """Pause events while work of this connection is suspended in `turn`.

        Its request leaves the queue of a quota, because the head of the queue must act when it is due.
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
        """Resume events and run the deferred calls after the suspended work is done."""
        self.turn = None
        calls, self.put_off = self.put_off, []
        if not self.closed:
            self.client.over()
            self.broker.over()
            self.server.wake((self.session,))  # it may have left the queue of a quota
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
        """Call `look`, a tap's callback, unless the connection is closed."""
        if not self.closed:
            look()

    # ---- commands

    def obey(self, now: float) -> None:
        """Execute the session's commands in order until the list is empty."""
        if self.obeying:  # reentrant call: the outer loop executes the new commands
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
            self.wake_others(rest)  # commands remain if one ended the connection or raised
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
        """Pass the ApiVersions response for `ask_versions` to the session."""
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
        """Pass the nodes' addresses for `ensure_nodes` to the session."""
        if self.phase is ConnectionPhase.OPEN:
            now = monotonic()
            self.session.nodes_ready(addresses, now)
            self.obey(now)

    def load_schemas(self, command: LoadSchemas, now: float) -> None:
        registries = self.server.registries
        client = None if registries is None else registries.client(self.session.facts.cluster)
        waiting = set(command.keys)
        if client is not None:

            def done(key: SchemaKey) -> None:
                waiting.discard(key)
                if not waiting:
                    self.reactor.cancel(deadline)
                    self.schemas_loaded()

            waiting = {key for key in command.keys if client.want(key, partial(done, key))}
            if waiting:  # lookups of other connections may come first
                deadline = self.reactor.call_at(now + client.config.timeout, self.schemas_loaded)
                return
        self.session.schemas_ready(now)

    @entry
    def schemas_loaded(self) -> None:
        """Continue the session after `load_schemas`. Later calls have no effect."""
        if self.phase is ConnectionPhase.OPEN:
            now = monotonic()
            self.session.schemas_ready(now)
            self.obey(now)

    def pause(self, command: Pause, now: float) -> None:
        (self.broker if command.side else self.client).mute(PAUSED)

    def resume(self, command: Resume, now: float) -> None:
        (self.broker if command.side else self.client).unmute(PAUSED)

    def wake(self, command: Wake, now: float) -> None:
        self.server.wake(command.sessions)

    def wake_others(self, commands: Iterable[Command]) -> None:
        """Execute the Wakes among skipped commands, since other connections wait for them."""
        for command in commands:
            if isinstance(command, Wake):
                self.server.wake(command.sessions)

    def begin(self) -> None:
        """Begin the session after the client's socket is attached. Most sessions have no work at this point, so they
        skip the turn, which would cost as much as their creation."""
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
        """Pass the result of `compute` to the session. Not called after the session is closed."""
        now = monotonic()
        self.session.logins.computed(result, now)
        self.obey(now)

    def wake_at(self, command: WakeAt, now: float) -> None:
        due = [one for one in self.wakes if one.call is not None]
        self.wakes = [*due, self.reactor.call_at(command.when, self.tick)]

    @entry
    def tick(self) -> None:
        """Call the session at a time that it requested with WakeAt."""
        if not self.closed:
            now = monotonic()
            self.session.tick(now)
            self.obey(now)

    @entry
    def released(self) -> None:
        """Notify the session that a rule has released one of its requests."""
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
        """End the connection at this byte and discard queued writes."""
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
        """Report to the session that the kernel has accepted all bytes up to this token. A Wake is executed
        immediately, because the next `obey` may be late or never come."""
        commands = self.session.commands
        self.session.sent(token, now)
        if commands and isinstance(wake := commands[-1], Wake):
            commands.pop()
            self.server.wake(wake.sessions)

    def close_by_command(self, command: CloseBoth, now: float) -> None:
        if command.cause == "drained" and self.leaving is not None:
            command = self.leaving  # has the reason of the drain
        if command.reset:
            self.ending = self.ending._replace(blame=command.blame)
            self.end(command.cause, command.message, reset=True)
        else:
            self.close(command.cause, command.message, command.blame)

    # ---- the broker

    @entry
    def connected(self, sock: socket.SocketType, address: HostPort, login: LoggedIn | None = None) -> None:
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
        if self.closed:  # the first write woke the session, which closed the connection
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
        """Close after a failed dial, which is already logged. `refused`: the broker rejected kproxy's credentials."""
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
        """Return True if the client has sent FIN, even if the FIN has not been read yet."""
        return not self.closed and has_sent_fin(self.client.sock)

    @property
    def origin(self) -> AddressPair | None:
        """Return the client's address and the destination address. None: no client socket."""
        sock, route = self.client.sock, self.route
        if sock is None:
            return None
        return self.client_address, host_port(sock.getsockname()) if route is None else route.destination

    @property
    def local_host(self) -> str:
        return host_port(self.client.sock.getsockname())[0] if self.client.sock is not None else ""

    # ---- ends

    def ended(self, side: Side, now: float) -> None:
        """Handle EOF of `side`: close, or answer requests in flight first."""
        if self.phase is ConnectionPhase.LINGERING:
            self.finish()
            return
        session, client, broker = self.session, self.client, self.broker
        if side is broker:
            self.listener.upstream.versions.forget(self)
        quiet = client.out is None and broker.out is None and broker.sock is not None
        if side is client and quiet and session.settled and self.phase is ConnectionPhase.OPEN:
            # Fast path for the usual end.
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
        else:  # the client may still read responses
            self.disconnect(CloseBoth("client_closed", "client closed the connection"))
            if self.broker.out is None:
                self.broker.shut()

    def disconnect(self, close: CloseBoth) -> None:
        if self.leaving is None:
            self.leaving = close
            self.chain_feeds()

    def chain_feeds(self) -> None:
        """Set the feeds of both sides after a change of the tap or of `leaving`.

        A tap contains the session's feeds, and the check for idleness contains both. Those of a closing connection
        stay as they are."""
        if self.phase is not ConnectionPhase.OPEN:
            return
        session, tapped = self.session, self.tapped
        client, broker = (session.from_client, session.from_broker) if tapped is None else tapped()
        if self.leaving is not None:
            client, broker = self.until_idle(client), self.until_idle(broker)
        self.client.feed, self.broker.feed = client, broker

    def until_idle(self, feed: Feed) -> Feed:
        """Wrap `feed` with a check whether the session is idle afterwards."""

        def feed_and_look(view: memoryview, n: int, now: float) -> int:
            go = feed(view, n, now)
            if self.session.idle and self.leaving is not None:
                self.session.commands.append(self.leaving)
            return go

        return feed_and_look

    def failed(self, side: Side, error: OSError) -> None:
        """Close after a socket error. Bytes queued for this socket are lost; bytes read from it are still forwarded."""
        who, reason = NAMES[side.which], error.strerror or str(error)
        side.drop()
        if side is self.broker:
            self.listener.upstream.versions.forget(self)
        if side is self.client or self.phase is not ConnectionPhase.OPEN:
            self.end(f"{who}_reset", f"{who}: {reason}")
        else:
            self.close(f"{who}_reset", f"{who}: {reason}" + ("" if self.session.idle else ", with requests in flight"))

    def drained(self, side: Side) -> None:
        """Continue actions that waited until all bytes for this side were written."""
        if self.phase is ConnectionPhase.CLOSING:
            self.linger()
        elif side is self.half_closing:
            side.half_close()
        elif self.leaving is not None and side is self.broker and self.client.muted & ENDED:
            side.shut()

    def close(self, cause: str, message: str, blame: str = "") -> None:
        """Stop reading, write queued bytes, then close."""
        if self.phase is not ConnectionPhase.OPEN:
            return
        self.phase = ConnectionPhase.CLOSING
        self.ending = ConnectionEnding(cause, message, blame)
        self.active = monotonic()
        self.wake_others(self.session.commands)  # a failed send may have skipped them
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
        """Send FIN to the client after all queued bytes are written, and linger."""
        if self.client.out is not None or self.broker.out is not None:
            return
        client = self.client
        if client.sock is None or client.muted & ENDED:  # closed, or has sent FIN
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
        """Close both sockets now. The first cause and message are kept. `settled`: the caller has already checked
        `session.settled`."""
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
        """Answer requests in flight, then close."""
        if self.phase is ConnectionPhase.OPEN:
            self.disconnect(CloseBoth(cause, message))
            self.session.drain(now)
            self.obey(now)


def throw_away(view: memoryview, n: int, now: float) -> int:
    """Discard bytes: the feed of a lingering client."""
    return 0


OBEY: Mapping[type, Callable[[Connection, Any, float], None]] = {
    Send: Connection.send,
    Dial: Connection.dial,
    AskVersions: Connection.ask_versions,
    EnsureNodes: Connection.ensure_nodes,
    LoadSchemas: Connection.load_schemas,
    Pause: Connection.pause,
    Resume: Connection.resume,
    Wake: Connection.wake,
    WakeAt: Connection.wake_at,
    Compute: Connection.compute,
    Shut: Connection.shut,
    Reshape: Connection.reshape,
    CloseBoth: Connection.close_by_command,
}
