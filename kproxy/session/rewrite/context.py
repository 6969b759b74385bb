"""The context of the rewrites of one session: their lookups and memory, in maps with limits; and rewritten responses.

Brokers send the same response to many clients, and Metadata of a large cluster takes milliseconds to rewrite. Every
client requests it when it connects and every few minutes, and all clients at once after a broker or a pod has gone. The
result depends on the response's bytes, on the rules, which belong to the `Rewriter`, and on the lookups in the
`Context`. So the lookups and their results are cached with the bytes. A cached response is used for the same bytes if
the context returns the same results; its counted events are then counted again. Responses with other lookups, or with
changes to the context, are not cached (`Plan` lists the cacheable ones).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import DecodeError
from kproxy.session.counters import Counters

if TYPE_CHECKING:
    from kproxy.rules.content.schemas import SchemaKey
    from kproxy.session.sasl.identity import Identity

MOST_BYTES = 64 << 20
"""Bytes of all answers that are kept in a process, as they came and as they went; 200,000 partitions have 9 to 16 MB.
"""
SHORTEST = 4096
"""Bytes of an answer that is worth being kept: a hundred partitions."""
MOST_ANSWERS = 100
"""Answers that are kept; those of a hundred names of a hundred topics each, or of clients of as many versions."""
ADDRESS_BYTES = 300
"""Bytes that an address is taken for, without the characters of its host."""

AnswerKey = tuple[int, int]
"""(number of the rewriter, bytes of the answer)"""


AnswerOwner = tuple[str, str]
"""(cluster, client network); the network is empty for an answer that several networks use."""
NOBODY: AnswerOwner = ("", "")


@dataclass(frozen=True)
class CachedResponse:
    """Answer without its correlation id, and its rewritten form; None: unchanged."""

    content: bytes
    written: bytes | None
    inputs: Dependencies

    @cached_property
    def size(self) -> int:
        hosts = sum(ADDRESS_BYTES + 4 * len(host) for _, host, _, _ in self.inputs.addresses)
        return len(self.content) + len(self.written or b"") + hosts


class ResponseCache:
    """Cache of answers of one process, of at most `most` bytes and `MOST_ANSWERS` entries.

    The cluster with the most is evicted from, and within it the client network with the most: the entry that was used
    the longest ago. An entry that two networks of a cluster have used belongs to all of them.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.size = most, 0
        self.kept: OrderedDict[AnswerKey, CachedResponse] = OrderedDict()
        self.owners: dict[AnswerKey, AnswerOwner] = {}

    @property
    def longest(self) -> int:
        """Return the bytes of the longest cached answer: its rewritten form also has to fit."""
        return self.most // 3

    def find(self, number: int, content: bytes, owner: AnswerOwner = NOBODY) -> CachedResponse | None:
        """Return the entry of an answer with these bytes for the rewriter of this number; None without one."""
        key = number, len(content)
        found = self.kept.get(key)
        if found is None or found.content != content:
            return None
        self.kept.move_to_end(key)
        if self.owners[key] != owner:
            self.owners[key] = owner[0], ""
        return found

    def keep(self, number: int, answer: CachedResponse, owner: AnswerOwner = NOBODY) -> None:
        """Put an answer in the cache, in the place of another one of the same length; not if it is longer than all
        entries may be together."""
        key = number, len(answer.content)
        if (before := self.kept.pop(key, None)) is not None:
            self.size -= before.size
            del self.owners[key]
        if answer.size > self.most:
            return
        self.kept[key], self.owners[key] = answer, owner
        self.size += answer.size
        while self.size > self.most or len(self.kept) > MOST_ANSWERS:
            self.evict()

    def evict(self) -> None:
        """Remove one entry of the owner with the most bytes, or with the most entries if only these are too many."""
        by_size = self.size > self.most
        clusters, owners = Counter[str](), Counter[AnswerOwner]()
        for key, owner in self.owners.items():  # at most MOST_ANSWERS + 1
            weight = self.kept[key].size if by_size else 1
            clusters[owner[0]] += weight
            owners[owner] += weight
        cluster = max(clusters, key=clusters.__getitem__)
        largest = max((owner for owner in owners if owner[0] == cluster), key=owners.__getitem__)
        oldest = next(key for key in self.kept if self.owners[key] == largest)
        self.size -= self.kept.pop(oldest).size
        del self.owners[oldest]


GONE = ("", -1)  # "no such node" as in brokers' responses: an address that cannot be given
MOST_NODES = 1000
"""Default limit of nodes in a response and in a connection's memory: more than any cluster has."""
LONGEST_HOST = 255
"""Characters in the name of a host: a DNS name has 253 at most, an IPv6 address with its zone fewer."""
LAST_PORT = 65535


class NeedsLookup(NamedTuple):
    """Facts to look up before a call can be repeated: `nodes` by id with the broker's host and port, the names of topic
    `ids`, and `all_topics` of the cluster. A lookup of nodes, or of `schemas`, contains nothing else."""

    nodes: Mapping[int, tuple[str, int]] = MappingProxyType({})
    ids: Collection[bytes] = ()
    all_topics: bool = False
    schemas: tuple[SchemaKey, ...] = ()


@dataclass(slots=True)
class Dependencies:
    """Inputs of the rewrites of one answer, besides its bytes: lookups in a context, with their results. `counts` are
    their counted events."""

    note: dict[str, Any] | None
    max_nodes: int
    addresses: list[tuple[int, str, int, tuple[str, int]]] = field(default_factory=list)
    """(node, host, port, the returned address)"""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (events or rewritten, word)."""

    def still_hold(self, context: Context) -> bool | NeedsLookup:
        """Return True if all recorded lookups have the same values in this context; `NeedsLookup` if some values are
        unknown."""
        if context.note != self.note or context.max_nodes != self.max_nodes:
            return False
        same, missing = True, dict[int, tuple[str, int]]()
        for node, host, port, given in self.addresses:
            same = context.address(node, host, port, missing) == given and same
        return NeedsLookup(missing) if missing else same

    def replay_counters(self, context: Context) -> None:
        for (kind, word), number in self.counts.items():
            getattr(context.counters, kind)[word] += number


class Context:
    """Knowledge and memory of the rewrites of one session; `note` is set for each exchange.

    note            lives from a request to its response (None until a request's rewrite puts something)
    memory          lives as long as the connection
    answers         lives as long as the process, shared by all
    cluster_memory  lives as long as the cluster, shared by its connections
    """

    __slots__ = (
        "answers",
        "client",
        "cluster_memory",
        "counters",
        "inputs",
        "known_topics",
        "looked_up",
        "max_nodes",
        "memory",
        "nodes",
        "note",
        "now",
        "owner",
        "topics_heard",
    )  # fmt: skip

    def __init__(
        self, counters: Counters, cluster_memory: MutableMapping[str, Any], max_nodes: int = MOST_NODES,
        client: Identity | None = None, answers: ResponseCache | None = None, owner: AnswerOwner = NOBODY,
    ) -> None:  # fmt: skip
        self.answers = ResponseCache(0) if answers is None else answers
        self.owner = owner  # of entries in that cache
        self.inputs: Dependencies | None = None  # records the lookups of the current rewrite for the cache
        self.counters, self.max_nodes, self.client = counters, max_nodes, client
        self.cluster_memory = cluster_memory
        self.memory: dict[Any, Any] = {}
        self.note: dict[str, Any] | None = None
        self.nodes: dict[int, tuple[str, int, tuple[str, int]]] = {}
        self.looked_up: NeedsLookup | None = None  # the last lookup for the current frame
        self.known_topics: list[bytes] | None = None
        self.topics_heard = float("-inf")  # when the broker last listed all topics
        self.now = 0.0  # when processing of the current request began

    @property
    def names_library(self) -> bool:
        """Return True if the client has sent its library's name (KIP-511)."""
        return self.client is not None and self.client.names_library

    def count(self, word: str, n: int = 1) -> None:
        self.counters.events[word] += n
        if self.inputs is not None:
            self.inputs.counts["events", word] += n

    def rewrote(self, what: str, n: int = 1) -> None:
        self.counters.rewritten[what] += n
        if self.inputs is not None:
            self.inputs.counts["rewritten", what] += n

    def address(
        self, node: int, host: str, port: int, missing: dict[int, tuple[str, int]]
    ) -> tuple[str, int] | None:  # fmt: skip
        """Return the host and port that clients of this connection use for this node, given the broker's host and port.

        None: unknown, and added to the `missing` nodes. `GONE`: this node cannot be reached through kproxy. Raises
        DecodeError if more than `max_nodes` are missing.
        """
        known = self.nodes.get(node)
        # A frame may name a node twice with different addresses. One lookup is sufficient for all of them.
        if known is not None and ((known[0] == host and known[1] == port) or self.was_looked_up(node)):
            given = known[2]
        elif is_reachable(host, port):
            missing[node] = (host, port)
            if len(missing) > self.max_nodes:
                raise too_many_nodes(self.max_nodes)
            return None
        else:
            given = GONE
        if self.inputs is not None:
            self.inputs.addresses.append((node, host, port, given))
        return given

    def was_looked_up(self, node: int) -> bool:
        """Return True if the last lookup for the current frame contained this node."""
        return self.looked_up is not None and node in self.looked_up.nodes

    def evict_nodes(self) -> None:
        """Clear the cache of nodes if it exceeds `max_nodes`. To be called when no frame waits for a lookup."""
        if len(self.nodes) > self.max_nodes:
            self.nodes.clear()

    def listed_before(self, seconds: float) -> bool:
        """Return True if the broker's last list of all topics is at least this old."""
        return self.now - self.topics_heard >= seconds


def is_reachable(host: str, port: int) -> bool:
    """Return False for an address that no client can connect to: control characters, bytes that are not text, hosts
    that are too long, invalid ports. A path would be a Unix socket of this machine."""
    return 0 < port <= LAST_PORT and len(host) <= LONGEST_HOST and host[:1] != "/" and _is_plain(host)


def _is_plain(host: str) -> bool:
    return host.isprintable() and " " not in host


def too_many_nodes(most: int) -> DecodeError:
    """Make the error for a response that names more nodes than limits.max_nodes."""
    return DecodeError(f"the response names more than {most} nodes", expected=f"at most {most} (limits.max_nodes)")


MAX_REGEX_BYTES: Final = 4_096  # of group id, member id and pattern of a stored member: 40 MB a tenant at most
MAX_ASKED_AT_ONCE: Final = 10_000
"""Topic ids of one lookup. If a request has more unknown ids, the remaining ones count as ids of foreign topics."""
MAX_GROUP_BYTES: Final = 1_024  # of a stored group id and protocol type: 1 MB a connection at most
REGEX_TOPICS: Final = "topic_regex_topics"
REGEXES: Final = "topic_regexes"
REGEX_ANSWERS: Final = "topic_regex_answers"
TOPIC_IDS: Final = "topic_ids"
ASKED_IDS: Final = "topic_ids_asked"
DISGUISES: Final = "topic_id_disguises"
FETCH_SESSIONS: Final = "fetch_sessions"
CURSORS: Final = "topic_cursors"
PROTOCOLS: Final = "group_protocols"
MAX_ENTRIES: Final = {
    # Members that subscribe by a regular expression, per cluster and tenant, so that no tenant evicts members of
    # others. An evicted member keeps its topics, and sees new ones again after it has rejoined.
    REGEXES: 10_000,
    REGEX_ANSWERS: 64,  # patterns last sent instead of the clients' own, per cluster: 4 MB at most
    TOPIC_IDS: 100_000,  # ids with their names, per cluster: 30 MB at most; an evicted id is looked up again
    ASKED_IDS: 1_000,  # ids without a name that the broker was asked for, per connection, with the time
    DISGUISES: 10_000,  # disguises that need memory to be reversed, per connection: 3 MB at most
    FETCH_SESSIONS: 16,  # per connection; a client has one, and begins another one after an eviction
    CURSORS: 1_000,  # positions of long answers, per cluster and tenant; clients begin again after an eviction
    PROTOCOLS: 1_000,  # groups of one connection; a client is in a few
}


def session_lru(memory: MutableMapping[Any, Any], what: str | tuple[str, bytes]) -> BoundedMap[Any, Any]:
    """Return the map of this name, or of this name and tenant, created on first use."""
    found: BoundedMap[Any, Any] | None = memory.get(what)
    if found is None:
        found = memory[what] = BoundedMap(MAX_ENTRIES[what if isinstance(what, str) else what[0]])
    return found
