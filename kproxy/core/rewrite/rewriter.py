"""Rewriting one message in place: one walk for all rewrites that want something of it, then their edits.

Strategy. A `Rewrite` says which paths it wants of a message in one version and gives, once bound to the walk, a
function that looks at the hits and puts edits. Nothing is decoded and nothing that is not edited is copied. What a
rewrite does not know yet it asks the `Context` for; an answer of None means "not known yet": the session finds out and
calls again, so an `Apply` must leave no trace in the context before it knows that it has all it needs.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

from kproxy.core.counters import Counters
from kproxy.errors import DecodeError
from kproxy.wire.breath import drop, spread
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.head import body_start
from kproxy.wire.scan.walk import Hits, Walk, walk
from kproxy.wire.table import schema

Pieces = list[Any]  # bytes-like objects that make up a frame
GONE = ("", -1)  # "no such node" as brokers say it: an address that cannot be given
MOST_NODES = 1000
"""Nodes that a response may name, and that a connection remembers, where no limit is given: more than clusters have."""
LONGEST_HOST = 255
"""Characters in the name of a host: a DNS name has 253 at most, an IPv6 address with its zone fewer."""
LAST_PORT = 65535


class NamedClient(Protocol):
    """Client of a connection, as far as rewrites ask who it is."""

    @property
    def names_library(self) -> bool: ...


class Context:
    """Knowledge and memory of the rewrites of one session; `note` is set for each exchange.

    note            lives from a request to its response (None until a request's rewrite puts something)
    memory          lives as long as the connection
    cluster_memory  lives as long as the cluster, shared by its connections
    """

    __slots__ = (
        "client", "cluster_memory", "counters", "has_asked", "ids_wanted", "known_topics", "max_nodes", "memory",
        "missing", "nodes", "note", "now", "settled", "topics_heard", "topics_wanted",
    )  # fmt: skip

    def __init__(
        self, counters: Counters, cluster_memory: MutableMapping[str, Any], max_nodes: int = MOST_NODES,
        client: NamedClient | None = None,
    ) -> None:  # fmt: skip
        self.counters, self.max_nodes, self.client = counters, max_nodes, client
        self.cluster_memory = cluster_memory
        self.memory: dict[Any, Any] = {}
        self.note: dict[str, Any] | None = None
        self.nodes: dict[int, tuple[str, int, tuple[str, int]]] = {}
        self.missing: dict[int, tuple[str, int]] = {}
        self.settled: set[int] = set()  # nodes that were asked for because of the frame at hand
        self.known_topics: list[bytes] | None = None
        self.topics_heard = float("-inf")  # when the broker last listed all topics
        self.topics_wanted = False
        self.ids_wanted: set[bytes] = set()  # topic ids whose names are not known
        self.has_asked = False  # the broker has been asked for topics because of the request at hand
        self.now = 0.0  # when the request at hand was looked at

    @property
    def names_library(self) -> bool:
        """Return True if the client has said which library it is (KIP-511)."""
        return self.client is not None and self.client.names_library

    def count(self, word: str, n: int = 1) -> None:
        self.counters.events[word] += n

    def rewrote(self, what: str, n: int = 1) -> None:
        self.counters.rewritten[what] += n

    def address(self, node: int, host: str, port: int) -> tuple[str, int] | None:
        """Return the host and port by which clients of this connection reach the node that the broker names host:port.

        None: not known yet, the session will ask. `GONE`: this node cannot be reached through kproxy. Raises
        DecodeError when the response names more nodes than a cluster may have.
        """
        known = self.nodes.get(node)
        if known is None or ((known[0] != host or known[1] != port) and node not in self.settled):
            if not is_reachable(host, port):
                return GONE
            self.missing[node] = (host, port)
            if len(self.missing) > self.max_nodes:
                self.missing = {}
                raise too_many_nodes(self.max_nodes)
            return None
        return known[2]

    def done(self) -> None:
        """Forget the nodes that were asked for because of the frame at hand, which is rewritten now. A frame may name a
        node twice, differently: it was asked for once."""
        self.settled.clear()
        if len(self.nodes) > self.max_nodes:
            self.nodes.clear()

    def topics(self) -> list[bytes] | None:
        """Return all broker-side topic names. None: not known (or too old), the session will ask the broker."""
        if self.known_topics is None:
            self.topics_wanted = True
        return self.known_topics

    def listed_before(self, seconds: float) -> bool:
        """Return True if the broker has not listed all topics in so long a time."""
        return self.now - self.topics_heard >= seconds

    @property
    def incomplete(self) -> bool:
        """Return True if an answer to the rewrite at hand was "not known yet"."""
        return bool(self.missing) or self.topics_wanted or bool(self.ids_wanted)


def is_reachable(host: str, port: int) -> bool:
    """Return False for what a broker may say and no client can connect to: control characters, bytes that are no text,
    hosts that are too long, ports that are none. A path would be a Unix socket of this machine."""
    return 0 < port <= LAST_PORT and len(host) <= LONGEST_HOST and host[:1] != "/" and _is_plain(host)


def _is_plain(host: str) -> bool:
    return host.isprintable() and " " not in host


def too_many_nodes(most: int) -> DecodeError:
    """Make the error for a response that names more nodes than limits.max_nodes."""
    return DecodeError(f"the response names more than {most} nodes", expected=f"at most {most} (limits.max_nodes)")


Apply = Callable[[Buffer, Hits, Edits, Context], None]


class Rewrite(Protocol):
    """Rewrite that one rule needs of one message in one version."""

    @property
    def wanted(self) -> frozenset[str]:
        """Return the paths of the fields it reads, for `wire.scan.walk`."""

    def bind(self, walk: Walk) -> Apply:
        """Return the function that puts the edits, given the walk whose mark numbers the hits carry."""


Splice = tuple[int, int, bytes]
"""(start, stop, bytes) of the only change of a frame."""


class Splicer(Protocol):
    """Rewriter of frames with one place that changes, which need not be held for that."""

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return the change of the frame whose size is at `pos` and of which buf[pos:end] is here. None: it is to be
        looked at whole."""


class Rewriter:
    """Rewriter of one (api, version, direction): all rewrites of it, compiled when a frame of it first passes."""

    def __init__(self, key: int, version: int, direction: str, rewrites: Sequence[Rewrite]) -> None:
        wanted = frozenset[str]().union(*(each.wanted for each in rewrites))
        self.walk = walk(key, version, direction, wanted, short=direction == "response")
        self.applies = [each.bind(self.walk) for each in rewrites]
        api = schema.load(key)
        self.api, self.version, self.direction = api.name, version, direction
        self.header_version = api.header_version(direction, version)

    def rewrite(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | None:
        """Return the frame at buf[start:end] (without its size) after all edits, or None when it stays as it is.

        Look at `context.incomplete` afterwards: if true, the result means nothing and the call is to be repeated.
        Raises DecodeError for a frame that does not follow its grammar. Bytes after the last field are kept; what long
        arrays hold behind the last field that somebody wants to see is not looked at.
        """
        body = body_start(buf, start, end, self.header_version, self.direction)
        if body is None:
            raise DecodeError(
                "header does not end in the frame", api=self.api, version=self.version, offset=end - start
            )
        hits: Hits = []
        after = self.walk.run(buf, body, end, hits)
        hits = spread(hits)
        edits = Edits(buf, start, end, self.walk, hits)
        if hits:
            for apply in self.applies:
                apply(buf, hits, edits, context)
                if context.incomplete:  # the others would count what they do a second time
                    break
        if after != end and self.walk.whole and not context.incomplete:
            context.count("trailing_bytes")
        pieces = edits.pieces() if edits else None
        drop(edits.changes)
        drop(hits)
        return pieces
