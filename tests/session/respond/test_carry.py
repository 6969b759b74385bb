"""Which responses have a place for an error."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.protocol import decode_request, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.schema import Api
from kproxy.rules.entity import entities
from kproxy.rules.kinds.base.access import can_say
from kproxy.session.respond import Failure, errors_of, fail_each
from tests.support.random_requests import random_request


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_what_is_promised_is_done(api: Api) -> None:
    """If an entity can carry an error, one that fails gets it."""
    random = Random(api.key)
    for version in api.versions:
        request = decode_request(encode(random_request(api, version, random, full=True)))
        codes = errors_of(request, fail_each(request, dict.fromkeys(entities(request), Failure(9)))).values()
        assert (set(codes) == {9}) == can_say(api.key, version, "entity")


@pytest.mark.parametrize(
    ("name", "version", "top", "entity"),
    [
        ("Produce", 9, False, True),
        ("Fetch", 6, False, True),
        ("Fetch", 7, True, True),
        ("Metadata", 12, False, True),
        ("Metadata", 13, True, True),
        ("JoinGroup", 5, True, True),
        ("OffsetFetch", 1, False, True),
        ("OffsetFetch", 2, True, True),
        ("OffsetFetch", 8, True, True),
        ("LeaveGroup", 3, True, True),
        ("DescribeLogDirs", 2, False, False),
        ("DescribeLogDirs", 3, True, False),
        ("ListPartitionReassignments", 0, True, False),
        ("UpdateFeatures", 1, True, True),
        ("UpdateFeatures", 2, True, False),
        ("ListGroups", 0, True, True),
    ],
)
def test_where_codes_are(name: str, version: int, top: bool, entity: bool) -> None:
    """At the top, or that of each group, at each entity, or both; a request about one thing has it at the top."""
    key = schema.names()[name]

    assert (top, entity) == (can_say(key, version, "top"), can_say(key, version, "entity"))
