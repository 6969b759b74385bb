"""Operations that show the version and the topology, and those on connections and on captures, files of what passes
that are made while kproxy runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice

from kproxy.base.distribution import own_version
from kproxy.base.errors import FilterError
from kproxy.protocol.table.releases import RELEASES
from kproxy.record.captures.running_captures import CaptureRefused
from kproxy.runtime.connection_view import MOST_ENDS
from kproxy.runtime.driven import HostPort, show
from kproxy.runtime.io.turns import in_turns
from kproxy.session.rewrite.addresses import controller_id

from .backend import Backend
from .capture_store import CaptureQuery, CaptureShown, CapturesShown
from .long_answer import LongAnswer
from .member import Member, no_such_connection
from .models import (
    ClusterShown,
    ConnectionShown,
    ConnectionsShown,
    CountShown,
    EndsShown,
    ListenerShown,
    NodeShown,
    TopologyShown,
    VersionShown,
    calendar_time,
)
from .operation import Operation, OperationCall
from .problem import Problem
from .queries import CloseQuery, RecycleQuery


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
    """Return the id by which a node is told from brokers and controllers alike, see `session.rewrite.addresses`."""
    return node.id if node.role == "broker" else controller_id(node.id)


def nodes_with(addresses: Mapping[str, Mapping[int, HostPort]], known: Mapping[int, NodeShown]) -> Iterator[NodeShown]:
    """Yield the nodes in the order of their ids, with the addresses that each listener gives its clients."""
    for node in sorted(known):
        shown_at = {listener: show(at[node]) for listener, at in addresses.items() if node in at}
        yield known[node].model_copy(update={"addresses": shown_at})


ABOUT_OPERATIONS = (
    Operation("GET", "/api/topology", "get_topology", "Clusters with their brokers, and listeners.",
              get_topology, TopologyShown),
    Operation("GET", "/api/version", "get_version", "What is running.", get_version, VersionShown),
)  # fmt: skip


LONGEST_NUMBER = 20
"""Digits of a connection's number: no more connections are ever opened."""


async def list_connections(backend: Backend, call: OperationCall) -> LongAnswer:
    lists = await backend.ask_members(lambda member: member.connections())
    connections: Iterator[ConnectionShown] = merge(*lists, key=lambda shown: (shown.since, shown.id))
    return LongAnswer(ConnectionsShown(connections=[]), "connections", connections)


async def list_ends(backend: Backend, call: OperationCall) -> EndsShown:
    """Return the last ends of all members together, as many as each remembers."""
    lists = await backend.ask_members(lambda member: member.ends())
    newest = merge(*(one.ended for one in lists), key=lambda shown: shown.ended, reverse=True)
    return EndsShown(ended=[*islice(newest, MOST_ENDS)])


async def close_connection(backend: Backend, call: OperationCall) -> ConnectionShown:
    return await member_of(backend, call).close_connection(call.path["id"], call.query.reset)


async def recycle_connection(backend: Backend, call: OperationCall) -> ConnectionShown:
    return await member_of(backend, call).recycle_connection(call.path["id"])


async def recycle_connections(backend: Backend, call: OperationCall) -> CountShown:
    which = call.query.which
    total = sum(await backend.ask_members(lambda member: member.recycle_connections(which)))
    backend.log.info("connections recycled", which=which, connections=total)
    return CountShown(connections=total)


def member_of(backend: Backend, call: OperationCall) -> Member:
    """Return the member that has the connection which the path names: a connection's number has the member's index as
    its remainder by the number of members. Raises Problem."""
    number = call.path["id"]
    if not number.isdecimal() or len(number) > LONGEST_NUMBER:
        raise no_such_connection(number)
    return backend.members[int(number) % len(backend.members)]


CONNECTION_OPERATIONS = (
    Operation("GET", "/api/connections", "list_connections", "All open client connections.",
              list_connections, ConnectionsShown),
    Operation("GET", "/api/connections/ended", "list_ends", "The last hundred connections that ended, and why.",
              list_ends, EndsShown),
    Operation("POST", "/api/connections/recycle", "recycle_connections",
              "Close connections once what is in flight is answered, so that clients come back under the rules of now.",
              recycle_connections, CountShown, RecycleQuery),
    Operation("DELETE", "/api/connections/{id}", "close_connection", "Close a connection now.",
              close_connection, ConnectionShown, CloseQuery, refusals=("no_such_connection",)),
    Operation("POST", "/api/connections/{id}/recycle", "recycle_connection",
              "Close a connection once what is in flight is answered.",
              recycle_connection, ConnectionShown, refusals=("no_such_connection",)),
)  # fmt: skip


async def list_captures(backend: Backend, call: OperationCall) -> CapturesShown:
    captures = backend.captures
    folder = None if captures.folder is None else str(captures.folder)
    return CapturesShown(folder=folder, captures=await captures.show_all())


async def get_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    return await backend.captures.show(call.path["name"])


async def start_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    try:
        shown = await backend.captures.start(call.query)
    except (CaptureRefused, FilterError) as error:
        raise not_started(error) from None
    backend.log.info("capture started", file=shown.file, payload=shown.payload, filter=shown.filter)
    return shown


async def stop_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    """Answer when the file is whole, or still being written after some seconds."""
    shown = await backend.captures.stop(call.path["name"])
    backend.log.info("capture stopped", file=shown.file, exchanges=shown.exchanges, dropped=shown.dropped)
    return shown


def not_started(error: CaptureRefused | FilterError) -> Problem:
    """Return the problem of a capture that cannot start."""
    if isinstance(error, FilterError):
        return Problem(422, "invalid_query", f"filter: {error}")
    return Problem(422 if error.code == "invalid_query" else 409, error.code, str(error))


CAPTURE_OPERATIONS = (
    Operation("GET", "/api/captures", "list_captures", "All captures.", list_captures, CapturesShown),
    Operation("POST", "/api/captures", "start_capture", "Start to record what passes, in a file of pcapng.",
              start_capture, CaptureShown, CaptureQuery, status=201,
              refusals=("no_captures", "capture_exists", "too_many_captures", "capture_failed")),
    Operation("GET", "/api/captures/{name}", "get_capture", "One capture.", get_capture,
              CaptureShown, refusals=("no_such_capture",)),
    Operation("DELETE", "/api/captures/{name}", "stop_capture", "Stop a capture; its file stays.",
              stop_capture, CaptureShown, refusals=("no_such_capture", "no_captures")),
)  # fmt: skip
