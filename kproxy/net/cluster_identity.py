"""Cluster identity: whether a config would lead the clients of a listener to another cluster.

Offsets, epochs, topic ids, groups and transactions belong to one cluster. Clients do not notice that their address
leads to another one: they skip records or read them again, and their groups and transactions fail. So clusters that
are reached in another way are asked for their ids, on connections of kproxy's own, before a config is put in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import trio

from kproxy.config.document import Address, ClusterConfig, Config, ListenerConfig
from kproxy.core.cluster import OLD_VERSION, VERSION, brokers_request
from kproxy.errors import ConfigRefused, DecodeError
from kproxy.net.dial.own_connection import own_connection, send_request
from kproxy.net.dial.upstream import Upstream
from kproxy.net.loop.turns import a_few_at_a_time
from kproxy.net.transparent import Route
from kproxy.wire import decode_response
from kproxy.wire.table.api_keys import METADATA

ID_PATIENCE = 3.0
"""Seconds for a server to return the id of its cluster. All servers are asked at the same time."""
LONGEST_ANSWER = 16 << 20
"""Bytes of a Metadata response, which has all brokers of the cluster."""
MOST_SERVERS = 16
"""New bootstrap servers of one cluster that are asked."""
MOST_NAMED = 5
"""Listeners that one message names."""
EFFECTS = (
    "clients would go on with offsets, topic ids, groups and transactions of the old cluster: they skip records or "
    "read them again without an error, or end with GROUP_ID_NOT_FOUND or UNKNOWN_TOPIC_ID"
)
REMEDY = "to accept it: kproxy config apply --allow-cluster-change"

ClusterFate = Literal["kept", "forgotten", "changed"]
"""Fate of the state that is known of a cluster. kept: same id; changed: another id; forgotten: an id is unknown."""

Ends = tuple[Upstream, Upstream]
"""A cluster in the config in force, and the cluster in its place in the new config."""


class Move(NamedTuple):
    """Listener whose cluster is reached in another way in the new config, with the names of both clusters."""

    listener: str
    before: str
    after: str


class Comparison(NamedTuple):
    """Ids that the old cluster and the new servers have returned. Empty: no answer, or no id in it. `shared`: both have
    a server in common."""

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


def is_reached_alike(one: ClusterConfig, other: ClusterConfig) -> bool:
    """Return True if two configs of a cluster lead to the same servers, whatever else differs. A server name can select
    the cluster behind a TLS router."""
    names = [None if each.tls is None else each.tls.server_name for each in (one, other)]
    return one.bootstrap == other.bootstrap and one.dial == other.dial and names[0] == names[1]


def moves(listeners: Iterable[ListenerConfig], clusters: Mapping[str, ClusterConfig], config: Config) -> list[Move]:
    """Return the listeners that lead to other servers in a new config.

    A listener is compared with the former listeners at its address that have a host name in common with it, since
    clients keep the address. Without one it is compared with its namesake, unless another listener has that address.
    """
    by_name = {one.name: one for one in listeners}
    by_address: dict[object, ListenerConfig] = {}
    for one in by_name.values():
        if one.bind.port:
            by_address.update(dict.fromkeys(addresses(one), one))
    former = {one.name: [by_address[at] for at in addresses(one) if at in by_address] for one in config.listeners}
    taken = {old.name for found in former.values() for old in found}
    found = []
    for one in config.listeners:
        old = former[one.name] or ([by_name[one.name]] if one.name in by_name and one.name not in taken else [])
        found += [Move(one.name, cluster, one.cluster) for cluster in dict.fromkeys(each.cluster for each in old)]
    return [move for move in found if not is_reached_alike(clusters[move.before], config.clusters[move.after])]


def addresses(listener: ListenerConfig) -> list[object]:
    """Return the addresses of a listener for comparison: one for each host name, if it shares its port by name."""
    return [(listener.bind, host) for host in listener.hosts or (None,)]


async def compare(ends: Mapping[tuple[str, str], Ends]) -> dict[tuple[str, str], Comparison]:
    """Ask for the ids of clusters, all at the same time. Takes ID_PATIENCE at most, besides the time for its turn."""
    old_ids: dict[tuple[str, str], str] = {}
    new_ids: dict[tuple[str, str], set[str]] = {pair: set() for pair in ends}

    async def ask_old(pair: tuple[str, str], upstream: Upstream) -> None:
        old_ids[pair] = await cluster_id(upstream)

    async def ask_new(pair: tuple[str, str], upstream: Upstream, server: tuple[str, int] | None) -> None:
        new_ids[pair].add(await cluster_id(upstream, server))

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
        pair: Comparison(old_ids[pair], tuple(sorted(new_ids[pair] - {""})), bool(shared_servers(*both)))
        for pair, both in ends.items()
    }


def shared_servers(old: Upstream, new: Upstream) -> set[Address]:
    """Return the bootstrap servers that lead to the same place in both configs."""
    if not is_reached_alike(old.config, new.config.model_copy(update={"bootstrap": old.config.bootstrap})):
        return set()
    return set(old.config.bootstrap) & set(new.config.bootstrap)


def servers_to_ask(old: Upstream, new: Upstream) -> Sequence[tuple[str, int] | None]:
    """Return the servers to ask for the new id: each that is new, since one of several could lead to another cluster.
    None: any of them."""
    shared = shared_servers(old, new)
    added = [(one.host, one.port) for one in new.config.bootstrap if one not in shared]
    return added[:MOST_SERVERS] or [None]


async def cluster_id(upstream: Upstream, server: tuple[str, int] | None = None) -> str:
    """Return the id of the cluster, from this bootstrap server (None: from any). Empty: no answer within ID_PATIENCE,
    or an answer without an id."""
    route = None if server is None else Route(server)
    with trio.move_on_after(ID_PATIENCE):
        for version in (VERSION, OLD_VERSION):  # brokers before Kafka 2.8 close the connection at the first
            try:
                async with own_connection(upstream, route=route) as sock:
                    frame = await send_request(sock, brokers_request(version), LONGEST_ANSWER)
                read = partial(decode_response, frame, METADATA, version, trailing=True)
                return str((await trio.to_thread.run_sync(read)).body.get("cluster_id") or "")
            except (OSError, DecodeError):
                pass
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
    return "; ".join(texts) + (f"; and {more} more listeners" if more else "")


def describe(move: Move, comparison: Comparison) -> str:
    old, new = comparison.old or "unknown", ", ".join(one[:100] for one in comparison.new) or "unknown"
    where = f"cluster {move.before}" if move.before == move.after else f"clusters {move.before} and {move.after}"
    return f"listener {move.listener} leads to another cluster id ({where}): expected {old[:100]}, got {new}"
