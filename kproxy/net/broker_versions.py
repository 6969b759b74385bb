"""Answers of a cluster's brokers to ApiVersions, asked for by kproxy itself and kept for a while.

They are for clients that have not authenticated yet: what these send costs no broker anything, however many they are.
One question is asked for all clients that wait for its answer, on a connection of its own and without a login, which
brokers want none for (KIP-35).
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from kproxy.core.commands import AskVersions
from kproxy.core.login import API_VERSIONS, ask
from kproxy.wire import layout

from .driven import HostPort
from .own_connection import own_connection, send_request

if TYPE_CHECKING:
    from .transparent import Route
    from .upstream import Upstream

FRESH = 30.0
"""Seconds for which an answer is kept: a broker that comes back with another version has ended its connections, and is
asked anew then; its features may change meanwhile."""
AGAIN = 0.5
"""Seconds for which nobody is asked again after a failure: clients come back sooner."""
PATIENCE = 5.0
"""Seconds that an answer may take, once there is a connection."""
MOST = 1024
"""Answers kept; a broker gives some five."""
LONGEST = 1 << 20
"""Bytes of an answer; Kafka's have less than a kB."""
CORRELATION_BYTES = 4

Place = HostPort | int | None
"""A broker: the address, its node id, or any of the cluster."""


class Answer(NamedTuple):
    """Answer to ApiVersions in the cache, valid `until` a time of `monotonic()`.

    `body` is all behind the correlation id; None: no answer came, `reason` says why.
    """

    until: float
    body: bytes | None
    reason: str = ""


class Asker(Protocol):
    """Connection that waits for the versions of its broker."""

    node: int | None
    route: Route | None

    @property
    def closed(self) -> bool:
        """Return True if the versions are needed no more."""

    def versions_known(self, answer: bytes) -> None: ...
    def unreachable(self, reason: str, refused: bool = False) -> None: ...
    def crashed(self, error: Exception) -> None: ...


class BrokerVersions:
    """Cache of ApiVersions answers of one cluster."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.known: OrderedDict[tuple[Place, AskVersions], Answer] = OrderedDict()
        self.waiting: dict[tuple[Place, AskVersions], list[Asker]] = {}

    def ask(self, asker: Asker, what: AskVersions) -> None:
        """Call `asker.versions_known` or `asker.unreachable`, now or later, unless it is closed by then."""
        place = self.place(asker)
        key = place, what
        found = self.known.get(key)
        if found is not None and monotonic() < found.until:
            self.tell(asker, found)
        elif key in self.waiting:
            self.waiting[key].append(asker)
        else:
            self.waiting[key] = [asker]
            self.upstream.reactor.spawn(self.find, key, asker.node if isinstance(place, int) else None, asker.route)

    def place(self, asker: Asker) -> Place:
        """Return the broker that the connection would go to."""
        if asker.route is not None:
            return asker.route.destination
        return asker.node if asker.node in self.upstream.topology.nodes else None

    def forget(self, asker: Asker) -> None:
        """Drop the answers of a broker that has ended a connection: it may have another version when it is back."""
        place = self.place(asker)
        for key in [key for key in self.known if key[0] in (place, None)]:
            del self.known[key]

    async def find(self, key: tuple[Place, AskVersions], node: int | None, route: Route | None) -> None:
        """Ask the broker, keep its answer, and give it to all that wait for it."""
        upstream, what = self.upstream, key[1]
        try:
            with trio.fail_after(upstream.connect_timeout + PATIENCE):
                async with own_connection(upstream, node=node, route=route, anonymous=True) as sock:
                    frame = await send_request(sock, question(what), LONGEST)
            found = Answer(monotonic() + FRESH, frame[CORRELATION_BYTES:])
        except (OSError, trio.TooSlowError) as error:
            found = Answer(monotonic() + AGAIN, None, str(error) or "no answer to ApiVersions in time")
        finally:
            waiting = self.waiting.pop(key)
        self.known[key] = found
        self.known.move_to_end(key)
        if len(self.known) > MOST:
            self.known.popitem(last=False)
        for asker in waiting:
            self.tell(asker, found)

    def tell(self, asker: Asker, found: Answer) -> None:
        if asker.closed:
            return
        try:
            if found.body is None:
                asker.unreachable(found.reason)
            else:
                asker.versions_known(found.body)
        except Exception as error:  # it ends that one; the others still hear
            self.upstream.reactor.log.error("a connection cannot be told of versions", exc_info=error)
            asker.crashed(error)


def question(what: AskVersions) -> bytes:
    """Build the ApiVersions request that `what` describes, its size in front."""
    struct = layout.body(API_VERSIONS, what.version, "request")
    body = {slot.name: slot.default() for slot in (*struct.slots, *struct.tagged)}
    for name in ("client_software_name", "client_software_version"):
        if name in body:
            body[name] = "kproxy" if what.valid else ""
    return ask(API_VERSIONS, what.version, body)
