"""Requests and responses that are lost: what librdkafka does, and what the broker has in the end.

A response that is lost is the dangerous case: the client does not know that its record is stored, and sends it again.
Without idempotence the record is there twice, with it once.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from kproxy.testing.process import Proxy
from tests.support.wait import until

ONCE = {"match": {"api": "Produce"}, "when": {"once": True}}

LOST_RESPONSES: dict[str, dict[str, Any]] = {
    "drop": {"kind": "drop", "what": "response"},
    "drop-close": {"kind": "drop", "what": "response", "connection": "close"},
    "rst": {"kind": "disconnect", "at": "response", "close_with": "rst"},
    "fin": {"kind": "disconnect", "at": "response", "close_with": "fin"},
    "half": {"kind": "disconnect", "at": "response", "close_with": "half"},
    "truncate": {"kind": "truncate", "fraction": 0.5},
    "truncate-rst": {"kind": "truncate", "bytes": 3, "close_with": "rst"},
    "delay": {"kind": "delay", "delay": "4s", "at": "response"},
    "correlation-id": {"kind": "wrong_correlation_id", "offset": 7},
}
LOST_REQUESTS: dict[str, dict[str, Any]] = {
    "request-drop": {"kind": "drop", "what": "request"},
    "request-drop-close": {"kind": "drop", "what": "request", "connection": "close"},
    "request-rst": {"kind": "disconnect", "close_with": "rst"},
    "request-fin": {"kind": "disconnect", "close_with": "fin"},
    "request-truncate": {"kind": "truncate", "at": "request", "bytes": 20},
    "blackhole": {"kind": "blackhole"},
}
NOT_TOLD = {"drop", "delay", "correlation-id", "request-drop", "blackhole"}
"""Here nothing but its own time-out helps a client."""
TIME_OUT = 1.5

IDEMPOTENT = {f"{name}-idempotent": rule for name, rule in LOST_RESPONSES.items()}
FAULTS: dict[str, dict[str, Any]] = {
    name: {**rule, **ONCE} for name, rule in (LOST_RESPONSES | LOST_REQUESTS | IDEMPOTENT).items()
} | {
    "acks-0": {"kind": "drop", "what": "request", "connection": "continue", "match": {"api": "Produce"}},
    "reader": {"kind": "truncate", "match": {"api": "Fetch"}, "when": {"every": 3}, "bytes": 50, "close_with": "rst"},
}


@pytest.fixture(scope="module")
def written(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What became of one record of each client."""

    def write(topic: str, name: str) -> Any:
        settings = {"client_id": name, "enable_idempotence": name.endswith("-idempotent")}
        if name.removesuffix("-idempotent") in NOT_TOLD:
            settings["socket_timeout_ms"] = int(TIME_OUT * 1000)
        if name == "acks-0":
            settings["acks"] = 0
        return clients.write(faulty.bootstrap, topic, **settings)

    found: dict[str, Future[Any]] = all_at_once(write, [name for name in FAULTS if name != "reader"])
    return found


@pytest.mark.parametrize("fault", LOST_RESPONSES)
def test_a_lost_response_makes_a_duplicate(fault: str, written: Any) -> None:
    """The client sends again and is told that all is well; the broker has the record more than once."""
    outcome = written[fault].result()

    assert outcome.told == [None]
    assert outcome.stored > 1


@pytest.mark.parametrize("fault", LOST_RESPONSES)
def test_a_lost_response_makes_no_duplicate_of_an_idempotent_producer(fault: str, written: Any) -> None:
    """The broker knows the sequence number that comes again."""
    outcome = written[f"{fault}-idempotent"].result()

    assert outcome.told == [None]
    assert outcome.stored == 1


@pytest.mark.parametrize("fault", LOST_REQUESTS)
def test_a_lost_request_is_stored_once(fault: str, written: Any) -> None:
    """The broker has not seen it; the client sends it again."""
    outcome = written[fault].result()

    assert outcome.told == [None]
    assert outcome.stored == 1


@pytest.mark.parametrize("fault", sorted(NOT_TOLD))
def test_a_stalled_connection_costs_the_clients_time_out(fault: str, written: Any) -> None:
    """Nothing tells it, not even the end of the connection. (All others have a time-out of two minutes here.)"""
    assert written[fault].result().seconds > TIME_OUT


def test_a_request_with_acks_0_is_lost_without_a_trace(written: Any) -> None:
    """Its client takes it for sent."""
    outcome = written["acks-0"].result()

    assert outcome.told == [None]
    assert outcome.stored == 0


def test_a_consumer_gets_over_fetches_that_break_off(faulty: Proxy, clients: Any) -> None:
    """Every third Fetch response is cut in its header; all records arrive, each once, in order."""
    (topic,) = clients.topics(1)
    for _ in range(5):
        clients.write(clients.direct, topic, 2)

    values, _ = clients.read(faulty.bootstrap, topic, 10, client_id="reader", fetch_message_max_bytes=100)

    assert values == ["value-0", "value-1"] * 5


def test_every_fault_has_happened(faulty: Proxy, written: Any) -> None:
    """Each of the rules did something."""
    for future in written.values():
        future.result()

    def idle() -> set[str]:
        return {name for name in FAULTS if not faulty.metric("kproxy_rule_applied_total", rule=name)}

    until(lambda: not idle(), 60)  # waiting frames are applied when they go on
    assert idle() == set()
