"""Places of addresses against the protocol's own table."""

from __future__ import annotations

from kproxy.protocol.table import layout, schema
from kproxy.rules.bodies import LISTS, carries_addresses
from kproxy.session.rewrite.addresses import PLACES

FIND_COORDINATOR, DESCRIBE_QUORUM = 10, 55


def test_they_are_where_kproxys_own_addresses_go() -> None:
    """The same APIs, and the same versions of them. DescribeQuorum's are of controllers, and left out for clients."""
    assert set(LISTS) | {FIND_COORDINATOR, DESCRIBE_QUORUM} == set(PLACES)
    for key in PLACES:
        for version in schema.load(key).versions:
            slots = {slot.path for slot in layout.body(key, version, "response").everywhere() if slot.kind == "host"}
            assert carries_addresses(key, version) == bool(slots and key != DESCRIBE_QUORUM)
            if slots and key in LISTS:
                assert slots == {f"{LISTS[key][0]}[].host"}


def test_no_other_api_is_meant() -> None:
    """Also not those that brokers use among themselves."""
    others = {api.key for api in schema.apis()} - set(PLACES)
    assert not any(carries_addresses(key, version) for key in others for version in schema.load(key).versions)
