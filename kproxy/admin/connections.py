"""Operations on connections."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from kproxy.net.connection import Connection
from kproxy.net.connection_view import describe
from kproxy.net.driven import ConnectionPhase
from kproxy.net.loop.turns import in_turns

from .backend import Backend, clock
from .long_answer import LongAnswer
from .models import ConnectionShown, ConnectionsShown, CountShown
from .operation import Operation, OperationCall
from .problem import Problem
from .queries import CloseQuery, RecycleQuery


async def list_connections(backend: Backend, call: OperationCall) -> LongAnswer:
    everyone = sorted(open_connections(backend), key=number)
    shown = (show_connection(backend, one) for one in everyone if one.phase is ConnectionPhase.OPEN)
    return LongAnswer(ConnectionsShown(connections=[]), "connections", shown)


async def close_connection(backend: Backend, call: OperationCall) -> ConnectionShown:
    connection = find(backend, call)
    shown = show_connection(backend, connection)
    if call.query.reset:
        connection.end("admin", "closed over the admin API", reset=True)
    else:
        connection.close("admin", "closed over the admin API")
    return shown


async def recycle_connection(backend: Backend, call: OperationCall) -> ConnectionShown:
    connection = find(backend, call)
    shown = show_connection(backend, connection)
    recycle(connection)
    return shown


async def recycle_connections(backend: Backend, call: OperationCall) -> CountShown:
    """Recycle the connections that the query chooses, counted before any is closed."""
    everyone, chosen = call.query.which == "all", list[Connection]()

    def look() -> Iterator[None]:
        for connection in open_connections(backend):
            if everyone or is_outdated(backend, connection):
                chosen.append(connection)
            yield

    await in_turns(look())
    chosen = [
        connection for connection in chosen if connection.leaving is None and connection.phase is ConnectionPhase.OPEN
    ]
    await in_turns(map(recycle, chosen))
    backend.log.info("connections recycled", which=call.query.which, connections=len(chosen))
    return CountShown(connections=len(chosen))


def recycle(connection: Connection) -> None:
    """Answer what is in flight, then close: the client comes back and is bound to the rules that hold then."""
    if connection.phase is ConnectionPhase.OPEN:
        connection.drain(monotonic(), "recycled", "recycled over the admin API")


def open_connections(backend: Backend) -> list[Connection]:
    """Return the connections on which bytes flow; others only wait for the client's end."""
    return [one for one in backend.server.connections if one.phase is ConnectionPhase.OPEN]


def find(backend: Backend, call: OperationCall) -> Connection:
    """Return the open connection that the path names. Raises Problem."""
    text = call.path["id"]
    for connection in open_connections(backend):
        if str(number(connection)) == text:
            return connection
    raise Problem(404, "no_such_connection", f'there is no connection "{text}"')


def number(connection: Connection) -> int:
    """Return a connection's number since the start, which stands for it here and in rules."""
    serial: int = connection.session.number
    return serial


def is_outdated(backend: Backend, connection: Connection) -> bool:
    """Return True if a new connection in its place would be bound to other rules."""
    return connection.session.rules.key != backend.keeper.store.rule_set.bind(connection.facts).key


def show_connection(backend: Backend, connection: Connection) -> ConnectionShown:
    facts, bound = connection.facts, connection.session.rules
    return ConnectionShown(
        id=number(connection),
        cluster=facts.cluster,
        sni=facts.sni,
        certificate=facts.certificate,
        principal=connection.session.identity.principal,
        software=connection.session.identity.software,
        since=clock(connection.since),
        in_flight=connection.session.awaited,
        rules=list(bound.rules),
        version=bound.key,
        outdated=is_outdated(backend, connection),
        leaving=connection.leaving is not None,
        **describe(connection),
    )


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
