"""Operations on the process: version, topology, connections and config.

A config in the body may name files and variables of this machine. So it is accepted only with the full token, where the
admin address requires a token. Without a body, kproxy reads its own config file again.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from json import JSONEncoder
from typing import TYPE_CHECKING, Any, Literal

import trio
from pydantic import Field

from kproxy.base.distribution import own_version
from kproxy.base.errors import ConfigRefused
from kproxy.protocol.table.releases import RELEASES
from kproxy.rules.values.source import Source
from kproxy.runtime.connection_view import MOST_ENDS
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.protocols import HostPort, show
from kproxy.runtime.rule_keeper import DOCUMENTS
from kproxy.session.rewrite.addresses import controller_id

from .guard import JSON
from .models import (
    LONGEST_NUMBER,
    ClusterShown,
    ConnectionShown,
    EndsShown,
    ListenerShown,
    NodeShown,
    Query,
    Shown,
    TopologyShown,
    calendar_time,
)
from .operation import Operation, OperationCall
from .problem import Problem
from .responses import CountedResponse, LongResponse
from .worker_api import no_such_connection

if TYPE_CHECKING:
    from kproxy.app.config.keeper import CheckedConfig, ConfigKeeper

    from .backend import Backend
    from .worker_api import Member


class ConnectionsShown(Shown):
    """Open connections, oldest first."""

    connections: list[ConnectionShown]


class CountShown(Shown):
    """Number of connections that the request was about."""

    connections: int


class VersionShown(Shown):
    """Version of the running program, and of its rules."""

    kproxy: str
    kafka: str = Field(description="newest Kafka release with full protocol support")
    python: str
    pid: int
    since: str = Field(description="ISO 8601")
    rules: str = Field(description="version of the rules in force")


class CloseQuery(Query):
    """Manner of closing a connection."""

    reset: bool = Field(default=False, description="with a reset, and without what still waits to be written")


class RecycleQuery(Query):
    """Choice of the connections to recycle."""

    which: Literal["outdated", "all"] = Field(
        default="outdated", description="those that are bound to other rules than a new one would be, or all"
    )


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
    """Return what any member knows, with the addresses that listeners give to clients."""
    topologies = await backend.ask_members(lambda member: member.topology())
    if not topologies:
        raise Problem(503, "worker_gone", "no worker is running")
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
    """Return an id that is unique among brokers and controllers, see `session.rewrite.addresses`."""
    return node.id if node.role == "broker" else controller_id(node.id)


def nodes_with(addresses: Mapping[str, Mapping[int, HostPort]], known: Mapping[int, NodeShown]) -> Iterator[NodeShown]:
    """Yield the nodes by id, with their addresses at each listener."""
    for node in sorted(known):
        shown_at = {listener: show(at[node]) for listener, at in addresses.items() if node in at}
        yield known[node].model_copy(update={"addresses": shown_at})


ABOUT_OPERATIONS = (
    Operation("GET", "/api/topology", "get_topology", "List clusters, brokers and listeners with their addresses.",
              get_topology, TopologyShown),
    Operation("GET", "/api/version", "get_version", "Return the versions of kproxy, Kafka, Python and the rules.",
              get_version, VersionShown),
)  # fmt: skip


async def list_connections(backend: Backend, call: OperationCall) -> LongResponse:
    lists = await backend.ask_members(lambda member: member.connections())
    connections: Iterator[ConnectionShown] = merge(*lists, key=lambda shown: (shown.since, shown.id))
    return LongResponse(ConnectionsShown(connections=[]), "connections", connections)


async def list_ends(backend: Backend, call: OperationCall) -> EndsShown:
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
    Operation("GET", "/api/connections", "list_connections", "List all open client connections.",
              list_connections, ConnectionsShown, refusals=("too_many_answers",)),
    Operation("GET", "/api/connections/ended", "list_ends", "List the last 100 closed connections with their causes.",
              list_ends, EndsShown),
    Operation("POST", "/api/connections/recycle", "recycle_connections",
              "Drain and close connections, so that clients reconnect under the current rules.",
              recycle_connections, CountShown, RecycleQuery),
    Operation("DELETE", "/api/connections/{id}", "close_connection", "Close a connection immediately.",
              close_connection, ConnectionShown, CloseQuery, refusals=("no_such_connection",)),
    Operation("POST", "/api/connections/{id}/recycle", "recycle_connection",
              "Drain and close a connection.",
              recycle_connection, ConnectionShown, refusals=("no_such_connection",)),
)  # fmt: skip


class StepShown(Shown):
    """Step from the config in force to another one."""

    kind: Literal["added", "removed", "changed", "restart"] = Field(
        description="restart: it holds from a restart on, and is refused, or left as it is with except_restart"
    )
    name: str = Field(description="part of the config, such as listeners.outside")
    where: str = Field(description="file:line:column, the body is <api>; empty for settings outside the document")
    fields: list[str] = Field(description="settings of it that differ")
    effect: str = Field(description="effect on open connections")


class ConfigChangeShown(Shown):
    """Steps to another config."""

    version: str = Field(description="of the config in force")
    steps: list[StepShown] = Field(description="empty: the document equals the config in force")
    not_in_file: list[str] = Field(
        description="settings applied over this API that differ from kproxy's own config file"
    )


class ConfigShown(Shown):
    """Config in force."""

    version: str = Field(description="equal for equal configs; ignores secrets")
    origin: Literal["file", "api"] = Field(description="origin; a config from the API is lost at a restart")
    file: str | None = Field(description="config file of the start; null where kproxy was started with flags")
    not_in_file: list[str] = Field(description="settings that differ in that file")
    applied: int = Field(description="how often the config was changed")
    rejected: int = Field(description="how often one was refused")
    config: dict[str, Any] = Field(description="with defaults and without secrets")


class ApplyQuery(Query):
    """Manner of applying a config."""

    except_restart: bool = Field(default=False, description="settings that need a restart stay as they are")
    allow_cluster_change: bool = Field(
        default=False, description="accept that listeners lead to another cluster, or to one with an unknown id"
    )


def keeper_of(backend: Backend) -> ConfigKeeper:
    """Return the keeper of the config. Raises ConfigRefused if the config is fixed."""
    if backend.configs is None:
        text = "this proxy is part of a program that has made its config, and it does not change while that runs"
        raise ConfigRefused("fixed_config", text)
    return backend.configs


def document_of(backend: Backend, call: OperationCall) -> Source | None:
    """Return the document in the body; None if the body is empty: kproxy reads its own file. A body of comments is a
    document. Raises ConfigRefused."""
    assert isinstance(call.body, Source), "the operation has such a body"
    if call.body.is_yaml and not call.body.has_text:
        return None
    if not call.may_write:
        raise Problem(403, "read_only", "the token is for reading, and a config in the body may name any file")
    if backend.tokens.full is None:
        text = "a config in the body may name any file of this machine, so it is taken only where the admin address "
        raise ConfigRefused("needs_token", f"{text}asks for a token; without a body kproxy reads its own file")
    return call.body


def show_change(keeper: ConfigKeeper, checked: CheckedConfig) -> LongResponse:
    steps = (
        StepShown(kind=step.kind, name=step.name, where=at, fields=list(step.fields), effect=step.effect)
        for step, at in checked.steps
    )
    told = ConfigChangeShown(version=keeper.version, steps=[], not_in_file=checked.not_in_file)
    return LongResponse(told, "steps", steps)


async def get_config(backend: Backend, call: OperationCall) -> CountedResponse:
    """Return the config in force. A thread serializes it, since it may have thousands of listeners."""
    keeper = keeper_of(backend)
    told = ConfigShown(version=keeper.version, origin=keeper.came_by, file=keeper.file, not_in_file=[],
                       applied=keeper.applied, rejected=keeper.rejected, config={})  # fmt: skip
    config = keeper.config

    def written() -> bytes:
        whole = {**told.model_dump(mode="json"), "not_in_file": keeper.not_in_file(), "config": keeper.describe(config)}
        pieces = JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(whole)
        return "".join(pieces).encode()  # `json.dumps` does not yield

    return CountedResponse(await trio.to_thread.run_sync(written, limiter=DOCUMENTS), media_type=JSON)


async def check_config(backend: Backend, call: OperationCall) -> LongResponse:
    keeper = keeper_of(backend)
    return show_change(keeper, await keeper.check(document_of(backend, call)))


async def apply_config(backend: Backend, call: OperationCall) -> LongResponse:
    """Respond once the config is in force. Connections of removed listeners may still be closing."""
    keeper, document = keeper_of(backend), document_of(backend, call)
    came_by: Literal["file", "api"] = "file" if document is None else "api"
    checked = await keeper.apply(
        document, came_by=came_by, except_restart=call.query.except_restart,
        allow_cluster_change=call.query.allow_cluster_change, check=call.check,
    )  # fmt: skip
    return show_change(keeper, checked)


REFUSALS = ("invalid_document", "too_large", "needs_token", "no_config_file", "fixed_config", "too_many_answers")

CONFIG_OPERATIONS = (
    Operation("GET", "/api/config", "get_config", "Return the config in force, without secrets.",
              get_config, ConfigShown,
              refusals=("fixed_config", "too_many_answers")),
    Operation("POST", "/api/config/check", "check_config",
              "List the changes that another config (without a body: kproxy's own file) would make.",
              check_config, ConfigChangeShown, body="document", refusals=REFUSALS, changes=False),
    Operation("POST", "/api/config", "apply_config",
              "Apply another config (without a body: kproxy's own file), completely or not at all.",
              apply_config, ConfigChangeShown, ApplyQuery, "document",
              refusals=(*REFUSALS, "needs_restart", "other_cluster", "unknown_cluster", "ending", "not_everywhere")),
)  # fmt: skip
