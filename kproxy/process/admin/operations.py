"""Operations of the API where several workers have what they are about.

Rules and what is running are the supervisor's; connections are asked for where they are. A connection's number says
that: it has the worker's index as its remainder by the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from kproxy.admin.api import OPERATIONS
from kproxy.admin.captures import CaptureShown, CapturesShown, not_started
from kproxy.admin.long_answer import LongAnswer
from kproxy.admin.models import (
    ClusterShown,
    ConnectionShown,
    ConnectionsShown,
    CountShown,
    ListenerShown,
    NodeShown,
    TopologyShown,
)
from kproxy.admin.operation import Operation, OperationCall
from kproxy.admin.problem import Problem
from kproxy.admin.tail import room_for_another, wanted_by
from kproxy.core.addresses import controller_id
from kproxy.errors import FilterError
from kproxy.net.driven import HostPort, show
from kproxy.net.loop.turns import in_turns
from kproxy.sinks.captures import CaptureRefused, NoSuchCapture

from .messages import Operate
from .pool_backend import PoolBackend, shown
from .pool_captures import PoolCapture
from .pool_tail import PoolTail


async def list_connections(backend: PoolBackend, call: OperationCall) -> LongAnswer:
    connections = [one for each in await backend.operate_all("list_connections", {}) for one in each["connections"]]
    connections.sort(key=lambda one: (one["since"], one["id"]))
    return LongAnswer(ConnectionsShown(connections=[]), "connections", (ConnectionShown(**one) for one in connections))


async def close_connection(backend: PoolBackend, call: OperationCall) -> ConnectionShown:
    return await one_connection(backend, call, "close_connection")


async def recycle_connection(backend: PoolBackend, call: OperationCall) -> ConnectionShown:
    return await one_connection(backend, call, "recycle_connection")


async def one_connection(backend: PoolBackend, call: OperationCall, name: str) -> ConnectionShown:
    """Have the worker of the connection do the operation. Raises Problem."""
    text = call.path["id"]
    if not text.isdecimal():
        raise Problem(404, "no_such_connection", f'there is no connection "{text}"')
    answer = await backend.operate(
        int(text) % len(backend.pool.workers), Operate(name, dict(call.path), query_of(call))
    )
    return ConnectionShown(**shown(answer))


async def recycle_connections(backend: PoolBackend, call: OperationCall) -> CountShown:
    answers = await backend.operate_all("recycle_connections", query_of(call))
    return CountShown(connections=sum(one["connections"] for one in answers))


async def get_topology(backend: PoolBackend, call: OperationCall) -> TopologyShown:
    """Answer with what any worker knows; where clients reach nodes is known to the supervisor, who has the ports."""
    topologies: list[TopologyShown] = []
    answers = await backend.operate_all("get_topology", {})
    await in_turns(map(topologies.append, (TopologyShown(**topology) for topology in answers)))
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
        known = {number(node): node for topology in topologies for node in topology.clusters[name].nodes}
        places = {node: (shown.host, shown.port) for node, shown in known.items()}
        addresses = {
            listener: backend.addresses(listener, places)
            for listener, listener_shown in listeners.items()
            if listener_shown.cluster == name
        }
        nodes: list[NodeShown] = []
        await in_turns(map(nodes.append, nodes_with(addresses, known)))
        clusters[name] = ClusterShown(bootstrap=cluster.bootstrap, nodes=nodes)
    return TopologyShown(clusters=clusters, listeners=listeners)


def number(node: NodeShown) -> int:
    """Return the id by which a node is told from brokers and controllers alike, see `core.addresses`."""
    return node.id if node.role == "broker" else controller_id(node.id)


def nodes_with(addresses: Mapping[str, Mapping[int, HostPort]], known: Mapping[int, NodeShown]) -> Iterator[NodeShown]:
    """Yield the nodes in the order of their ids, with the addresses that each listener gives its clients."""
    for node in sorted(known):
        shown_at = {listener: show(at[node]) for listener, at in addresses.items() if node in at}
        yield known[node].model_copy(update={"addresses": shown_at})


async def tail(backend: PoolBackend, call: OperationCall) -> Response:
    """Answer with a stream. Raises Problem for a bad filter, and when too many listen already."""
    wanted = wanted_by(call)
    room_for_another(len(backend.listeners))
    return PoolTail(backend, call.query.filter, wanted)


async def list_captures(backend: PoolBackend, call: OperationCall) -> CapturesShown:
    captures = backend.captures
    await captures.look()
    folder = None if captures.folder is None else str(captures.folder)
    return CapturesShown(folder=folder, captures=[one.shown() for one in captures.by_name.values()])


async def get_capture(backend: PoolBackend, call: OperationCall) -> CaptureShown:
    await backend.captures.look()
    return find_capture(backend, call).shown()


async def start_capture(backend: PoolBackend, call: OperationCall) -> CaptureShown:
    try:
        capture = await backend.captures.start(call.query)
    except (CaptureRefused, FilterError) as error:
        raise not_started(error) from None
    shown = capture.shown()
    backend.log.info("capture started", file=shown.file, payload=shown.payload, filter=shown.filter)
    return shown


async def stop_capture(backend: PoolBackend, call: OperationCall) -> CaptureShown:
    """Answer when the file is whole."""
    capture = find_capture(backend, call)
    await backend.captures.stop(capture)
    shown = capture.shown()
    backend.log.info("capture stopped", file=shown.file, exchanges=shown.exchanges, dropped=shown.dropped)
    return shown


def find_capture(backend: PoolBackend, call: OperationCall) -> PoolCapture:
    """Return the capture that the path names. Raises Problem."""
    try:
        return backend.captures[call.path["name"]]
    except NoSuchCapture as error:
        raise Problem(404, "no_such_capture", str(error)) from None


def query_of(call: OperationCall) -> dict[str, Any]:
    """Return the query, as it can be sent."""
    query: dict[str, Any] = call.query.model_dump()
    return query


HANDLES: Mapping[str, Any] = {
    one.__name__: one
    for one in (
        list_connections,
        close_connection,
        recycle_connection,
        recycle_connections,
        get_topology,
        tail,
        list_captures,
        get_capture,
        start_capture,
        stop_capture,
    )
}
POOL_OPERATIONS: tuple[Operation, ...] = tuple(
    replace(one, handle=HANDLES.get(one.name, one.handle)) for one in OPERATIONS
)
"""The same API."""
