"""Rows of exchanges for those who look: one value a column, made from the data of the request event.

Rows go out by the thousand, so they are lists; the names of their columns are told once. Whoever reads them goes by
these names: columns may be added at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kproxy.protocol.table.api_keys import FETCH
from kproxy.record.about import errors, software, topics
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import ObservedExchange

from .ring import KeptExchange

COLUMNS = (
    "id", "time", "connection", "client", "api", "version", "about", "records", "request", "response", "latency",
    "broker_ms", "rule_ms", "kproxy_ms", "throttle", "outcome", "errors", "answered_by", "rules", "kept", "max_wait",
    "listener", "address", "principal", "software", "node", "group", "member", "transactional_id", "producer_id",
    "codec", "topic", "partition", "depth", "correlation", "changed", "again_of",
)  # fmt: skip
"""Columns of a row, in its order."""
MOST_TOLD = 10
"""Topics, partitions and resources of one exchange that its row looks at."""
MOST_PARTITIONS = 6
"""Partitions of a topic that a row names."""
LONGEST_ABOUT = 300
"""Characters of what an exchange is about."""

Wall = Callable[[float], float]
"""Turns the times of an exchange into seconds since 1970."""

encode = msgspec.json.Encoder().encode


def exchange_id(process: int, number: int) -> str:
    """Return the id of an exchange: that of the process that kept it, and its number there."""
    return f"{process}-{number}"


def row_of(
    kept: KeptExchange, process: int, wall: Wall, columns: Mapping[str, Any] | None = None, *,
    changed: bool | None = None,
) -> list[Any]:  # fmt: skip
    """Return the row of an exchange that is kept. `columns`: the data of its event, made here if they are not given;
    `changed`: whether other bytes passed at the broker, by default what is known here."""
    seen = kept.seen
    data = request_event(seen, wall, MOST_TOLD) if columns is None else columns
    first = seen.request or seen.response
    time = None if first is None else round(wall(first.first), 6)
    other = kept.behind is not None if changed is None else changed
    name, again_of = exchange_id(process, kept.number), kept.again_of
    return event_row(name, time, data, over=kept.over, wait=max_wait(seen), changed=other, again_of=again_of)


def event_row(
    name: str, time: float | None, data: Mapping[str, Any], *, over: bool = True, wait: int | None = None,
    kept: bool = True, changed: bool = False, again_of: str = "",
) -> list[Any]:  # fmt: skip
    """Return the row of an exchange of which the event is known. `name`: its id. `over`: False while it is under way.
    `wait`: milliseconds that a Fetch may wait at the broker. `kept`: its frames can be asked for. `changed`: other
    bytes passed at the broker. `again_of`: id of the exchange whose request was sent again as this one."""
    topic, partition = first_topic(data)
    about = topics(data, MOST_PARTITIONS)
    return [
        name,
        time,
        data.get("connection"),
        data.get("client_id"),
        data.get("api"),
        data.get("version"),
        about if len(about) <= LONGEST_ABOUT else f"{about[: LONGEST_ABOUT - 1]}…",
        data.get("total_records"),
        data.get("request_bytes"),
        data.get("response_bytes"),
        data.get("latency_ms"),
        data.get("broker_ms"),
        data.get("rule_ms"),
        data.get("wait_ms"),
        data.get("throttle_ms"),
        data.get("outcome") if over else None,
        errors(data),
        data.get("answered_by", ""),
        data.get("rules", []),
        kept,
        wait,
        data.get("listener"),
        f"{data.get('client_address')}:{data.get('client_port')}",
        data.get("principal"),
        software(data),
        data.get("node"),
        data.get("group"),
        data.get("member"),
        data.get("transactional_id"),
        data.get("producer_id", partition.get("producer_id")),
        partition.get("codec"),
        topic.get("topic"),
        partition.get("partition"),
        data.get("depth"),
        data.get("correlation_id"),
        changed,
        again_of or None,
    ]


def first_topic(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the first topic of an event, and its first partition; empty where there is none."""
    topic: Mapping[str, Any] = next(iter(data.get("topics") or ()), {})
    return topic, next(iter(topic.get("partitions") or ()), {})


def max_wait(seen: ObservedExchange) -> int | None:
    """Return for how many milliseconds at most a Fetch lets the broker wait for records; None for all others."""
    body = seen.request_body if seen.key == FETCH else None
    return None if body is None else body.get("max_wait_ms")


def joined(rows: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(rows) + b"]"
