"""Cluster identity: whether a config would lead the clients of a listener to another cluster.

Offsets, epochs, topic ids, groups and transactions belong to one cluster. Clients do not notice that their address
leads to another one: they skip records or read them again, and their groups and transactions fail. So kproxy requests
the ids of clusters with a changed route, on its own connections, before it puts a config in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple

import trio

from kproxy.base.errors import ConfigRefused, DecodeError, plural
from kproxy.protocol import decode_response
from kproxy.protocol.table.api_keys import METADATA
from kproxy.runtime.config.network import ClusterConfig, ListenerConfig, is_reached_alike, plain_name, server_name
from kproxy.runtime.io.scheduler import a_few_at_a_time
from kproxy.runtime.io.socket_io import Route
from kproxy.runtime.upstreams.own_connection import own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.cluster import OLD_VERSION, VERSION, brokers_request

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

ID_PATIENCE = 3.0
"""Seconds for a server to return the id of its cluster."""
MOST_ASKED_AT_ONCE = 50
"""Servers that are asked at the same time: a config may have thousands of clusters, and clients need descriptors."""
LONGEST_COMPARISON = 30.0
"""Seconds for all servers of one config. Those without an answer then have an unknown id."""
LONGEST_ANSWER = 1 << 20
"""Bytes of a Metadata response without topics: some ten thousand brokers."""
MOST_SERVERS = 100
"""New servers of one cluster that are asked."""
FORMER_FOR = 3600.0
"""Seconds during which a removed listener is compared with listeners added at its address."""
MOST_FORMER = 1000
"""Removed listeners that are compared."""
MOST_NAMED = 5
"""Listeners that one message names."""
EFFECTS = (
    "clients would go on with offsets, topic ids, groups and transactions of the old cluster: they skip records or "
    "read them again without an error, or end with GROUP_ID_NOT_FOUND or UNKNOWN_TOPIC_ID"
)
REMEDY = "to accept it: kproxy config apply --allow-cluster-change"

ClusterFate = Literal["kept", "forgotten", "changed"]
"""Fate of the cached state of a cluster. kept: same id; changed: another id; forgotten: an id is unknown."""

Ends = tuple[Upstream, Upstream]
"""A cluster in the config in force, and the cluster in its place in the new config."""


class Move(NamedTuple):
    """Listener with a changed route to its cluster in the new config, and the names of both clusters."""

    listener: str
    before: str
    after: str


class Comparison(NamedTuple):
    """Ids that the old cluster and the new servers have returned. Empty: no answer, or no id in it. `shared`: both have
    a server in common, and no server that was added has returned an id."""

    old: str
    new: tuple[str, ...]
    shared: bool

    @property
    def fate(self) -> ClusterFate:
        if len(self.new) > 1:
            return "changed"
        if not self.old or not self.new:
            return "forgotten"
        return "kept" if self.new == (self.old,) else "changed"


def successions(listeners: Iterable[ListenerConfig], config: Config) -> list[Move]:
    """Return each listener of a new config with the clusters that its clients have reached so far.

    A listener succeeds the former listeners at its address that have a host name in common with it, since clients keep
    the address. Without one it succeeds its namesake, unless another listener has that address.
    """
    by_name = {one.name: one for one in listeners}
    by_address: dict[object, list[ListenerConfig]] = {}
    for one in by_name.values():
        for key in as_former(one):
            by_address.setdefault(key, []).append(one)
    former = {
        one.name: [old for key in as_successor(one) for old in by_address.get(key, ())] for one in config.listeners
    }
    taken = {old.name for found in former.values() for old in found}
    found = []
    for one in config.listeners:
        old = former[one.name] or ([by_name[one.name]] if one.name in by_name and one.name not in taken else [])
        found += [Move(one.name, cluster, one.cluster) for cluster in dict.fromkeys(each.cluster for each in old)]
    return found


class FormerListeners:
    """Removed listeners of clusters in use, since clients still try their addresses.

    `listeners` are by name. Each has its own name for its cluster in `clusters`, since a later config can use the name
    of the cluster again.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.listeners: dict[str, ListenerConfig] = {}
        self.clusters: dict[str, ClusterConfig] = {}
        self.until: dict[str, float] = {}

    def add(self, listeners: Iterable[ListenerConfig], clusters: Mapping[str, ClusterConfig]) -> None:
        """Add listeners for FORMER_FOR seconds, and remove the oldest beyond MOST_FORMER."""
        for one in listeners:
            self.remove(one.name)
            label = f"{one.cluster} of the removed listener {one.name}"
            self.listeners[one.name] = one.model_copy(update={"cluster": label})
            self.clusters[label] = clusters[one.cluster]
            self.until[one.name] = self.clock() + FORMER_FOR
        for name in list(self.until)[:-MOST_FORMER]:
            self.remove(name)

    def remove(self, name: str) -> None:
        if name in self.until:
            del self.clusters[self.listeners.pop(name).cluster], self.until[name]

    def expire(self) -> None:
        for name in [name for name, until in self.until.items() if until <= self.clock()]:
            self.remove(name)


def without_successor(listeners: Iterable[ListenerConfig], config: Config) -> list[ListenerConfig]:
    """Return the newest MOST_FORMER listeners with an address and a name that a new config does not have."""
    kept = {key for one in config.listeners for key in as_successor(one)}
    names = {one.name for one in config.listeners}
    found = [one for one in listeners if one.name not in names and kept.isdisjoint(as_former(one))]
    return found[-MOST_FORMER:]


def moves(found: Iterable[Move], clusters: Mapping[str, ClusterConfig], config: Config) -> list[Move]:
    """Return the successions to a cluster that is reached in another way."""
    return [move for move in found if not is_reached_alike(clusters[move.before], config.clusters[move.after])]


def as_former(listener: ListenerConfig) -> list[object]:
    """Return the keys under which a successor finds this listener: its host names, and all patterns that have them."""
    if not listener.bind.port:
        return []
    names = [wider(host) for host in listener.hosts or (None,)]
    keys: list[object] = [(listener.bind, "equal", one[0]) for one in names]
    return list(dict.fromkeys(keys + [(listener.bind, "wider", host) for one in names for host in one]))


def as_successor(listener: ListenerConfig) -> list[object]:
    """Return the keys of listeners with a host name that this one has: the same one, a wider or a narrower pattern."""
    names = [wider(host) for host in listener.hosts or (None,)]
    keys: list[object] = [(listener.bind, "equal", host) for one in names for host in one]
    return list(dict.fromkeys(keys + [(listener.bind, "wider", one[0]) for one in names]))


def wider(host: str | None) -> list[str | None]:
    """Return a host pattern, and the patterns that have all its names. None: all names."""
    if host is None:
        return [None]
    name = plain_name(host)
    return [name, None] if name.startswith("*.") else [name, f"*.{name.partition('.')[2]}", None]


async def compare(ends: Mapping[tuple[str, str], Ends]) -> dict[tuple[str, str], Comparison]:
    """Ask for the ids of clusters, MOST_ASKED_AT_ONCE at the same time. Takes LONGEST_COMPARISON at most."""
    old_ids: dict[tuple[str, str], str] = {}
    new_ids: dict[tuple[str, str], set[str]] = {pair: set() for pair in ends}
    by_added: set[tuple[str, str]] = set()  # pairs with an id from an added server
    places = trio.CapacityLimiter(MOST_ASKED_AT_ONCE)

    async def ask_old(pair: tuple[str, str], upstream: Upstream) -> None:
        async with places:
            old_ids[pair] = await cluster_id(upstream)

    async def ask_new(pair: tuple[str, str], upstream: Upstream, server: tuple[str, int] | None) -> None:
        async with places:
            found = await cluster_id(upstream, server)
        if found:
            new_ids[pair].add(found)
            by_added.update([pair] if server is not None else [])

    with trio.move_on_after(LONGEST_COMPARISON):
        async with trio.open_nursery() as nursery:

            def begin() -> Iterator[None]:
                for pair, (old, new) in ends.items():
                    nursery.start_soon(ask_old, pair, old)
                    yield
                    for server in servers_to_ask(old, new):
                        nursery.start_soon(ask_new, pair, new, server)
                        yield

            await a_few_at_a_time(begin())
    return {
        pair: Comparison(
            old_ids.get(pair, ""), tuple(sorted(new_ids[pair])), pair not in by_added and bool(shared_servers(*both))
        )
        for pair, both in ends.items()
    }


def shared_servers(old: Upstream, new: Upstream) -> set[tuple[str, int]]:
    """Return the bootstrap servers that lead to the same place in both configs."""
    if server_name(old.config) != server_name(new.config):
        return set()
    both = set(old.config.bootstrap) & set(new.config.bootstrap)
    return {(one.host, one.port) for one in both} - redialled(old, new)


def redialled(old: Upstream, new: Upstream) -> set[tuple[str, int]]:
    """Return the addresses that `dial` leads to another place in the new config."""
    one, other = old.overrides, new.overrides
    return {address for address in {*one, *other} if one.get(address, address) != other.get(address, address)}


def servers_to_ask(old: Upstream, new: Upstream) -> Sequence[tuple[str, int] | None]:
    """Return the servers to ask for the new id. One of several could lead to another cluster, so each bootstrap server
    that is new is asked, and each address of a broker that is dialled elsewhere. None: any bootstrap server."""
    shared = shared_servers(old, new)
    added = [server for one in new.config.bootstrap if (server := (one.host, one.port)) not in shared]
    dialled = sorted(redialled(old, new) - set(added))
    bootstrap: list[tuple[str, int] | None] = [*added] or [None]
    return [*bootstrap, *dialled][:MOST_SERVERS]


async def cluster_id(upstream: Upstream, server: tuple[str, int] | None = None) -> str:
    """Return the id of the cluster, from this bootstrap server (None: from any). Empty: no answer within ID_PATIENCE,
    or an answer without an id."""
    route = None if server is None else Route(server)
    with trio.move_on_after(ID_PATIENCE):
        for version in (VERSION, OLD_VERSION):
            frame = None
            try:
                async with own_connection(upstream, route=route) as sock:
                    with suppress(OSError):  # brokers before Kafka 2.8 close the connection at the first
                        frame = await send_request(sock, brokers_request(version), LONGEST_ANSWER)
            except OSError:  # not reachable, or the login is refused: a second one could lock the user out
                break
            if frame is not None:
                read = partial(decode_response, frame, METADATA, version, trailing=True)
                with suppress(DecodeError):
                    return str((await trio.to_thread.run_sync(read)).body.get("cluster_id") or "")
    return ""


def refuse_moves(found: Mapping[Move, Comparison], in_use: Mapping[str, bool]) -> None:
    """Raise ConfigRefused if a listener would lead to another cluster, or if that cannot be ruled out.

    A cluster that no client has reached yet (`in_use` is False) has no clients that could be moved.
    """
    other = [move for move, each in found.items() if each.fate == "changed"]
    if other:
        raise ConfigRefused("other_cluster", f"{described(other, found)}: {EFFECTS}; {REMEDY}")
    unknown = [
        move for move, each in found.items() if each.fate == "forgotten" and not each.shared and in_use[move.before]
    ]
    if unknown:
        text = f"{described(unknown, found)}: the ids cannot be compared. If it is another cluster, {EFFECTS}"
        raise ConfigRefused("unknown_cluster", f"{text}; {REMEDY}")


def described(listed: Sequence[Move], found: Mapping[Move, Comparison]) -> str:
    """Return the moves for a message, with both ids of each."""
    texts = [describe(move, found[move]) for move in listed[:MOST_NAMED]]
    more = len(listed) - len(texts)
    return "; ".join(texts) + (f"; and {plural(more, 'more listener')}" if more else "")


def describe(move: Move, comparison: Comparison) -> str:
    old, new = comparison.old or "unknown", ", ".join(one[:100] for one in comparison.new) or "unknown"
    where = f"cluster {move.before}" if move.before == move.after else f"clusters {move.before} and {move.after}"
    return f"listener {move.listener} leads to another cluster id ({where}): expected {old[:100]}, got {new}"
