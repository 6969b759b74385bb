"""Other names: always the same for the same, in every field that can hold them."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.record.captures.redact import NAMED, Pseudonyms


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("client_id", "etl", "client-1"), ("member_id", "etl-0a1b", "member-1"), ("principal", "alice", "user-1"),
        ("principal", "User:alice", "User:user-1"), ("principal", "User:*", "User:*"),
        ("principal", "User:ANONYMOUS", "User:ANONYMOUS"),
        ("host", "kafka-1.prod", "host-1"), ("host", "172.16.0.9", "10.0.0.1"), ("host", "2001:db8::1", "fd00::1"),
        ("acl_host", "*", "*"), ("client_address", "/172.16.0.9", "/10.0.0.1"), ("app_host", "", ""),
        ("quota_entity_name", "somebody", "entity-1"), ("quota_entity_name", "172.16.0.9", "10.0.0.1"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_name(kind: str, text: str, expected: str) -> None:
    """By its kind; what means anybody stays."""
    assert Pseudonyms().of(kind, text) == expected


def test_the_same_name_is_the_same_everywhere() -> None:
    """Also where another kind of field names the same."""
    names = Pseudonyms()
    assert [names.client("a"), names.client("b"), names.client("a")] == ["client-1", "client-2", "client-1"]
    assert [names.of("quota_entity_name", "b"), names.principal("User:x"), names.principal("x")] == [
        "client-2", "User:user-1", "user-1",
    ]  # fmt: skip
    assert (names.address("1.2.3.4"), names.of("client_address", "/1.2.3.4")) == ("10.0.0.1", "/10.0.0.1")
    assert (names.host_port("kafka-1:9092"), names.host_port("[2001:db8::1]:9092"), names.host("kafka-1")) == (
        "host-1:9092", "fd00::1:9092", "host-1",
    )  # fmt: skip


def test_every_kind_is_one_of_the_table() -> None:
    """So that a new spelling there does not pass unseen."""
    kinds = {
        slot.kind
        for api in schema.apis()
        for version in api.versions
        for direction in ("request", "response")
        for slot in layout.body(api.key, version, direction).everywhere()
    }

    assert set(NAMED) <= kinds | {"client_id"}


def test_no_field_with_such_a_name_is_forgotten() -> None:
    """What is called host, client id, principal, user or member id in the table is of one of these kinds."""
    words = ("host", "client_id", "principal", "user", "member_id", "entity_name")
    other = {"principal_type", "owner_principal_type", "token_requester_principal_type"}  # `User`, as a rule
    found = {
        (slot.name, slot.kind)
        for api in schema.apis()
        for version in api.versions
        for direction in ("request", "response")
        for slot in layout.body(api.key, version, direction).everywhere()
        if slot.type == "string" and any(word in slot.name for word in words) and slot.name not in other
    }

    assert {name for name, kind in found if kind not in NAMED} == set()


def test_a_unix_socket_is_one_name() -> None:
    """Nothing of its path is left."""
    assert Pseudonyms().host_port("unix:/run/secret/b1.sock") == "host-1"
