"""Faults of single frames: what becomes of the bytes, and on which side."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol import decode_response, encode
from kproxy.protocol.records import Record, check_crc, encode_batch, entries
from kproxy.rules.exchange import Close, Delay, Drop, Edit, FrameDepth, Reframe, Repeat, Swap

PRODUCE, FETCH, METADATA, HANDSHAKE = 0, 1, 3, 17


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def answered(exchange: Any) -> bytes:
    """The response as it would leave."""
    return sized(encode(exchange.response))


def asked(exchange: Any) -> bytes:
    """The request as it would leave."""
    return sized(encode(exchange.request))


def reframed(hand: Any, text: str, exchange: Any, side: str = "response") -> tuple[bytes, str | None]:
    """What leaves instead of the frame, and what becomes of the connection."""
    effect = hand.effect(hand.rule(text))
    act, other = effect.on_response, effect.on_request
    frame = answered(exchange) if side == "response" else asked(exchange)
    if side == "request":
        act, other = other, act
    assert other(exchange, (), 0.0) == ()
    (decision,) = act(exchange, (), 0.0)
    assert isinstance(decision, Reframe)
    return decision.change(frame), decision.then


@pytest.fixture
def metadata(hand: Any) -> Any:
    """An exchange in a flexible version, with something in both bodies."""
    node = {"node_id": 1, "host": "b1.example.com", "port": 9092, "rack": None}
    return hand.exchange(METADATA, 12, {"topics": []}, {"brokers": [node], "cluster_id": "cluster"})


# ---- headers are enough


def test_a_delay_is_drawn_for_each_frame(hand: Any, metadata: Any) -> None:
    """The same ones with the same seed, on the side that was said."""
    rule = hand.rule("kind: delay, delay: {uniform: [1s, 2s]}, at: response")
    first, second = hand.effect(rule, "7"), hand.effect(rule, "7")
    other = hand.effect(rule, "8")

    def delays(effect: Any) -> list[float]:
        return [one.seconds for _ in range(4) for one in effect.on_response(metadata, (), 0.0)]

    found = delays(first)
    assert len(set(found)) == 4
    assert found == delays(second) != delays(other)
    assert first.on_request(metadata, (), 0.0) == ()
    assert hand.effect(hand.rule("kind: delay, delay: 1s")).on_request(metadata, (), 0.0) == (Delay(1.0),)


def test_a_seed_of_its_own_counts(hand: Any, metadata: Any) -> None:
    """Whatever the rule set's is."""
    rule = hand.rule("kind: delay, delay: {uniform: [1s, 2s]}, seed: 5")

    assert hand.effect(rule, "7").on_request(metadata, (), 0.0) == hand.effect(rule, "8").on_request(metadata, (), 0.0)


def test_draws_can_be_those_of_each_connection(hand: Any) -> None:
    """Then concurrent connections do not move each other's chances."""
    rule = hand.rule("kind: delay, delay: {uniform: [1s, 2s]}, when: {count_scope: connection}")
    effect = hand.effect(rule)
    a, b = (hand.exchange(METADATA, 9, connection=hand.connection(number)) for number in (1, 2))

    first = [effect.on_request(each, (), 0.0) for each in (a, a, b, a)]
    assert first[0] == first[2] != first[1]

    rule = hand.rule("kind: delay, delay: {uniform: [1s, 2s]}, when: {count_scope: client}")
    effect, again = hand.effect(rule), hand.effect(rule)
    a, b = (hand.exchange(METADATA, 9, client_id=name) for name in "ab")
    mixed = [effect.on_request(each, (), 0.0) for each in (a, b, a)]
    assert mixed[0] != mixed[1]
    assert [mixed[0], mixed[2]] == [again.on_request(a, (), 0.0) for _ in range(2)]


@pytest.mark.parametrize(
    ("text", "side", "decision"),
    [
        ("kind: drop", "response", Drop("stall")),
        ("kind: drop, what: request, connection: close", "request", Drop("close")),
        ("kind: disconnect", "request", Close("fin")),
        ("kind: disconnect, at: response, close_with: rst", "response", Close("rst")),
        ("kind: disconnect, close_with: half", "request", Close("half")),
    ],
)
def test_a_frame_is_lost_or_the_connection(text: str, side: str, decision: Any, hand: Any, metadata: Any) -> None:
    rule = hand.rule(text)
    effect = hand.effect(rule)
    decided = {"request": effect.on_request, "response": effect.on_response}

    assert {each: act(metadata, (), 0.0) for each, act in decided.items()} == {
        side: (decision,), "request" if side == "response" else "response": (),
    }  # fmt: skip
    assert rule.depth(side, METADATA, 12) == FrameDepth.HEADER


# ---- framing


@pytest.mark.parametrize(("how", "length"), [("bytes: 10", 10), ("fraction: 0.5", 0), ("bytes: 1GB", -1)])
def test_a_truncated_frame_is_its_beginning_and_the_end(how: str, length: int, hand: Any, metadata: Any) -> None:
    """At least one byte is missing, and the connection is closed behind it."""
    whole = answered(metadata)
    frame, then = reframed(hand, f"kind: truncate, {how}, close_with: rst", metadata)

    assert frame == whole[: {10: 10, 0: len(whole) // 2, -1: -1}[length]]
    assert then == "rst"


def test_a_request_can_be_truncated_towards_the_broker(hand: Any, metadata: Any) -> None:
    """By half if nothing is said."""
    whole = asked(metadata)

    assert reframed(hand, "kind: truncate, at: request", metadata, "request") == (whole[: len(whole) // 2], "fin")


def test_a_short_body_keeps_the_header_and_a_right_size(hand: Any, metadata: Any) -> None:
    """Also when nothing of the body is left."""
    whole = answered(metadata)
    body = len(whole) - 9  # size, correlation id, no tags
    half, then = reframed(hand, "kind: short_body", metadata)

    assert half == sized(whole[4 : 9 + body // 2])
    assert then is None
    assert reframed(hand, "kind: short_body, bytes: 0", metadata)[0] == sized(whole[4:9])
    assert reframed(hand, "kind: short_body, bytes: 1MB", metadata)[0] == whole


def test_a_short_request_keeps_its_whole_header(hand: Any, metadata: Any) -> None:
    """Client id and tags included."""
    frame, _ = reframed(hand, "kind: short_body, bytes: 0, at: request", metadata, "request")

    assert frame == sized(asked(metadata)[4 : 4 + 8 + 2 + len("tester") + 1])


@pytest.mark.parametrize("length", [-5, 0, 2**31 - 1])
def test_a_bad_length_changes_nothing_else(length: int, hand: Any, metadata: Any) -> None:
    """Four bytes."""
    frame, then = reframed(hand, f"kind: bad_length, length: {length}", metadata)

    assert frame == length.to_bytes(4, "big", signed=True) + answered(metadata)[4:]
    assert then is None


@pytest.mark.parametrize(("offset", "number"), [(7, 16), (-1, 8), (-10, 0xFFFFFFFF), (2147483647, 0x80000008)])
def test_a_correlation_id_is_another_one(offset: int, number: int, hand: Any, metadata: Any) -> None:
    """Nine in these exchanges; 32 bits with wrap."""
    frame, _ = reframed(hand, f"kind: wrong_correlation_id, offset: {offset}", metadata)
    whole = answered(metadata)

    assert frame == whole[:4] + number.to_bytes(4, "big") + whole[8:]


def test_responses_are_repeated_and_swapped(hand: Any, metadata: Any) -> None:
    """The session does it; they have to be there whole."""
    twice, later = hand.rule("kind: duplicate_response, times: 2"), hand.rule("kind: reorder_responses")

    assert hand.effect(twice).on_response(metadata, (), 0.0) == (Repeat(2),)
    assert hand.effect(later).on_response(metadata, (), 0.0) == (Swap(),)
    assert twice.depth("response", METADATA, 12) == later.depth("response", METADATA, 12) == FrameDepth.BODY
    assert twice.depth("request", METADATA, 12) == later.depth("request", METADATA, 12) == FrameDepth.NOTHING


def test_trailing_bytes_are_zeros_and_counted_in_the_size(hand: Any, metadata: Any) -> None:
    """On either side."""
    assert reframed(hand, "kind: trailing_bytes", metadata)[0] == sized(answered(metadata)[4:] + bytes(4))
    to_broker, _ = reframed(hand, "kind: trailing_bytes, bytes: 2, at: request", metadata, "request")
    assert to_broker == sized(asked(metadata)[4:] + bytes(2))


def test_an_unknown_tag_is_one_more_field(hand: Any, metadata: Any) -> None:
    """Behind those that are there; what is encoded can be read."""
    metadata.response.body["_tagged_fields"] = [(5, b"a"), (20000, b"b")]

    assert hand.effect(hand.rule("kind: unknown_tag, bytes: 3")).on_response(metadata, (), 0.0) == (Edit(),)
    read = decode_response(encode(metadata.response), METADATA, 12)
    assert read.body["_tagged_fields"] == [(5, b"a"), (9999, bytes(3)), (20000, b"b")]


def test_versions_without_tags_are_left_alone(hand: Any) -> None:
    """The rule is not about them."""
    rule = hand.rule("kind: unknown_tag, at: request")

    assert rule.depth("request", METADATA, 12) == FrameDepth.BODY
    assert rule.depth("request", METADATA, 8) == rule.depth("response", METADATA, 12) == FrameDepth.NOTHING


# ---- bits


def different_bits(one: bytes, other: bytes) -> list[int]:
    """Their places."""
    assert len(one) == len(other)
    return [
        8 * index + bit for index, (a, b) in enumerate(zip(one, other, strict=True)) for bit in range(8)
        if (a ^ b) << bit & 0x80
    ]  # fmt: skip


@pytest.mark.parametrize(("where", "first", "last"), [("header", 4, 9), ("body", 9, 1000)])
def test_bits_are_flipped_where_it_was_said(where: str, first: int, last: int, hand: Any, metadata: Any) -> None:
    """So many different ones, the same with the same seed, and never in the size."""
    text = f"kind: corrupt, where: {where}, bits: 5"
    frame, then = reframed(hand, text, metadata)
    bits = different_bits(frame, answered(metadata))

    assert len(bits) == 5
    assert all(8 * first <= bit < 8 * last for bit in bits)
    assert reframed(hand, text, metadata)[0] == frame
    assert then is None


def test_more_bits_than_there_are_are_all(hand: Any, metadata: Any) -> None:
    """Every bit of the header is another."""
    frame, _ = reframed(hand, "kind: corrupt, where: header, bits: 1000", metadata)

    assert len(different_bits(frame, answered(metadata))) == 8 * 5


def batch(text: bytes) -> bytes:
    return encode_batch([Record(0, 0, None, text)])


def test_corrupted_records_have_a_wrong_checksum(hand: Any) -> None:
    """One batch in each partition that matches; offset, length and checksum stay as they are."""
    data = batch(b"first") + batch(b"second")
    parts = [{"partition_index": number, "records": data} for number in (0, 1, 2)]
    parts[2]["records"] = None
    found = [{"topic": "orders", "partitions": parts}]
    asked = [{"topic": "orders", "partitions": [{"partition": number} for number in (0, 1, 2)]}]
    exchange = hand.exchange(FETCH, 12, {"topics": asked}, {"responses": found})
    effect = hand.effect(hand.rule("kind: corrupt, where: records, bits: 3, match: {topic: orders, partition: 1}"))
    matched = [entity for entity in exchange.entities if entity.partition == 1]

    assert effect.on_response(exchange, matched, 0.0) == (Edit(),)

    zero, one, two = exchange.response.body["responses"][0]["partitions"]
    assert (zero["records"], two["records"]) == (data, None)
    assert len(different_bits(one["records"], data)) == 3
    wrong = 0
    for entry, whole in zip(entries(one["records"]), entries(data), strict=True):
        assert entry.raw[:21] == whole.raw[:21]
        try:
            check_crc(entry)
        except RecordsError:
            wrong += 1
    assert wrong == 1


def test_a_response_without_records_stays_as_it_is(hand: Any) -> None:
    """There is nothing to corrupt, which is said by deciding nothing."""
    exchange = hand.exchange(FETCH, 12, {}, {"responses": []})

    assert hand.effect(hand.rule("kind: corrupt, where: records")).on_response(exchange, (), 0.0) == ()


def test_records_are_in_one_of_the_two_frames(hand: Any) -> None:
    """Of a Produce the request, of a Fetch the response; other APIs have none."""
    rule = hand.rule("kind: corrupt, where: records")
    only = hand.rule("kind: corrupt, where: records, at: request")

    assert [rule.side(key) for key in (PRODUCE, FETCH, 78, METADATA)] == ["request", "response", "response", None]
    assert [only.side(key) for key in (PRODUCE, FETCH, 78, METADATA)] == ["request", None, None, None]
    assert [rule.depth("request", key, 11) for key in (PRODUCE, FETCH)] == [FrameDepth.BODY, FrameDepth.NOTHING]


def test_produced_records_can_be_corrupted(hand: Any) -> None:
    """The broker finds out."""
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": batch(b"x" * 50)}]}
    exchange = hand.exchange(PRODUCE, 9, {"topic_data": [topic]})

    assert hand.effect(hand.rule("kind: corrupt, where: records")).on_request(exchange, (), 0.0) == (Edit(),)
    (entry,) = entries(exchange.request.body["topic_data"][0]["partition_data"][0]["records"])
    with pytest.raises(RecordsError, match="crc"):
        check_crc(entry)


# ---- mistakes and warnings


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("kind: truncate, bytes: 5, fraction: 0.1", 'expected either "bytes" or "fraction", got both'),
        ("kind: short_body, bytes: 5, fraction: 0.1", 'expected either "bytes" or "fraction", got both'),
        ("kind: truncate, fraction: 1.0", "expected less than 1, got 1.0"),
        ("kind: bad_length, length: 2147483648", "expected less than 2147483648, got 2147483648"),
        ("kind: bad_length", '"length" is missing'),
        ("kind: wrong_correlation_id, offset: 0", "an offset of 0 would change nothing"),
        ("kind: duplicate_response, times: 0", "expected at least 1, got 0"),
        ("kind: unknown_tag, tag: 3", "expected at least 100, got 3"),
        ("kind: unknown_tag, match: {api: SaslHandshake}", "no version of SaslHandshake has tagged fields"),
        ("kind: unknown_tag, match: {api: [Fetch, 47]}", "no version of 47 has tagged fields"),
        ("kind: unknown_tag, match: {api: Fech}", 'unknown API "Fech", did you mean "Fetch"?'),
        ("kind: corrupt, bits: 0", "expected at least 1, got 0"),
        ("kind: corrupt, where: records, match: {api: Metadata}", "there are no records here: records are in Produce"),
        ("kind: corrupt, where: records, at: response, match: {api: Produce}", "there are no records at response here"),
        ("kind: drop, connection: hang", "expected one of stall, close, continue"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, mistake: str, mistakes_of: Any) -> None:
    """With the reason."""
    (found,) = mistakes_of(text)

    assert found.startswith(mistake)


def test_a_response_that_does_not_exist_is_warned_of(hand: Any) -> None:
    """A Produce with acks=0 has none."""
    text = "kind: {}, match: {{api: Produce, acks: 0}}"

    assert "acks=0" in next(iter(hand.rule(text.format("truncate")).warnings()))
    assert list(hand.rule(text.format("truncate, at: request")).warnings()) == []
    assert list(hand.rule("kind: truncate, match: {acks: all}").warnings()) == []


def test_going_on_without_a_response_is_warned_of(hand: Any) -> None:
    """No broker does that."""
    assert any("connection: continue" in line for line in hand.rule("kind: drop, connection: continue").warnings())
