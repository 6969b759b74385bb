"""Operations that show the version and the topology."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping

from kproxy.core.rewrite.addresses import controller_id
from kproxy.distribution import own_version
from kproxy.net.driven import HostPort, show
from kproxy.net.loop.turns import in_turns
from kproxy.wire.table.releases import RELEASES

from .backend import Backend
from .models import ClusterShown, ListenerShown, NodeShown, TopologyShown, VersionShown, calendar_time
from .operation import Operation, OperationCall
from .problem import Problem


async def get_version(backend: Backend, call: OperationCall) -> VersionShown:
    return VersionShown(
        kproxy=own_version(),
        kafka=RELEASES[-1],
        python=platform.python_version(),
        pid=os.getpid(),
        since=calendar_time(backend.began),
        rules=backend.keeper.store.rule_set.id,
    )


async def get_topology(backend: Backend, call: OperationCall) -> TopologyShown:
    """Answer with what any member knows, and where clients reach nodes, which the process with the ports knows."""
    topologies = await backend.ask_members(lambda member: member.topology())
    if not topologies:
        raise Problem(500, "internal", "no worker is running")
    listeners = {
        name: ListenerShown(**{
            **dict(listener), "connections": sum(topology.listeners[name].connections for topology in topologies),
        })
        for name, listener in topologies[0].listeners.items()
    }  # fmt: skip
    clusters = {}
    for name, cluster in topologies[0].clusters.items():
        known = {key_of(node): node for topology in topologies for node in topology.clusters[name].nodes}
        places = {key: (node.host, node.port) for key, node in known.items()}
        addresses = {
            listener: backend.addresses(listener, places)
            for listener, listener_shown in listeners.items()
            if listener_shown.cluster == name
        }
        nodes: list[NodeShown] = []
        await in_turns(map(nodes.append, nodes_with(addresses, known)))
        clusters[name] = ClusterShown(bootstrap=cluster.bootstrap, nodes=nodes)
    return TopologyShown(clusters=clusters, listeners=listeners)


def key_of(node: NodeShown) -> int:
    """Return the id by which a node is told from brokers and controllers alike, see `core.addresses`."""
    return node.id if node.role == "broker" else controller_id(node.id)


def nodes_with(addresses: Mapping[str, Mapping[int, HostPort]], known: Mapping[int, NodeShown]) -> Iterator[NodeShown]:
    """Yield the nodes in the order of their ids, with the addresses that each listener gives its clients."""
    for node in sorted(known):
        shown_at = {listener: show(at[node]) for listener, at in addresses.items() if node in at}
        yield known[node].model_copy(update={"addresses": shown_at})


OPERATIONS = (
    Operation("GET", "/api/topology", "get_topology", "Clusters with their brokers, and listeners.",
              get_topology, TopologyShown),
    Operation("GET", "/api/version", "get_version", "What is running.", get_version, VersionShown),
)  # fmt: skip
