"""Messages of a tenant: what belongs to others is not in answers, and what is meant for all is not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, NAMESPACES, Layer, PrefixLayer
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names import name_rewrite

Through = Callable[..., Any]
TOPIC_TYPE, GROUP_TYPE, TRANSACTIONAL_TYPE, CLUSTER, ANY = 2, 3, 5, 4, 1
MATCH, LITERAL, PREFIXED = 2, 3, 4


@pytest.fixture
def names() -> NameMaps:
    """Everything of this client begins with `a.` on the brokers."""
    return NameMaps(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))


def described(names: list[tuple[int, int, str]]) -> list[dict[str, Any]]:
    return [
        {"resource_type": kind, "pattern_type": how, "resource_name": name, "acls": []} for kind, how, name in names
    ]


@pytest.mark.parametrize("version", range(6))
def test_groups_of_others_are_not_listed(through: Through, context: Context, version: int) -> None:
    """Nor is one whose name is a part of the prefix; counted."""
    groups = [
        {"group_id": name, "protocol_type": "consumer"}
        | ({"group_state": "Stable"} if version >= 4 else {})
        | ({"group_type": "classic"} if version >= 5 else {})
        for name in ("a.app", "b.app", "app", "a", "", "a.", "a.!unreachable:x")
    ]
    found = through(16, version, "response", groups=groups)
    assert [one["group_id"] for one in found["groups"]] == ["app", ""]
    assert context.counters.events == {"groups_hidden": 5}


def test_transactions_of_others_are_not_listed(through: Through, context: Context) -> None:
    """With a pattern, those that it does not match are not either."""
    states = [
        {"transactional_id": name, "producer_id": 1, "transaction_state": "Ongoing"}
        for name in ("a.pay-1", "b.pay-1", "a.other", "a.pay-2")
    ]
    through(66, 2, "request", transactional_id_pattern=None)
    found = through(66, 2, "response", transaction_states=states)
    assert [one["transactional_id"] for one in found["transaction_states"]] == ["pay-1", "other", "pay-2"]
    sent = through(66, 2, "request", transactional_id_pattern="pay-[0-9]")
    found = through(66, 2, "response", transaction_states=states)
    assert sent["transactional_id_pattern"] is None
    assert [one["transactional_id"] for one in found["transaction_states"]] == ["pay-1", "pay-2"]
    assert context.counters.events == {"transactional_ids_hidden": 2}


def test_a_bad_pattern_over_transactional_ids_stays_bad(through: Through, context: Context) -> None:
    """The broker says what is wrong; an empty one means all, as it does to the broker."""
    assert through(66, 2, "request", transactional_id_pattern="(")["transactional_id_pattern"] == "*("
    assert through(66, 2, "request", transactional_id_pattern="")["transactional_id_pattern"] == ""
    assert context.counters.events == {"transactional_id_regex_invalid": 1}


@pytest.mark.parametrize("version", range(3))
def test_an_election_of_all_leaders_is_none(through: Through, context: Context, version: int) -> None:
    """It would move leaders of others: the request asks for nothing, the answer says so where it can."""
    assert through(43, version, "request", topic_partitions=None)["topic_partitions"] == []
    if version:
        assert through(43, version, "response", replica_election_results=[])["error_code"] == 31
    context.note = None
    mine = [{"topic": "orders", "partitions": [0]}]
    assert through(43, version, "request", topic_partitions=mine)["topic_partitions"][0]["topic"] == "a.orders"
    if version:
        assert through(43, version, "response", replica_election_results=[])["error_code"] == 0
    assert context.counters.events == {"elect_leaders_refused": 1}


def test_a_star_in_acls_means_all_of_ones_own(through: Through, context: Context) -> None:
    """It is a prefix on the brokers, for every type, and comes back as a star."""
    kinds = (TOPIC_TYPE, GROUP_TYPE, TRANSACTIONAL_TYPE, CLUSTER)
    creations = [
        {"resource_type": kind, "resource_name": "*", "resource_pattern_type": LITERAL, "principal": "", "host": ""}
        for kind in kinds
    ]
    sent = through(30, 3, "request", creations=creations)["creations"]
    assert [(one["resource_name"], one["resource_pattern_type"]) for one in sent] == [("a.", PREFIXED)] * 3 + [
        ("*", LITERAL)
    ]
    rows = [
        (TOPIC_TYPE, PREFIXED, "a."), (GROUP_TYPE, LITERAL, "*"), (TRANSACTIONAL_TYPE, PREFIXED, "a"),
        (GROUP_TYPE, PREFIXED, "a.x"), (TOPIC_TYPE, LITERAL, "b.x"), (CLUSTER, LITERAL, "kafka-cluster"),
    ]  # fmt: skip
    shown = through(29, 3, "response", resources=described(rows))["resources"]
    assert [(one["resource_type"], one["pattern_type"], one["resource_name"]) for one in shown] == [
        (TOPIC_TYPE, LITERAL, "*"), (GROUP_TYPE, PREFIXED, "x"), (CLUSTER, LITERAL, "kafka-cluster")
    ]  # fmt: skip
    assert context.counters.events == {"groups_hidden": 1, "transactional_ids_hidden": 1, "topics_hidden": 1}


def test_a_star_without_patterns_cannot_be_said(through: Through) -> None:
    """CreateAcls 0 has literal names only: the broker refuses the empty one."""
    row = {"resource_type": TOPIC_TYPE, "resource_name": "*", "principal": "", "host": ""}
    assert through(30, 0, "request", creations=[row])["creations"][0]["resource_name"] == ""


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_acls_are_deleted_by_name_only(through: Through, context: Context, version: int) -> None:
    """A filter for any name would reach those of others: it is refused, and the others in the request are not."""
    filters = [(TOPIC_TYPE, None), (TOPIC_TYPE, "x"), (ANY, None), (ANY, "x"), (CLUSTER, None), (GROUP_TYPE, None)]
    rows = [
        {"resource_type_filter": kind, "resource_name_filter": name}
        | ({"pattern_type_filter": LITERAL} if version else {})
        for kind, name in filters
    ]
    sent = through(31, version, "request", filters=rows)["filters"]
    assert [one["resource_name_filter"] for one in sent] == ["!", "a.x", "!", "a.x", None, "!"]
    results = [{"error_code": 0, "error_message": None, "matching_acls": []} for _ in filters]
    found = through(31, version, "response", filter_results=results)["filter_results"]
    assert [one["error_code"] for one in found] == [42, 0, 42, 0, 0, 42]
    assert "give a name" in found[0]["error_message"]
    assert context.counters.events["acl_deletions_refused"] == 3


def test_a_filter_for_any_type_needs_one_spelling(through: Through, names: NameMaps) -> None:
    """Where only topics have the prefix, a name of any type has no counterpart: it matches nothing."""
    row = {"resource_type_filter": ANY, "resource_name_filter": "x", "pattern_type_filter": MATCH}
    assert through(29, 3, "request", **row)["resource_name_filter"] == "a.x"


def test_configs_of_groups(through: Through, context: Context) -> None:
    """Type 32 is a group; others of the cluster are not listed."""
    rows = [("a.app", 32), ("b.app", 32), ("a.orders", 2), ("m", 16), ("1", 4)]
    listed = [{"resource_name": name, "resource_type": kind} for name, kind in rows]
    found = through(74, 1, "response", config_resources=listed)["config_resources"]
    assert [one["resource_name"] for one in found] == ["app", "orders", "m", "1"]
    assert context.counters.events == {"groups_hidden": 1}


def test_a_cursor_at_somebody_elses_topic_tells_no_name(through: Through, context: Context) -> None:
    """It is a number that leads back; a forgotten one, or one that somebody made up, leads to nothing."""
    for name in ("b.secret", "c.secret", "a.mine"):
        found = through(75, 0, "response", topics=[], next_cursor={"topic_name": name, "partition_index": 3})
        assert "secret" not in found["next_cursor"]["topic_name"]
        back = through(75, 0, "request", topics=[], cursor=found["next_cursor"])
        assert back["cursor"] == {"topic_name": name, "partition_index": 3}
    made_up = through(75, 0, "request", topics=[], cursor={"topic_name": "!77", "partition_index": 0})
    assert made_up["cursor"]["topic_name"] == "!77"


def test_internal_topics_are_not_there(through: Through) -> None:
    """Their names mean the tenant's own topics of that name, of which there are none."""
    topics = [{"error_code": 0, "name": name, "partitions": []} for name in ("__consumer_offsets", "a.x")]
    assert [one["name"] for one in through(3, 4, "response", topics=topics)["topics"]] == ["x"]
    asked = through(3, 4, "request", topics=[{"name": "__consumer_offsets"}])
    assert asked["topics"][0]["name"] == "a.__consumer_offsets"
    quorum = through(55, 0, "request", topics=[{"topic_name": "__cluster_metadata", "partitions": []}])
    assert quorum["topics"][0]["topic_name"] == "a.__cluster_metadata"


def test_a_name_that_grows_too_long_reaches_nothing_else(through: Through) -> None:
    """A group id of 32,767 bytes is cut off behind the prefix, never sent without it."""
    sent = through(12, 4, "request", group_id="b." + "x" * 32_765, member_id="m")["group_id"]
    assert sent.startswith("a.b.x") and len(sent) == 32_767


def test_a_renames_target_stays_in_the_tenant(context: Context) -> None:
    """The unreachable name has the prefix, too: two tenants do not meet there."""
    groups = NameMap([Layer.of({"app": "prod"}, GROUP), PrefixLayer(GROUP, b"a.")], GROUP)
    assert name_rewrite(12, 4, "request", NameMaps(groups=groups)) is not None
    assert groups.to_broker(b"prod") == b"a.!unreachable:prod"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_deletion_of_all_that_matches_a_name_is_refused(through: Through, context: Context, version: int) -> None:
    """It would delete what covers more than the tenant, `*` and shorter prefixes; so would what is no name."""
    asked = [(TOPIC_TYPE, "x", MATCH), (GROUP_TYPE, "", MATCH), (ANY, "x", MATCH), (TOPIC_TYPE, "b.x\0", MATCH),
             (TOPIC_TYPE, "x", LITERAL), (TOPIC_TYPE, "x", PREFIXED), (CLUSTER, "x", MATCH), (TOPIC_TYPE, "", LITERAL),
             (TOPIC_TYPE, "b.x\0", LITERAL)]  # fmt: skip
    fields = ("resource_type_filter", "resource_name_filter", "pattern_type_filter")
    rows = [dict(zip(fields, one, strict=True)) for one in asked]
    sent = through(31, version, "request", filters=rows)["filters"]
    assert [one["resource_name_filter"] for one in sent] == ["!"] * 4 + ["a.x", "a.x", "x", "!", "a.!b.x\0"]
    results = [{"error_code": 0, "error_message": None, "matching_acls": []} for _ in asked]
    found = through(31, version, "response", filter_results=results)["filter_results"]
    assert [one["error_code"] for one in found] == [42] * 4 + [0, 0, 0, 42, 0]
    assert context.counters.events["acl_deletions_refused"] == 5


def test_what_is_no_name_is_created_for_nobody(through: Through) -> None:
    """An ACL may be for any text, so what no topic can be called does not pass as it is."""
    row = {"resource_type": TOPIC_TYPE, "resource_name": "b.x\0", "resource_pattern_type": LITERAL, "principal": ""}
    assert through(30, 3, "request", creations=[row | {"host": ""}])["creations"][0]["resource_name"] == ""


TOO_MANY = b"\0\0" + (600_001).to_bytes(4, "big") + b"\0\x08b.secret" + b"\0\x01x" * 600_000 + b"\xff" * 4
NOTHING = bytes(6) + b"\xff" * 4


@pytest.mark.parametrize("data", [TOO_MANY, b"\0\0\0\0\0\2\0\x08b.secret", b"\0"])
def test_bytes_of_the_consumer_protocol_that_cannot_be_read_do_not_leave(through: Through, data: bytes) -> None:
    """A broker that reads them more easily would find names in them."""
    asked = {"group_id": "g", "member_id": "", "protocol_type": "consumer", "session_timeout_ms": 1}
    sent = through(11, 0, "request", **asked, protocols=[{"name": "range", "metadata": data}])
    assert bytes(sent["protocols"][0]["metadata"]) == NOTHING
    other = through(
        11, 0, "request", **asked | {"protocol_type": "connect"}, protocols=[{"name": "x", "metadata": data}]
    )
    assert bytes(other["protocols"][0]["metadata"]) == data


def test_bytes_of_nobody_knows_what_are_read_as_brokers_would(through: Through) -> None:
    """An assignment with something behind it, in a version that does not say what it is."""
    inside = b"\0\0\0\0\0\1\0\x01x\0\0\0\1\0\0\0\0" + b"\xff" * 4 + b"more"
    body = {"group_id": "g", "member_id": "m", "generation_id": 1}
    sent = through(14, 2, "request", **body, assignments=[{"member_id": "m", "assignment": inside}])
    assert bytes(sent["assignments"][0]["assignment"]) == inside.replace(b"\0\x01x", b"\0\x03a.x")
