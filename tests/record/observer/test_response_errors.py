"""The error at the top of a response is read from its first bytes, for the APIs that have it there."""

from __future__ import annotations

from kproxy.protocol.table import schema
from kproxy.record.exchange import NO_ERRORS, Form, Frame, ObservedExchange
from kproxy.record.observer.response_errors import error_at, error_position, errors_of
from kproxy.tools.rehearse.dialogue import defaults, response
from tests.support.capture_files import client


def test_it_is_what_was_written() -> None:
    """For each API and version that has such a place, it is the error code of the body."""
    found = set()
    for api in schema.apis():
        for version in api.versions:
            if error_position(api.key, version) is not None:
                assert "error_code" in defaults(api.key, version, "response")
                frame = response(api.key, version, 5, error_code=-7)
                assert -7 == error_at(api.key, version, frame[:24]), f"{api} v{version}"
                found.add(api.name)

    assert {"Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup", "InitProducerId", "EndTxn", "Fetch", "ApiVersions",
            "SaslAuthenticate", "SaslHandshake", "ConsumerGroupHeartbeat"} <= found  # fmt: skip
    assert not found & {"Produce", "Metadata", "OffsetCommit", "CreateTopics"}


def test_nothing_is_guessed() -> None:
    """A header with tags, a response that is too short, and an unknown API or version have no such place."""
    frame = bytearray(response(12, 4, 5))

    assert 0 == error_at(12, 4, frame)
    assert error_at(12, 4, frame[:14]) is None
    assert error_at(12, 99, frame) is None
    assert error_at(9999, 0, frame) is None
    frame[8] = 1
    assert error_at(12, 4, frame) is None


def test_a_version_that_nobody_knows_has_the_errors_that_are_known() -> None:
    """A whole response of it is not looked into, of whichever API: whoever asks gets what its first bytes told."""
    for api in schema.apis():
        told = Frame(2004, 1.0, 1.0, bytes(2000), Form.WHOLE)
        seen = ObservedExchange(client(), 1, api.key, api.versions.last + 1, 7, "a", None, told, "answered")
        assert errors_of(seen) == NO_ERRORS
