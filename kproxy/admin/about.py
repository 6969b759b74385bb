"""Operations that show the version and the topology."""

from __future__ import annotations

import os
import platform

from kproxy.core.addresses import controller_id
from kproxy.distribution import own_version
from kproxy.net.accept.listener import Listener
from kproxy.net.dial.upstream import Upstream
from kproxy.net.driven import show
from kproxy.wire.table.releases import RELEASES

from .backend import AnyBackend, Backend, clock
from .models import ClusterShown, ListenerShown, NodeShown, Role, TopologyShown, VersionShown
from .operation import Operation, OperationCall


async def get_version(backend: AnyBackend, call: OperationCall) -> VersionShown:
    return VersionShown(
        kproxy=own_version(),
        kafka=RELEASES[-1],
        python=platform.python_version(),
        pid=os.getpid(),
        since=clock(backend.began),
        rules=backend.keeper.store.rule_set.id,
    )


async def get_topology(backend: Backend, call: OperationCall) -> TopologyShown:
    server = backend.server
    listeners = {listener.name: listener for listener in server.listeners}
    return TopologyShown(
        clusters={name: show_cluster(upstream, server.listeners) for name, upstream in server.upstreams.items()},
        listeners={
            name: ListenerShown(
                address=show((listener.config.bind.host, listener.port)),
                cluster=listener.config.cluster,
                tls=listener.tls is not None,
                connections=sum(each.listener is listener for each in server.connections),
            )
            for name, listener in listeners.items()
        },
    )


def show_cluster(upstream: Upstream, listeners: list[Listener]) -> ClusterShown:
    """Return a cluster with its nodes. Controllers are named by ids below -1, see `core.addresses`."""
    known = upstream.topology.nodes
    places = {
        listener.name: listener.server.port_service.known_addresses(listener.name, known)
        for listener in listeners
        if listener.upstream is upstream
    }
    nodes = []
    for node, (host, port) in sorted(known.items()):
        addresses = {listener: show(given[node]) for listener, given in places.items() if node in given}
        broker = node >= 0
        own = node if broker else controller_id(node)
        role: Role = "broker" if broker else "controller"
        nodes.append(NodeShown(id=own, host=host, port=port, role=role, addresses=addresses))
    return ClusterShown(bootstrap=[str(one) for one in upstream.config.bootstrap], nodes=nodes)


OPERATIONS = (
    Operation("GET", "/api/topology", "get_topology", "Clusters with their brokers, and listeners.",
              get_topology, TopologyShown),
    Operation("GET", "/api/version", "get_version", "What is running.", get_version, VersionShown),
)  # fmt: skip
