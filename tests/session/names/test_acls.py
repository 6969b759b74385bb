"""ACLs of renamed groups and transactional ids, literal and prefixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TRANSACTIONAL_ID
from kproxy.session.rewrite.context import Context

Through = Callable[..., Any]
TOPIC_TYPE, GROUP_TYPE, CLUSTER, TRANSACTIONAL_TYPE = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


@pytest.fixture
def names() -> NameMaps:
    """Groups `app` and `team-*`, transactional ids `app` and `worker-*`; topics keep their names."""
    return NameMaps(
        groups=NameMap.of({"app": "prod.app", "team-*": "x.team-*"}, space=GROUP),
        transactional_ids=NameMap.of({"app": "blue.app", "worker-*": "blue.worker-*"}, space=TRANSACTIONAL_ID),
    )


ROWS = [
    (GROUP_TYPE, LITERAL, "app", "prod.app"),
    (GROUP_TYPE, PREFIXED, "team-a", "x.team-a"),
    (GROUP_TYPE, PREFIXED, "other", "other"),
    (GROUP_TYPE, LITERAL, "*", "*"),
    (TRANSACTIONAL_TYPE, LITERAL, "app", "blue.app"),
    (TRANSACTIONAL_TYPE, PREFIXED, "worker-", "blue.worker-"),
    (TOPIC_TYPE, LITERAL, "app", "app"),
    (CLUSTER, LITERAL, "kafka-cluster", "kafka-cluster"),
]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("kind", "pattern", "client", "broker"), ROWS)
def test_there_and_back(through: Through, version: int, kind: int, pattern: int, client: str, broker: str) -> None:
    """Created, asked for, and shown."""
    created = {"resource_type": kind, "resource_name": client, "resource_pattern_type": pattern}
    (sent,) = through(30, version, "request", creations=[created | {"principal": "", "host": ""}])["creations"]
    assert (sent["resource_name"], sent["resource_pattern_type"]) == (broker, pattern)
    asked = {"resource_type_filter": kind, "resource_name_filter": client, "pattern_type_filter": pattern}
    assert through(29, version, "request", **asked)["resource_name_filter"] == broker
    assert through(31, version, "request", filters=[asked])["filters"][0]["resource_name_filter"] == broker
    found = {"resource_type": kind, "resource_name": broker, "pattern_type": pattern}
    (shown,) = through(29, version, "response", resources=[found | {"acls": []}])["resources"]
    assert (shown["resource_name"], shown["pattern_type"]) == (client, pattern)
    results = [{"matching_acls": [found | {"principal": "", "host": ""}]}]
    (result,) = through(31, version, "response", filter_results=results)["filter_results"]
    assert [one["resource_name"] for one in result["matching_acls"]] == [client]


def test_what_has_no_counterpart(through: Through, context: Context) -> None:
    """A rename's target and a prefix that straddles are refused when created, match nothing when asked for, and are
    not shown."""
    rows = [(GROUP_TYPE, LITERAL, "prod.app"), (GROUP_TYPE, PREFIXED, "te"), (TRANSACTIONAL_TYPE, PREFIXED, "w")]
    creations = [
        {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "principal": "", "host": ""}
        for kind, pattern, name in rows
    ]
    assert [one["resource_name"] for one in through(30, 3, "request", creations=creations)["creations"]] == [""] * 3
    for kind, pattern, name in rows:
        asked = {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern}
        assert through(29, 3, "request", **asked)["resource_name_filter"] == f"!unreachable:{name}"
    hidden = [(GROUP_TYPE, LITERAL, "app"), (GROUP_TYPE, PREFIXED, "x."), (TRANSACTIONAL_TYPE, PREFIXED, "worker-")]
    found = [
        {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": []}
        for kind, pattern, name in hidden
    ]
    assert through(29, 3, "response", resources=found)["resources"] == []
    assert context.counters.events == {
        "groups_unreachable": 2, "acl_prefix_straddles": 4, "groups_hidden": 2, "transactional_ids_hidden": 1
    }  # fmt: skip


def test_a_filter_for_any_type(through: Through) -> None:
    """One that is spelled alike for all types is said; another stays as it is, since it may mean a topic."""
    for name, sent in (("x", "x"), ("app", "app")):
        row = {"resource_type_filter": ANY, "resource_name_filter": name, "pattern_type_filter": MATCH}
        assert through(29, 3, "request", **row)["resource_name_filter"] == sent


@pytest.mark.parametrize(
    ("key", "version", "array"), [(32, 4, "resources"), (44, 1, "resources"), (33, 2, "resources")]
)
def test_configs_of_groups(through: Through, key: int, version: int, array: str) -> None:
    """Type 32 is a group, which may be called as a topic or a broker is."""
    rows = [{"resource_type": kind, "resource_name": "app"} for kind in (32, 2, 4)]
    for row in rows:
        row |= {"configuration_keys": None} if key == 32 else {"configs": []}
    found = through(key, version, "request", **{array: rows})[array]
    assert [one["resource_name"] for one in found] == ["prod.app", "app", "app"]
