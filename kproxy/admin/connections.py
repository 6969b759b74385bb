"""Operations on connections."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from .backend import Backend
from .long_answer import LongAnswer
from .member import Member, no_such_connection
from .models import ConnectionShown, ConnectionsShown, CountShown
from .operation import Operation, OperationCall
from .queries import CloseQuery, RecycleQuery

LONGEST_NUMBER = 20
"""Digits of a connection's number: no more connections are ever opened."""


async def list_connections(backend: Backend, call: OperationCall) -> LongAnswer:
    lists = await backend.ask_members(lambda member: member.connections())
    connections: Iterator[ConnectionShown] = merge(*lists, key=lambda shown: (shown.since, shown.id))
    return LongAnswer(ConnectionsShown(connections=[]), "connections", connections)


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


NAMED = ("no_such_connection",)

OPERATIONS = (
    Operation("GET", "/api/connections", "list_connections", "All open client connections.",
              list_connections, ConnectionsShown),
    Operation("POST", "/api/connections/recycle", "recycle_connections",
              "Close connections once what is in flight is answered, so that clients come back under the rules of now.",
              recycle_connections, CountShown, RecycleQuery),
    Operation("DELETE", "/api/connections/{id}", "close_connection", "Close a connection now.",
              close_connection, ConnectionShown, CloseQuery, refusals=NAMED),
    Operation("POST", "/api/connections/{id}/recycle", "recycle_connection",
              "Close a connection once what is in flight is answered.",
              recycle_connection, ConnectionShown, refusals=NAMED),
)  # fmt: skip
