"""Frames that are not as they should be: what librdkafka makes of them, and what is stored."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from kproxy.testing.process import Proxy

PRODUCE = {"match": {"api": "Produce"}, "when": {"once": True}}
FETCH = {"match": {"api": "Fetch"}}

WRITERS: dict[str, dict[str, Any]] = {
    "length-negative": {"kind": "bad_length", "length": -5, **PRODUCE},
    "length-huge": {"kind": "bad_length", "length": 2147483647, **PRODUCE},
    "short-body": {"kind": "short_body", "fraction": 0.5, **PRODUCE},
    "trailing-bytes": {"kind": "trailing_bytes", "bytes": 4, **PRODUCE},
    "twice": {"kind": "duplicate_response", **PRODUCE},
    "tags": {"kind": "unknown_tag", "match": {"api": ["Produce", "Metadata"]}},
    "tags-request": {"kind": "unknown_tag", "match": {"api": ["Produce", "Metadata"]}, "at": "request"},
    "trailing-request": {"kind": "trailing_bytes", "at": "request", **PRODUCE},
    "short-request": {"kind": "short_body", "at": "request", **PRODUCE},
    "length-request": {"kind": "bad_length", "at": "request", "length": -5, **PRODUCE},
    "records-request": {"kind": "corrupt", "where": "records", "seed": 1, **PRODUCE},
    "header": {"kind": "corrupt", "where": "header", "bits": 2, "seed": 1, **PRODUCE},
}
READERS: dict[str, dict[str, Any]] = {
    "read-records": {
        "kind": "corrupt",
        "where": "records",
        "bits": 3,
        "seed": 1,
        "match": {"api": "Fetch"},
        "when": {"first": 3},
    },
    "read-trailing": {"kind": "trailing_bytes", **FETCH},
    "read-twice": {"kind": "duplicate_response", "times": 2, **FETCH},
    "read-tags": {"kind": "unknown_tag", **FETCH},
    "read-short": {"kind": "short_body", "match": {"api": "Fetch"}, "when": {"once": True}},
    "read-length": {"kind": "bad_length", "length": -5, "match": {"api": "Fetch"}, "when": {"once": True}},
}
# Corrupted records have a seed: another bit may be the one that makes a batch transactional, which brokers see first.
FAULTS = WRITERS | READERS
VALUES = [f"value-{number}" for number in range(5)]


@pytest.fixture(scope="module")
def written(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What became of one record of each client."""
    found: dict[str, Future[Any]] = all_at_once(
        lambda topic, name: clients.write(faulty.bootstrap, topic, client_id=name, socket_timeout_ms=3000), WRITERS
    )
    return found


@pytest.fixture(scope="module")
def read(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What each client read of five records, and the errors on the way."""

    def act(topic: str, name: str) -> Any:
        clients.write(clients.direct, topic, len(VALUES))
        return clients.read(faulty.bootstrap, topic, len(VALUES), client_id=name, check_crcs=True)

    found: dict[str, Future[Any]] = all_at_once(act, READERS)
    return found


@pytest.mark.parametrize(
    ("fault", "error"), [("length-negative", "_BAD_MSG"), ("length-huge", "_BAD_MSG"), ("short-body", "_UNDERFLOW")]
)
def test_a_response_that_cannot_be_read_fails_a_record_that_is_stored(fault: str, error: str, written: Any) -> None:
    """The false negative: librdkafka does not send again, and tells the application that it has failed."""
    outcome = written[fault].result()

    assert outcome.told == [error]
    assert outcome.stored == 1


@pytest.mark.parametrize("fault", ["trailing-bytes", "twice", "tags", "tags-request", "trailing-request"])
def test_what_is_too_much_is_passed_over(fault: str, written: Any) -> None:
    """By the client, and by the broker: bytes and fields at the end, a second copy of a response."""
    outcome = written[fault].result()

    assert outcome.told == [None]
    assert outcome.stored == 1


@pytest.mark.parametrize("fault", ["short-request", "length-request", "records-request"])
def test_a_broken_request_is_refused_and_sent_again(fault: str, written: Any) -> None:
    """The broker closes the connection, or says CORRUPT_MESSAGE where only the records are broken."""
    outcome = written[fault].result()

    assert outcome.told == [None]
    assert outcome.stored == 1


def test_a_broken_header_is_an_answer_to_nothing(written: Any) -> None:
    """Its correlation id is another one: the client times out, and sends again what is stored."""
    outcome = written["header"].result()

    assert outcome.told == [None]
    assert outcome.stored > 1


def test_records_with_a_wrong_checksum_are_fetched_again(read: Any) -> None:
    """The application hears of each, and loses nothing."""
    values, errors = read["read-records"].result()

    assert values == VALUES
    assert errors
    assert set(errors) == {"_BAD_MSG"}


@pytest.mark.parametrize("fault", [name for name in READERS if name != "read-records"])
def test_a_consumer_gets_over_broken_fetches(fault: str, read: Any) -> None:
    """All values, each once, in order. The application may hear of a length that cannot be."""
    values, errors = read[fault].result()

    assert values == VALUES
    assert set(errors) <= ({"_BAD_MSG"} if fault == "read-length" else set())


def test_every_fault_has_happened(faulty: Proxy, written: Any, read: Any) -> None:
    """What is passed over above was there."""
    for future in (*written.values(), *read.values()):
        future.result()

    assert {name for name in FAULTS if not faulty.metric("kproxy_rule_applied_total", rule=name)} == set()
