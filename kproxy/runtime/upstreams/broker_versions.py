"""Answers of a cluster's brokers to ApiVersions, asked for by kproxy itself and kept for a while.

They are for clients that have not authenticated yet: what these send costs no broker anything, however many they are.
One question is asked for all clients that wait for its answer, on a connection of its own and without a login, which
brokers want none for (KIP-35).
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import NamedTuple, Protocol

import trio

from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.runtime.driven import HostPort
from kproxy.runtime.transparent import Route
from kproxy.session.commands import AskVersions
from kproxy.session.rewrite.versions import MAX_VERSIONS_RESPONSE
from kproxy.session.sasl.login import request_frame

from .dialling import Dialler
from .own_connection import own_connection, send_request

FRESH = 30.0
"""Seconds for which an answer is kept: a broker that comes back with another version has ended its connections, and is
asked anew then; its features may change meanwhile."""
AGAIN = 0.5
"""Seconds for which nobody is asked again after a failure: clients come back sooner."""
PATIENCE = 5.0
"""Seconds that an answer may take, once there is a connection."""
MOST = 1024
"""Answers kept; a broker gives some five."""
CORRELATION_BYTES = 4

BrokerKey = HostPort | int | None
"""A broker: the address, its node id, or any of the cluster."""


class CachedVersions(NamedTuple):
    """Answer to ApiVersions in the cache, valid `until` a time of `monotonic()`.

    `body` is all behind the correlation id; None: no answer came, `reason` says why.
    """

    until: float
    body: bytes | None
    reason: str = ""


class VersionsRequester(Protocol):
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

    def __init__(self, upstream: Dialler) -> None:
        self.upstream = upstream
        self.known: OrderedDict[tuple[BrokerKey, AskVersions], CachedVersions] = OrderedDict()
        self.waiting: dict[tuple[BrokerKey, AskVersions], list[VersionsRequester]] = {}

    def ask(self, requester: VersionsRequester, what: AskVersions) -> None:
        """Call `requester.versions_known` or `requester.unreachable`, now or later, unless it is closed by then."""
        place = self.place(requester)
        key = place, what
        answer = self.known.get(key)
        if answer is not None and monotonic() < answer.until:
            self.tell(requester, answer)
        elif key in self.waiting:
            self.waiting[key].append(requester)
        else:
            self.waiting[key] = [requester]
            self.upstream.reactor.spawn(
                self.find, key, requester.node if isinstance(place, int) else None, requester.route
            )

    def place(self, requester: VersionsRequester) -> BrokerKey:
        if requester.route is not None:
            return requester.route.destination
        return requester.node if requester.node in self.upstream.topology.nodes else None

    def forget(self, requester: VersionsRequester) -> None:
        """Drop the answers of a broker that has ended a connection: it may have another version when it is back."""
        place = self.place(requester)
        for key in [key for key in self.known if key[0] in (place, None)]:
            del self.known[key]

    async def find(self, key: tuple[BrokerKey, AskVersions], node: int | None, route: Route | None) -> None:
        """Ask the broker, keep its answer, and give it to all that wait for it."""
        upstream, what = self.upstream, key[1]
        try:
            with trio.fail_after(upstream.connect_timeout + PATIENCE):
                async with own_connection(upstream, node=node, route=route, anonymous=True) as sock:
                    frame = await send_request(sock, question(what), MAX_VERSIONS_RESPONSE)
            answer = CachedVersions(monotonic() + FRESH, frame[CORRELATION_BYTES:])
        except (OSError, trio.TooSlowError) as error:
            answer = CachedVersions(monotonic() + AGAIN, None, str(error) or "no answer to ApiVersions in time")
        finally:
            waiting = self.waiting.pop(key)
        self.known[key] = answer
        self.known.move_to_end(key)
        if len(self.known) > MOST:
            self.known.popitem(last=False)
        for requester in waiting:
            self.tell(requester, answer)

    def tell(self, requester: VersionsRequester, answer: CachedVersions) -> None:
        if requester.closed:
            return
        try:
            if answer.body is None:
                requester.unreachable(answer.reason)
            else:
                requester.versions_known(answer.body)
        except Exception as error:  # it ends that one; the others still hear
            self.upstream.reactor.log.error("a connection cannot be told of versions", exc_info=error)
            requester.crashed(error)


def question(what: AskVersions) -> bytes:
    """Build the ApiVersions request that `what` describes, its size in front."""
    struct = layout.body(API_VERSIONS, what.version, "request")
    body = struct.defaults()
    for name in ("client_software_name", "client_software_version"):
        if name in body:
            body[name] = "kproxy" if what.valid else ""
    return request_frame(API_VERSIONS, what.version, body)
