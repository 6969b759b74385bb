"""Which responses have a place for an error."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.core.respond import Failure, can_carry, errors_of, fail_each, fails_all, why_not
from kproxy.rules.entity import entities
from kproxy.wire import decode_request, encode
from kproxy.wire.table import schema
from kproxy.wire.table.schema import Api
from tests.support.random_requests import random_request


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_what_is_promised_is_done(api: Api) -> None:
    """If an entity can carry an error, one that fails gets it; if not, there is a reason that names the version."""
    random = Random(api.key)
    for version in api.versions:
        request = decode_request(encode(random_request(api, version, random, full=True)))
        codes = errors_of(request, fail_each(request, dict.fromkeys(entities(request), Failure(9)))).values()
        if can_carry(api.key, version, "entity"):
            assert set(codes) == {9}
        else:
            assert f"{api.name} v{version}" in str(why_not(api.key, version, "entity"))


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
        ("OffsetFetch", 8, False, True),
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
    """At the top, at each entity, or both, as the protocol has it; a request about one thing has it at the top."""
    key = schema.names()[name]

    assert (top, entity) == (can_carry(key, version, "top"), can_carry(key, version, "entity"))


def test_reasons() -> None:
    """A reason says what is missing where, and in which versions it is there."""
    assert why_not(1, 6, "top") == (
        "a response of Fetch v6 has no error code at its top; "
        "versions 7-18 have one at the top, 0-18 have one for each entity"
    )
    assert why_not(35, 2, "entity") == (
        "a response of DescribeLogDirs v2 has no error code for each partition; versions 3-5 have one at the top"
    )
    assert why_not(1, 7, "top") is None


def test_unknown_versions() -> None:
    """A version that the table lacks is a KeyError."""
    with pytest.raises(KeyError):
        can_carry(1, 99, "top")


@pytest.mark.parametrize(
    ("name", "version", "code", "all_"),
    [
        ("Fetch", 11, 70, True),  # FETCH_SESSION_ID_NOT_FOUND
        ("Fetch", 11, 6, False),
        ("Fetch", 6, 70, False),  # no sessions, and no code at the top
        ("OffsetFetch", 7, 30, True),  # GROUP_AUTHORIZATION_FAILED
        ("OffsetFetch", 8, 30, False),  # each group says it
        ("LeaveGroup", 3, 16, True),
        ("LeaveGroup", 3, 25, False),
        ("OffsetCommit", 8, 30, False),
        ("Metadata", 13, 129, True),  # REBOOTSTRAP_REQUIRED
    ],
)
def test_errors_of_all(name: str, version: int, code: int, all_: bool) -> None:
    """Errors that clients look for at the top only are said to fail everything."""
    assert fails_all(schema.names()[name], version, code) is all_
