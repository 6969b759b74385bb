"""Names in configs and ACLs are topic names only where their type says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.session.rewrite.context import Context

Through = Callable[..., Any]
TOPIC, GROUP, BROKER, ANY = 2, 3, 4, 1
LITERAL, PREFIXED, MATCH = 3, 4, 2


@pytest.mark.parametrize(
    ("key", "version", "direction", "array"),
    [
        (32, 1, "request", "resources"), (32, 4, "response", "results"), (33, 0, "request", "resources"),
        (33, 2, "response", "responses"), (44, 1, "request", "resources"), (44, 0, "response", "responses"),
    ],
)  # fmt: skip
def test_configs_of_topics(through: Through, key: int, version: int, direction: str, array: str) -> None:
    """Resource type 2 is a topic; a broker or a group that is called the same is not."""
    client, broker = (TOPIC, "orders"), (TOPIC, "prod.orders")
    one, other = (client, broker) if direction == "request" else (broker, client)
    resources = [(BROKER, "orders"), one, (32, "orders"), (TOPIC, "")]
    rows = [{"resource_type": kind, "resource_name": name} for kind, name in resources]
    for row in rows:
        row |= {"configuration_keys": None} if (key, direction) == (32, "request") else {}
    found = through(key, version, direction, **{array: rows})
    names = [(row["resource_type"], row["resource_name"]) for row in found[array]]
    assert names == [(BROKER, "orders"), other, (32, "orders"), (TOPIC, "")]


def test_listed_resources_may_be_topics(through: Through, context: Context) -> None:
    """ListConfigResources names the type after the name; version 0 lists client metrics only."""
    rows = [("prod.orders", TOPIC), ("orders", TOPIC), ("orders", 16), ("prod.clicks-", TOPIC)]
    listed = [{"resource_name": name, "resource_type": kind} for name, kind in rows]
    found = through(74, 1, "response", config_resources=listed)["config_resources"]
    assert [row["resource_name"] for row in found] == ["orders", "orders", "clicks-"]
    assert context.counters.events == {"topics_hidden": 1}
    plain = through(74, 0, "response", config_resources=[{"resource_name": "prod.orders"}])
    assert plain["config_resources"][0]["resource_name"] == "prod.orders"


def creation(kind: int, name: str, pattern: int = LITERAL) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "principal": "", "host": ""}


def test_creations(through: Through, context: Context) -> None:
    """What has no counterpart is created under no name, which the broker refuses for that entry alone."""
    creations = [
        creation(TOPIC, "orders"),
        creation(TOPIC, "*"),
        creation(GROUP, "orders"),
        creation(TOPIC, "clicks-a", PREFIXED),
        creation(TOPIC, "ord", PREFIXED),
        creation(TOPIC, "prod.orders"),
        creation(GROUP, "ord", PREFIXED),
    ]
    found = through(30, 3, "request", creations=creations)["creations"]
    assert [one["resource_name"] for one in found] == [
        "prod.orders", "*", "orders", "prod.clicks-a", "", "", "ord"
    ]  # fmt: skip
    assert context.counters.events == {"acl_prefix_straddles": 1, "topics_unreachable": 1}


def test_creation_in_version_0_is_literal(through: Through) -> None:
    """Patterns came with version 1."""
    row = {"resource_type": TOPIC, "resource_name": "orders", "principal": "", "host": ""}
    assert through(30, 0, "request", creations=[row])["creations"][0]["resource_name"] == "prod.orders"


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "asked"),
    [
        (TOPIC, "orders", LITERAL, "prod.orders"),
        (TOPIC, "orders", MATCH, "prod.orders"),
        (TOPIC, "*", LITERAL, "*"),
        (TOPIC, None, ANY, None),
        (TOPIC, "clicks-", PREFIXED, "prod.clicks-"),
        (TOPIC, "c", PREFIXED, "!c"),
        (TOPIC, "prod.orders", LITERAL, "!prod.orders"),
        (GROUP, "orders", LITERAL, "orders"),
        (ANY, "orders", LITERAL, "orders"),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_filters(through: Through, version: int, kind: int, name: str | None, pattern: int, asked: str | None) -> None:
    """Describing and deleting ask for the broker's names; what has no counterpart matches nothing."""
    row = {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern}
    described = through(29, version, "request", **row)
    assert described["resource_name_filter"] == asked
    deleted = through(31, version, "request", filters=[row, row])
    assert [one["resource_name_filter"] for one in deleted["filters"]] == [asked, asked]


def test_found_acls(through: Through, context: Context) -> None:
    """Answers show the client's names; ACLs of hidden topics, and of prefixes that mean more, are left out."""
    rows = [
        (TOPIC, "prod.orders", LITERAL),
        (TOPIC, "orders", LITERAL),
        (TOPIC, "prod.", PREFIXED),
        (TOPIC, "prod.clicks-x", PREFIXED),
        (TOPIC, "*", LITERAL),
        (GROUP, "prod.orders", LITERAL),
    ]
    acls = [{"resource_type": kind, "resource_name": name, "pattern_type": pattern} for kind, name, pattern in rows]
    shown = [(TOPIC, "orders"), (TOPIC, "clicks-x"), (TOPIC, "*"), (GROUP, "prod.orders")]
    described = through(29, 2, "response", resources=[acl | {"acls": []} for acl in acls])["resources"]
    assert [(row["resource_type"], row["resource_name"]) for row in described] == shown
    matching = [acl | {"principal": "", "host": ""} for acl in acls]
    results = through(31, 1, "response", filter_results=[{"matching_acls": matching}, {"matching_acls": []}])
    first, second = results["filter_results"]
    assert [(row["resource_type"], row["resource_name"]) for row in first["matching_acls"]] == shown
    assert second["matching_acls"] == []
    assert context.counters.events == {"topics_hidden": 4}
