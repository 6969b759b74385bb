"""client_rack: which requests get a rack, and which are left as they are."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.protocol.codec.structs import encode
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import NEW_HEARTBEATS
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.tools.rehearse.dialogue import Dialogue, request
from kproxy.tools.rehearse.explain.evaluate import of_connection
from kproxy.tools.rehearse.explain.target import of_api

FETCH, JOIN_GROUP, API_VERSIONS = 1, 11, 18
SOFTWARE = {"client_software_name": "tester", "client_software_version": "1"}
RULE = "kind: client_rack\nrack: euc1-az1"
ZONE = "euc1-az1"
WITH_RACK = [version for version in schema.load(FETCH).versions if version >= 11]
JOININGS = [(key, version) for key in sorted(NEW_HEARTBEATS) for version in schema.load(key).versions]


@pytest.mark.parametrize("version", WITH_RACK)
def test_a_fetch_without_a_rack_gets_one(dialogue: Any, version: int) -> None:
    """The first one, and those that are like it; one that says a rack keeps it. Clients that do not say which library
    they are may not know of followers."""
    talk = dialogue(RULE)
    assert talk.ask(FETCH, version, rack_id="")["rack_id"] == ""
    talk.ask(API_VERSIONS, 3, **SOFTWARE)

    assert [talk.ask(FETCH, version, rack_id=rack)["rack_id"] for rack in ("", "", "mine", "", "mine")] == [
        ZONE, ZONE, "mine", ZONE, "mine"
    ]  # fmt: skip
    assert talk.talk.shared.counters.rewritten["racks"] == 3


@pytest.mark.parametrize("version", [version for version in schema.load(FETCH).versions if version < 11])
def test_a_fetch_of_old_passes(dialogue: Any, version: int) -> None:
    """Versions before 11 have no rack."""
    assert "rack_id" not in dialogue(RULE).ask(FETCH, version)


@pytest.mark.parametrize(("key", "version"), JOININGS)
@pytest.mark.parametrize(
    ("epoch", "said", "sent"),
    [(0, None, ZONE), (0, "", ZONE), (0, "mine", "mine"), (5, None, None), (5, "mine", "mine"), (-1, None, None)],
)
def test_a_member_that_joins_gets_one(
    dialogue: Any, key: int, version: int, epoch: int, said: str | None, sent: str | None
) -> None:
    """By the newer protocols null means "as before" in every heartbeat but the first."""
    assert dialogue(RULE).ask(key, version, member_epoch=epoch, rack_id=said)["rack_id"] == sent


def subscription(version: int, **fields: Any) -> bytes:
    """A subscription in this version; one that is newer than the table is its newest with bytes behind."""
    newest = schema.embedded()["consumer_subscription"].versions.last
    struct = layout.embedded("consumer_subscription", min(version, newest))
    data = version.to_bytes(2, "big") + encode(struct, struct.defaults() | {"topics": ["orders"]} | fields)
    return data + (b"\0\0\0\7" if version > newest else b"")


@pytest.mark.parametrize("version", schema.load(JOIN_GROUP).versions)
def test_subscriptions_get_one_from_version_3_on(dialogue: Any, version: int) -> None:
    """Where it is null or empty; older ones are not raised, newer ones keep what is behind it."""
    given = {
        "old": subscription(2), "none": subscription(3, rack_id=None), "empty": subscription(3, rack_id=""),
        "own": subscription(3, rack_id="mine"), "new": subscription(5, rack_id=None), "bad": b"\0\3junk",
    }  # fmt: skip
    asked = dialogue(RULE).ask(
        JOIN_GROUP, version, protocol_type="consumer",
        protocols=[{"name": name, "metadata": data} for name, data in given.items()],
    )  # fmt: skip

    assert {protocol["name"]: protocol["metadata"] for protocol in asked["protocols"]} == given | {
        "none": subscription(3, rack_id=ZONE), "empty": subscription(3, rack_id=ZONE),
        "new": subscription(5, rack_id=ZONE),
    }  # fmt: skip


def test_other_protocols_are_left_alone(dialogue: Any) -> None:
    """What Connect's workers say to each other may look like anything."""
    protocols = [{"name": "range", "metadata": subscription(3, rack_id=None)}]

    assert dialogue(RULE).ask(JOIN_GROUP, 9, protocol_type="connect", protocols=protocols)["protocols"] == protocols


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize("kind", ["kind: rename_topic, topics: {orders: prod.orders}", "kind: prefix, prefix: prod."])
def test_names_and_racks_change_together(version: int, kind: str) -> None:
    """In one subscription, and in one Fetch."""
    talk = Dialogue(f"rules: [{{name: n, {kind}}}, {{name: r, kind: client_rack, rack: {ZONE}}}]")
    talk.client(request(API_VERSIONS, 3, 0, **SOFTWARE))
    metadata = subscription(3, rack_id=None)
    talk.client(request(JOIN_GROUP, version, 1, group_id="g", protocol_type="consumer",
                        protocols=[{"name": "range", "metadata": metadata}]))  # fmt: skip
    talk.client(request(FETCH, 12, 2, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}]))

    assert subscription(3, topics=["prod.orders"], rack_id=ZONE) in talk.to_broker
    assert talk.to_broker.endswith(b"\x01\x09euc1-az1\0")
    assert b"\x0cprod.orders" in talk.to_broker


def test_the_first_rule_that_matches_is_taken() -> None:
    """By the network of the client; one of no network gets nothing."""
    rules = parse_rules(
        "rules:\n"
        "- {name: a, kind: client_rack, rack: one, match: {client_address: 10.1.0.0/16}}\n"
        "- {name: b, kind: client_rack, rack: two, match: {client_address: 10.0.0.0/8}}\n"
    )

    found = [rules.bind(Facts("main", "main", address)).rack for address in ("10.1.0.1", "10.2.0.1", "11.0.0.1")]
    assert found == ["one", "two", None]


@pytest.mark.parametrize("rack", ["''", "' a'", r'"a\nb"', "x" * 250])
def test_racks_that_cannot_be_meant_are_refused(mistakes_of: Any, rack: str) -> None:
    """Empty ones, those with blanks around them, and control characters."""
    (mistake,) = mistakes_of(f"kind: client_rack, rack: {rack}")

    assert mistake.startswith("expected a rack of 1 to 249 printable")


def test_a_rule_behind_one_for_everybody_is_refused() -> None:
    """It could never act."""
    with pytest.raises(DocumentError) as caught:
        parse_rules("rules:\n- {name: a, kind: client_rack, rack: one}\n- {name: b, kind: client_rack, rack: two}\n")

    assert 'this rule can never act, "a" says the rack for all connections before it' in str(caught.value)


@pytest.mark.parametrize(("key", "version", "word"), [(FETCH, 10, "never"), (FETCH, 17, "acts"), (0, 9, "never")])
def test_it_can_be_explained(key: int, version: int, word: str) -> None:
    """`kproxy explain` knows which requests have a rack."""
    (rule,) = parse_rules(f"rules: [{{name: r, kind: client_rack, rack: {ZONE}}}]").rules

    assert of_connection(rule, of_api(key, version, {})).word == word
