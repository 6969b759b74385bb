"""Frames paired, where some are missing."""

from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.framing import CutFrame
from kproxy.record.captures.connection import MOST_WAITING, ExchangePairing, begins_request
from kproxy.record.exchange import Form, ObservedExchange
from tests.support.capture_files import APIS, client, metadata, produce, request, response


class Heard:
    """Exchanges of one connection, and what has come of them."""

    def __init__(self, *, own: bool = False) -> None:
        self.seen: list[ObservedExchange] = []
        self.exchanges = ExchangePairing(client(), self.seen.append, own=own)

    def ask(self, data: bytes, size: int | None = None, **said: Any) -> None:
        self.exchanges.request(CutFrame((len(data) if size is None else size) + 4, data, 1.0, 1.0), said)

    def tell(self, data: bytes, size: int | None = None, **said: Any) -> None:
        self.exchanges.response(CutFrame((len(data) if size is None else size) + 4, data, 2.0, 2.0), said)

    @property
    def outcomes(self) -> list[tuple[int, str]]:
        return [(one.correlation_id, one.outcome) for one in self.seen]


def beat(number: int) -> bytes:
    return request("Heartbeat", 3, number, {"group_id": "g", "member_id": "m"})


def answer(number: int) -> bytes:
    return response("Heartbeat", 3, number, {})


def test_pairs_are_made_by_correlation_id() -> None:
    """In order; a request that was passed over has no answer, and a response without its request is no exchange."""
    heard = Heard()
    for number in (1, 2, 3, 4):
        heard.ask(beat(number))
    for number in (99, 1, 3):
        heard.tell(answer(number))
    assert [(1, "answered"), (2, "unanswered"), (3, "answered")] == heard.outcomes
    heard.exchanges.end()
    assert (4, "unanswered") == heard.outcomes[-1]
    assert [1, 2, 3, 4] == [one.number for one in heard.seen]
    assert 1 == heard.exchanges.strangers


def test_writes_without_acks() -> None:
    """They are over at once; where acks was not captured the next answer says that none was due."""
    heard = Heard()
    silent, loud = produce(1, acks=0), produce(2, acks=-1)
    assert silent.request and loud.request and loud.response
    heard.ask(silent.request.data)
    assert [(1, "no_answer_due")] == heard.outcomes
    heard.ask(silent.request.data[:12], len(silent.request.data))
    heard.ask(loud.request.data[:12], len(loud.request.data))
    heard.tell(loud.response.data)

    assert [(1, "no_answer_due"), (1, "unanswered"), (2, "answered")] != heard.outcomes
    assert [(1, "no_answer_due"), (1, "no_answer_due"), (2, "answered")] == heard.outcomes
    assert [0, None, None] == [one.acks for one in heard.seen]


def test_frames_without_their_beginning_are_counted() -> None:
    """Less than a header is nothing that could be paired."""
    heard = Heard()
    heard.ask(beat(1)[:7], 100)
    heard.tell(b"\0\0", 100)
    assert ([], 2) == (heard.seen, heard.exchanges.unread)


def test_what_waits_is_bounded() -> None:
    """Requests that nobody answers are given out in the end."""
    heard = Heard()
    for number in range(MOST_WAITING + 5):
        heard.ask(beat(number))
    assert [0, 1, 2, 3, 4] == [one.correlation_id for one in heard.seen]


def test_credentials_of_other_peoples_captures_are_withheld() -> None:
    """Tokens never leave the reader, whole or cut; configs keep all but their values."""
    heard = Heard()
    heard.ask(request("SaslAuthenticate", 2, 1, {"auth_bytes": b"secret"}))
    heard.tell(response("SaslAuthenticate", 2, 1, {"auth_bytes": b"secret"}))
    secret = {"name": "ssl.keystore.password", "value": "secret"}
    broker = {"resource_type": 4, "resource_name": "1", "configs": [secret]}
    data = request("AlterConfigs", 1, 2, {"resources": [broker]})
    heard.ask(data)
    heard.ask(data[:-2], len(data))
    heard.exchanges.end()

    frames = [frame for one in heard.seen for frame in (one.request, one.response) if frame]
    assert 4 == len(frames)
    for frame in frames:
        assert frame.withheld and b"secret" not in frame.data and b"secr" not in frame.data
    assert heard.seen[1].request_body is not None
    assert Form.HEAD is frames[3].form


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "GSSAPI"])
def test_raw_tokens_are_passed_over(mechanism: str) -> None:
    """After SaslHandshake 0 come tokens without headers (KIP-43); the first Kafka frame behind them is found."""
    heard = Heard()
    heard.ask(request("SaslHandshake", 0, 1, {"mechanism": mechanism}))
    heard.tell(response("SaslHandshake", 0, 1, {"error_code": 0, "mechanisms": [mechanism]}))
    rounds = {"PLAIN": 1, "SCRAM-SHA-256": 2, "GSSAPI": 3}[mechanism]
    for _ in range(rounds):
        heard.ask(b"\x60 a token with a secret")
        heard.tell(b"")
    heard.ask(beat(2))
    heard.tell(answer(2))

    assert [(1, "answered"), (2, "answered")] == heard.outcomes
    assert 2 * rounds == heard.exchanges.tokens


def test_a_client_of_kafka_0_9_begins_with_a_token() -> None:
    """GSSAPI without a handshake: its first byte tells."""
    heard = Heard()
    heard.ask(b"\x60\x82 a token")
    heard.tell(b"\x60\x82 another")
    heard.ask(beat(1))
    heard.tell(answer(1))
    assert ([(1, "answered")], 2) == (heard.outcomes, heard.exchanges.tokens)


def test_kproxys_own_captures_have_no_tokens() -> None:
    """What follows SaslHandshake 0 there is Kafka."""
    heard = Heard(own=True)
    heard.ask(request("SaslHandshake", 0, 1, {"mechanism": "PLAIN"}))
    heard.tell(response("SaslHandshake", 0, 1, {"error_code": 0, "mechanisms": ["PLAIN"]}))
    heard.ask(beat(2))
    heard.tell(answer(2))
    assert [(1, "answered"), (2, "answered")] == heard.outcomes


def test_connections_of_other_protocols_are_left_alone() -> None:
    """When the first frame is none of Kafka's nothing on the connection is looked at."""
    heard = Heard()
    heard.ask(b"\x7f\xff and so on")
    heard.ask(beat(1))
    heard.tell(answer(1))
    assert heard.exchanges.alien and not heard.seen


def test_names_are_learnt() -> None:
    """Of topic ids from Metadata answers, of the client's library from ApiVersions 3 (KIP-511)."""
    heard = Heard()
    heard.ask(request("ApiVersions", 3, 1, {"client_software_name": "lib", "client_software_version": "1.2"}))
    heard.tell(response("ApiVersions", 3, 1, {"api_keys": []}))
    topic_id = UUID("12345678-1234-4234-8234-123456789012")
    heard.ask(request("Metadata", 12, 2, {"topics": None}))
    topics = [{"name": "orders", "topic_id": topic_id, "partitions": []}, {"name": "old", "partitions": []}]
    heard.tell(response("Metadata", 12, 2, {"brokers": [], "topics": topics}))

    who = heard.seen[1].who
    assert ("lib", "1.2", "orders") == (who.software_name, who.software_version, who.topic_of(str(topic_id)))
    assert who.topic_of("00000000-0000-0000-0000-000000000000") is None


def test_what_notes_say() -> None:
    """Rules, waits, who answered, how it ended, acks, and who the client has turned out to be."""
    heard = Heard(own=True)
    said = {"rules": ["a"], "responder": "kproxy", "rule_wait": (0.5, 0.0), "other_wait": (0.0, 0.25),
            "who": {"principal": "User:anna"}}  # fmt: skip
    heard.ask(beat(1))
    heard.tell(answer(1), **said)
    heard.ask(beat(2), outcome="closed")
    write = produce(3, acks=0)
    assert write.request
    heard.ask(write.request.data[:12], write.request.size - 4, acks=0)
    heard.exchanges.end()

    one = heard.seen[0]
    assert (["a"], True, (0.5, 0.0), (0.0, 0.25)) == (
        one.rules, one.answered_by_rule, one.rule_wait, one.other_wait
    )  # fmt: skip
    assert "User:anna" == one.who.principal
    assert [(1, "answered"), (3, "no_answer_due"), (2, "closed")] == heard.outcomes


def test_what_looks_like_a_request() -> None:
    """Every API in its first version does; other protocols, lengths that cannot be and unknown APIs do not."""
    for key, api in {api.key: api for api in APIS.values()}.items():
        size = 30 if key != 7 else 12
        assert begins_request(pack(">ihhih", size, key, max(api.versions.first, 0), 1, 6) + b"client")
    seen = metadata()
    assert seen.request
    good = len(seen.request.data).to_bytes(4, "big") + seen.request.data
    assert begins_request(good) and begins_request(good[:12])
    for bad in (b"", good[:11], b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3" + b"x" * 20,
                good[:4] + b"\x03\xe7" + good[6:], good[:6] + b"\0\x7f" + good[8:], b"\0\0\0\7" + good[4:],
                good[:12] + b"\x7f\0" + good[14:], good[:14] + b"\xff" * 6 + good[20:]):  # fmt: skip
        assert not begins_request(bad), bad


def test_a_library_that_no_broker_accepts_has_no_name() -> None:
    """It may be any bytes, which no line of output could hold."""
    heard = Heard()
    heard.ask(request("ApiVersions", 3, 1, {"client_software_name": "lib\udcba", "client_software_version": "1.2"}))
    heard.tell(response("ApiVersions", 3, 1, {"api_keys": []}))

    assert heard.seen[0].who.software_name is None
