"""Brokers with their addresses in answers: Metadata, DescribeCluster, FindCoordinator, and the node endpoints that
Produce, Fetch and the share APIs carry beside NOT_LEADER_OR_FOLLOWER (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)

LISTS = {
    METADATA: ("brokers", "node_id"),
    DESCRIBE_CLUSTER: ("brokers", "broker_id"),
    PRODUCE: ("node_endpoints", "node_id"),
    FETCH: ("node_endpoints", "node_id"),
    SHARE_FETCH: ("node_endpoints", "node_id"),
    SHARE_ACKNOWLEDGE: ("node_endpoints", "node_id"),
}
"""API → the array of brokers, and the field with their id."""

CONTROLLERS = 2
"""DescribeCluster's endpoint type for answers that list controllers (KIP-919)."""
NO_NODE: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}
"""Fields of a FindCoordinator answer that names no broker."""


def carries_addresses(key: int, version: int) -> bool:
    """Return True if answers of this API and version have addresses of brokers in them."""
    if key not in LISTS and key != FIND_COORDINATOR:
        return False
    return version in layout.kinds(key, "response").get("host", schema.NONE)


def listed(key: int, body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the brokers that an answer lists, in place, and the name of their id's field; none where it lists none."""
    name, field = LISTS.get(key, ("", ""))
    if body.get("endpoint_type") == CONTROLLERS:
        return [], field
    return body.get(name) or [], field


def coordinators(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a FindCoordinator answer; before version 4 the body is the only one."""
    entries: list[dict[str, Any]] | None = body.get("coordinators", [body])
    return entries or []


def addressed(key: int, body: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (node id, the dict with its `host` and `port`) of every broker named in an answer."""
    if key == FIND_COORDINATOR:
        for entry in coordinators(body):
            if entry["node_id"] >= 0:
                yield entry["node_id"], entry
        return
    brokers, field = listed(key, body)
    for entry in brokers:
        yield entry[field], entry
