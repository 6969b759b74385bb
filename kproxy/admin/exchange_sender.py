"""Requests of exchanges that this process has kept, sent again for those who look.

Strategy. The request goes to the listener that it came by, over a connection of kproxy's own
(`runtime/listeners/listener.py`), so that rules act on it as on any other; `kproxy.tools.replay`'s player renews what
has to be new in it. All that takes its time is in a thread: reading the request, the handshake, waiting for the answer.
The answer is an exchange of its own, which those who look see as any other, but for the id of the exchange that it is
from.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from kproxy.protocol import Message
from kproxy.protocol.table.api_keys import METADATA
from kproxy.record.exchange import ObservedExchange
from kproxy.record.live_view.rows import KeptExchange, exchange_id
from kproxy.record.live_view.sink import Resent
from kproxy.rules.kinds.read_only import CREATES
from kproxy.rules.permissions import permissions
from kproxy.rules.select.mentions import made
from kproxy.runtime.connection_view import ConnectionInfo
from kproxy.runtime.listeners.listener import RESET, ClientRefused, Listener, OwnClient, secured
from kproxy.runtime.server import Server
from kproxy.tools.replay.player import CLOSED, Pace, ReplayPlayer
from kproxy.tools.replay.recording import Recording, ReplayOutcome, record
from kproxy.tools.replay.sockets import SinglePlay
from kproxy.tools.replay.target import TargetCluster

from .kept import READERS, KeptExchanges
from .models import SentAgainShown, SentOutcome
from .problem import Problem

MOST_AT_ONCE = 4  # Requests that a process sends again at a time
PATIENCE = 20.0  # Response timeout in seconds; HTTP clients give up after thirty
LOOKS, LOOK = 50, 0.02
"""Times, and seconds between them, that the end of the new exchange is looked for once the connection is closed."""
CHANGES = {"data": "changes what is stored or set", "offsets": "changes how far a group has read",
           "members": "changes who is in a group"}  # fmt: skip
MAKES_TOPICS = "may make topics that are not there"

REASONS = {CLOSED: "the connection was closed before it was answered"}
OUTCOMES: dict[str, SentOutcome] = {"answered": "answered", "silent": "no_answer_due"}


class ExchangeSender:
    """Sends kept requests of one process again, to its own listeners."""

    def __init__(self, server: Server, kept: KeptExchanges) -> None:
        self.server, self.kept = server, kept
        self.busy = 0

    async def send(self, number: int, confirm: str) -> SentAgainShown:
        """Send the request of an exchange again. `confirm`: the name of its API, required if the request changes
        something. Raises Problem."""
        kept = self.kept.get(number)
        if self.busy >= MOST_AT_ONCE:
            raise Problem(429, "too_many_sent", f"expected at most {MOST_AT_ONCE} requests at once, got one more")
        listener, node, name = self.way_in(kept.seen)
        self.busy += 1
        try:
            recording, asks = await trio.to_thread.run_sync(prepared, kept.seen, limiter=READERS)
            if asks and confirm != kept.seen.api:
                say = f'{{"confirm": "{kept.seen.api}"}}'
                raise Problem(409, "confirm_first", f"{kept.seen.api} {asks}: to send it again, say so with {say}")
            return await self.play(kept, recording, listener, node, name)
        finally:
            self.busy -= 1

    def way_in(self, seen: ObservedExchange) -> tuple[Listener, int | None, str | None]:
        """Return the listener that an exchange came by, the node that its client wanted, and the name that it asked
        for. Raises Problem."""
        who = seen.who
        listener = next((one for one in self.server.listeners if one.name == who.listener), None)
        if listener is None or not isinstance(who, ConnectionInfo):
            raise Problem(409, "not_sendable", f"expected a listener of the config, got {who.listener!r}")
        why = login_at(listener, who)
        if why:
            raise Problem(409, "cannot_log_in", f"{why}, and kproxy keeps no secrets")
        return listener, who.connection.facts.node, who.sni

    async def play(
        self, kept: KeptExchange, recording: Recording, listener: Listener, node: int | None, name: str | None
    ) -> SentAgainShown:
        """Send the request over a new connection. Raises Problem if the listener refuses it."""
        of = exchange_id(self.kept.watch.process, kept.number)
        resent, ends = Resent(of), list[ReplayOutcome]()
        client = await trio.to_thread.run_sync(OwnClient)
        target = TargetCluster(client.address, recorded=True)
        single = SinglePlay(ReplayPlayer(recording, target, Pace(None, patience=PATIENCE), ends.append))
        awaited, expected = self.server.taps.awaited, self.kept.watch.sink.resent
        try:
            awaited.add(client.address)
            expected[client.address] = resent
            client.begin(listener, node)
            run = partial(talk, single, client, listener, name, ends)
            broken = await trio.to_thread.run_sync(run, abandon_on_cancel=True)
            await self.seen(resent)
        except ClientRefused as error:
            raise Problem(409, "not_let_in", str(error)) from None
        except OSError as error:
            raise Problem(409, "not_let_in", f"listener {listener.name}: {error.strerror or error}") from None
        finally:
            single.stop()
            awaited.discard(client.address)
            expected.pop(client.address, None)
        end = ends[0] if ends else None
        here = None if resent.kept is None else exchange_id(self.kept.watch.process, resent.kept.number)
        return SentAgainShown(
            id=here, again_of=of, outcome="unanswered" if end is None else OUTCOMES.get(end.how, "unanswered"),
            reason=broken if end is None else REASONS.get(end.reason, end.reason),
            notes=[] if end is None else end.notes, seconds=None if end is None else end.seconds,
        )  # fmt: skip

    async def seen(self, resent: Resent) -> None:
        """Wait until the new exchange is recorded, or for LOOKS * LOOK seconds."""
        for _ in range(LOOKS):
            if resent.kept is not None and resent.kept.over:
                return
            await trio.sleep(LOOK)


def login_at(listener: Listener, who: ConnectionInfo) -> str:
    """Return why a client of this listener has to authenticate; empty if it does not."""
    if listener.config.sasl is not None:
        return f"listener {listener.name} asks for a login"
    if listener.config.tls is not None and listener.config.tls.verify_clients == "required":
        return f"listener {listener.name} asks for a client's certificate"
    if who.principal is not None:
        return f"its client had logged in as {who.principal}"
    return "" if who.outcome is None else "its client had logged in"


def prepared(seen: ObservedExchange) -> tuple[Recording, str]:
    """Return the request as a recording to be played, and in words what it changes, empty if nothing. Raises Problem
    where what was kept is not enough. Takes its time: not for the loop."""
    recording = record([replace(seen, response=None, rules=[], _bodies=[None, None])])
    if not recording.exchanges:
        raise Problem(409, "not_sendable", "its request was not kept")
    (exchange,) = recording.exchanges
    if exchange.unfit:
        whole = seen.request is not None and seen.request.withheld
        why = exchange.unfit if whole or seen.key not in permissions() else "its request was not kept whole"
        raise Problem(409, "not_sendable", f"{seen.api} cannot be sent again: {why}")
    line = permissions()[seen.key]
    if line.changes != "nothing":
        return recording, CHANGES[line.changes]
    message = exchange.request if line.makes_topics else None
    return recording, MAKES_TOPICS if message is not None and makes_topics(message) else ""


def makes_topics(message: Message) -> bool:
    """True if brokers may create topics for this request."""
    if message.api.key == METADATA:
        return bool(message.body.get(CREATES, True) and message.body["topics"])
    return any(made(message))


def talk(
    single: SinglePlay, client: OwnClient, listener: Listener, name: str | None, ends: Sequence[ReplayOutcome]
) -> str:
    """Play the recording over the client's end of a connection, and close it. The close is a reset if a response is
    still due. Return the error; empty if there was none."""
    sock = client.sock
    try:
        if listener.config.tls is not None:
            sock = secured(sock, listener.config.tls, name)
        single.run(sock)
    except OSError as error:
        return f"the handshake with listener {listener.name} failed: {error.strerror or error}"
    finally:
        if not ends or ends[0].how not in OUTCOMES:
            with suppress(OSError):  # it is closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
    return ""
