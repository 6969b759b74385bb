"""Topic names inside the consumer protocol's bytes change with the direction; bytes of other protocols never do."""

from __future__ import annotations

import struct as binary
from collections.abc import Callable
from typing import Any

import pytest

from kproxy.protocol.codec.structs import encode
from kproxy.protocol.table import layout
from kproxy.session.rewrite.context import MAX_ENTRIES, PROTOCOLS, Context

Through = Callable[..., Any]


def text(name: str) -> bytes:
    return binary.pack(">h", len(name)) + name.encode()


def sticky(*names: str, generation: bytes = b"") -> bytes:
    parts = [text(name) + binary.pack(">iii", 2, 0, 1) for name in names]
    return binary.pack(">i", len(names)) + b"".join(parts) + generation


def subscription(version: int, *names: str, user_data: bytes | None = None, more: bytes = b"") -> bytes:
    """A subscription to these topics, which in versions that say so are owned, too."""
    values: dict[str, Any] = {"topics": list(names), "user_data": user_data}
    if version >= 1:
        values["owned_partitions"] = [{"topic": name, "partitions": [0, 1]} for name in names]
    struct = layout.embedded("consumer_subscription", version)
    return binary.pack(">h", version) + encode(struct, values) + more


def assignment(version: int, *names: str, user_data: bytes | None = None) -> bytes:
    values = {"assigned_partitions": [{"topic": name, "partitions": [3]} for name in names], "user_data": user_data}
    return binary.pack(">h", version) + encode(layout.embedded("consumer_assignment", version), values)


def join(through: Through, version: int, data: bytes, kind: str = "consumer", name: str = "range") -> bytes:
    protocols = [{"name": name, "metadata": data}]
    values = {"group_id": "g", "member_id": "", "protocol_type": kind, "protocols": protocols}
    return bytes(through(11, version, "request", **values)["protocols"][0]["metadata"])


def joined(through: Through, version: int, data: bytes, name: str = "range") -> list[bytes]:
    values: dict[str, Any] = {"protocol_name": name, "leader": "", "member_id": ""}
    if version >= 7:
        values["protocol_type"] = "consumer"
    members = [{"member_id": one, "metadata": data} for one in "ab"]
    return [bytes(one["metadata"]) for one in through(11, version, "response", members=members, **values)["members"]]


def sync(through: Through, version: int, data: bytes, group: str = "g", kind: str | None = None) -> bytes:
    values: dict[str, Any] = {"group_id": group, "member_id": "m"}
    if version >= 5:
        values |= {"protocol_type": kind, "protocol_name": "range"}
    assignments = [{"member_id": "m", "assignment": data}]
    return bytes(through(14, version, "request", assignments=assignments, **values)["assignments"][0]["assignment"])


def synced(through: Through, version: int, data: bytes) -> bytes:
    return bytes(through(14, version, "response", assignment=data)["assignment"])


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 17])
@pytest.mark.parametrize("api_version", [0, 5, 6, 7, 9])
def test_join_group_there_and_back(through: Through, api_version: int, version: int) -> None:
    """Subscriptions of any version go to the broker with its names and to the leader with the client's; what a newer
    version adds is kept."""
    more = b"what version 17 says" if version > 3 else b""
    client, broker = ("orders", "clicks-1", "other"), ("prod.orders", "prod.clicks-1", "other")
    ours, theirs = (
        binary.pack(">h", version) + subscription(min(version, 3), *names, more=more)[2:] for names in (client, broker)
    )
    assert join(through, api_version, ours) == theirs
    assert joined(through, api_version, theirs) == [ours, ours]


@pytest.mark.parametrize("api_version", [0, 3, 4, 5])
def test_sync_group_there_and_back(through: Through, api_version: int) -> None:
    """The protocol type is that of the JoinGroup before, or of the message itself where it carries one."""
    join(through, 4, subscription(0, "orders"))
    ours, theirs = assignment(1, "orders", "x", user_data=b"u"), assignment(1, "prod.orders", "x", user_data=b"u")
    assert sync(through, api_version, ours) == theirs
    assert synced(through, api_version, theirs) == ours
    assert synced(through, api_version, b"") == b""


def test_other_protocols_pass(through: Through, context: Context) -> None:
    """Connect's bytes stay, even if they could be read as the consumer protocol's."""
    data = subscription(0, "orders")
    assert join(through, 5, data, kind="connect") == data
    assert joined(through, 5, data) == [data, data]
    assert sync(through, 3, assignment(0, "orders")) == assignment(0, "orders")
    assert synced(through, 3, assignment(0, "prod.orders")) == assignment(0, "prod.orders")
    assert not context.counters.rewritten


def test_unknown_protocol_type_is_guessed_from_exact_bytes(through: Through, context: Context) -> None:
    """If no message of this connection told the type, only bytes that fill the grammar exactly are rewritten."""
    assert sync(through, 3, assignment(0, "orders"), group="new") == assignment(0, "prod.orders")
    url = b"\x00\x00" + text("http://worker:8083/") + bytes(8)
    assert sync(through, 3, url, group="other") == url
    assert sync(through, 3, assignment(0, "orders") + b"\x00", group="third") == assignment(0, "orders") + b"\x00"
    assert context.counters.events == {}


@pytest.mark.parametrize(
    "data", [b"\x00", b"\xff\xff" + bytes(8), b"\x00\x00\x00\x00\x00\x09", b"\x00\x01\x7f\xff\xff\xff"]
)
def test_bytes_that_cannot_be_read_pass_and_are_counted(through: Through, context: Context, data: bytes) -> None:
    """A consumer group's bytes that follow no version are not ours to refuse."""
    assert join(through, 9, data) == data
    assert context.counters.events == {"group_bytes_unreadable": 1}


def test_version_that_claims_more_than_it_has(through: Through) -> None:
    """Some clients write version 1 and leave owned_partitions out; the topics are found all the same."""
    ours, theirs = (b"\x00\x01" + subscription(0, name)[2:] for name in ("orders", "prod.orders"))
    assert join(through, 2, ours) == theirs


@pytest.mark.parametrize("generation", [b"", b"\x00\x00\x00\x05"])
def test_sticky_assignor_remembers_topics(through: Through, context: Context, generation: bytes) -> None:
    """Its user_data holds names, with a generation behind them or without; that of other assignors is left alone."""
    ours, theirs = sticky("orders", "x", generation=generation), sticky("prod.orders", "x", generation=generation)
    assert join(through, 5, subscription(1, "orders", user_data=ours), name="sticky") == subscription(
        1, "prod.orders", user_data=theirs
    )
    assert joined(through, 7, subscription(1, "prod.orders", user_data=theirs), name="sticky")[0] == subscription(
        1, "orders", user_data=ours
    )
    assert join(through, 5, subscription(1, "orders", user_data=ours)) == subscription(1, "prod.orders", user_data=ours)
    odd = subscription(1, "other", user_data=b"\x00\x00")
    assert join(through, 5, odd, name="sticky") == odd
    assert context.counters.events == {"group_bytes_unreadable": 1}


@pytest.mark.parametrize("version", [0, 3, 5, 6])
def test_describe_groups(through: Through, context: Context, version: int) -> None:
    """Subscriptions and assignments are shown with the client's names, by each group's own type; empty stays."""

    def group(kind: str, name: str) -> dict[str, Any]:
        member = {"member_id": "m", "client_id": "", "client_host": ""}
        members = [
            member | {"member_metadata": subscription(0, name), "member_assignment": assignment(0, name, "orders")},
            member | {"member_metadata": b"", "member_assignment": b""},
        ]
        return {"group_id": "g", "group_state": "", "protocol_type": kind, "protocol_data": "range", "members": members}

    found = through(15, version, "response", groups=[group("consumer", "prod.orders"), group("connect", "prod.orders")])
    for one, name, hidden in ((found["groups"][0], "orders", ()), (found["groups"][1], "prod.orders", ("orders",))):
        first, second = one["members"]
        assert bytes(first["member_metadata"]) == subscription(0, name)
        assert bytes(first["member_assignment"]) == assignment(0, name, *hidden)
        assert bytes(second["member_assignment"]) == b""
    assert context.counters.events == {"topics_hidden": 1}


def test_remembered_groups_are_bounded(through: Through, context: Context) -> None:
    """A client that joins ever new groups does not make a connection's memory grow."""
    for number in range(MAX_ENTRIES[PROTOCOLS] + 50):
        values = {"group_id": f"g{number}", "member_id": "", "protocol_type": "consumer", "protocols": []}
        through(11, 0, "request", **values)
    through(11, 0, "request", group_id="x" * 20_000, member_id="", protocol_type="consumer", protocols=[])
    kept = context.memory[PROTOCOLS]
    assert len(kept) == MAX_ENTRIES[PROTOCOLS]
    assert b"g0" not in kept and b"x" * 20_000 not in kept
