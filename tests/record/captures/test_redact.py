"""Redacted captures: nothing that users wrote is left, and everything else is as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.records import Batch, Record, check_crc, decode, encode_batch, encode_message_set, entries
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.reader import read
from kproxy.record.captures.redact import Pseudonyms, Redaction, RedactionCounts, redact_records
from kproxy.record.exchange import Form, ObservedExchange
from kproxy.record.observer.records import records_of
from tests.support.exchange_factory import conversation, exchange, orders, record_of, write_capture

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark")]
SECRET = b"s3cr3t"
WRITTEN = [
    Record(5, 1000, SECRET, b"a longer " + SECRET, ((SECRET.decode(), SECRET), ("null", None))),
    Record(6, 1001, None, None),
    Record(7, 1002, b"", SECRET * 9),
]


def blanked(record: Record) -> Record:
    """What it has to become."""
    fill = lambda data: None if data is None else b"x" * len(data)  # noqa: E731
    headers = tuple(("x" * len(name), fill(value)) for name, value in record.headers)
    return Record(record.offset, record.timestamp, fill(record.key), fill(record.value), headers)


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_all_codecs(codec: int) -> None:
    """Same records with fillers of the same lengths, a right checksum, the same header."""
    before, done = encode_batch(WRITTEN, codec=codec), RedactionCounts()
    after = redact_records(memoryview(before), done)

    (old,), (new,) = entries(before), entries(after)
    assert isinstance(old, Batch) and isinstance(new, Batch)
    check_crc(new)
    assert list(decode(new)) == [blanked(record) for record in WRITTEN]
    assert SECRET not in after
    for name in ("base_offset", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
                 "base_sequence", "count", "partition_leader_epoch"):  # fmt: skip
        assert getattr(new, name) == getattr(old, name)
    assert (done.records, done.batches, done.recompressed) == (3, 1, int(codec > 0))
    assert len(after) == len(before) or codec


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets(magic: int) -> None:
    """They too."""
    plain = [Record(one.offset, one.timestamp if magic else -1, one.key, one.value) for one in WRITTEN]
    before = encode_message_set(plain, magic=magic)
    after = redact_records(memoryview(before), RedactionCounts())

    found = [record for entry in entries(after) for record in decode(entry)]
    assert [(one.key, one.value) for one in found] == [(blanked(one).key, blanked(one).value) for one in plain]
    assert (len(after), SECRET in after) == (len(before), False)


def test_what_cannot_be_read_is_filled() -> None:
    """Broken batches, the beginning of one that was cut off, and what is no batch; control batches stay."""
    good = encode_batch(WRITTEN)
    broken = encode_batch(WRITTEN, codec=4)[:61] + SECRET * 4
    broken = broken[:8] + (len(broken) - 12).to_bytes(4, "big") + broken[12:]
    control = encode_batch([Record(9, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True)
    done = RedactionCounts()
    data = broken + control + good[:-7]
    after = redact_records(memoryview(data), done)

    assert (len(after), SECRET in after, done.unreadable) == (len(data), False, 1)
    assert after[:61] == broken[:17] + bytes(4) + broken[21:61]
    assert after[-len(good) + 7 :][:21] == good[:17] + bytes(4)
    assert control in after
    for odd in (SECRET * 2, SECRET * 9):
        assert SECRET not in redact_records(memoryview(odd), done)


@given(st.binary(max_size=200), st.integers(0, 4))
def test_any_bytes_keep_their_length_or_are_batches(data: bytes, codec: int) -> None:
    """Whatever stands behind a batch, nothing raises."""
    batch = encode_batch(WRITTEN, codec=codec)
    after = redact_records(memoryview(batch + data), RedactionCounts())

    assert SECRET not in after


# ---- frames


def captured(seen: ObservedExchange) -> ObservedExchange:
    """As if it came from a capture."""
    seen.who = CapturedConnection(3, "client", "192.168.7.1", 51000, "172.16.0.1", 9092, 0.0, TopicIdNames(),
                        principal="User:alice", broker="kafka-1:9092")  # fmt: skip
    return seen


def produced(**more: Any) -> ObservedExchange:
    partitions = [{"index": 0, "records": encode_batch(WRITTEN)}, {"index": 1, "records": None},
                  {"index": 2, "records": encode_batch(WRITTEN, codec=4)}]  # fmt: skip
    return captured(exchange("Produce", 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": partitions}]}, {},
                             **more))  # fmt: skip


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_produce_requests(version: int) -> None:
    """Only the records change; what is null stays null."""
    topic = {"name": "t", "partition_data": [{"index": 0, "records": encode_batch(WRITTEN)}, {"index": 1}]}
    seen = captured(exchange("Produce", version, {"acks": 1, "topic_data": [topic]}, {}))
    made = Redaction().exchange(seen)

    assert seen.request and made.request
    assert made.request.size == seen.request.size == len(made.request.data) + 4
    before, after = decode_request(seen.request.data), decode_request(made.request.data)
    old, new = (message.body["topic_data"][0].pop("partition_data") for message in (before, after))
    assert (before, [one["index"] for one in old]) == (after, [one["index"] for one in new])
    assert [record_of(one) for one in records_of(made)] == [blanked(record) for record in WRITTEN]


def test_a_frame_with_compressed_batches_becomes_shorter() -> None:
    """Its size says so, and it is whole and can be read."""
    seen = produced()
    made = Redaction().exchange(seen)

    assert seen.request and made.request
    assert made.request.form is Form.WHOLE
    assert made.request.size == len(made.request.data) + 4 != seen.request.size
    assert len(list(records_of(made))) == 6
    assert SECRET not in made.request.data


@pytest.mark.parametrize("names", [False, True])
def test_frames_cut_anywhere(names: bool) -> None:
    """Of what is not whole nothing is left from the first place on that would have to be looked at."""
    whole = produced()
    assert whole.request is not None
    for end in range(len(whole.request.data)):
        seen = produced()
        assert seen.request is not None
        seen.request.data, seen.request.form = seen.request.data[:end], Form.HEAD
        redaction = Redaction(Pseudonyms() if names else None)
        made = redaction.exchange(seen)
        assert made.request is not None
        assert SECRET[:2] not in made.request.data
        assert (b"tester" in made.request.data) <= (not names)
        assert made.request.size - 4 > len(made.request.data) or names


def test_other_names() -> None:
    """In headers, in bodies, and of the connection; tagged fields and counts are right."""
    body = {"groups": [{"group_id": "g", "members": [
        {"member_id": "tester-0a1b", "client_id": "tester", "client_host": "/192.168.7.1"}]}]}  # fmt: skip
    names = Pseudonyms()
    redaction = Redaction(names)
    made = redaction.exchange(captured(exchange("DescribeGroups", 5, {"groups": ["g"]}, body)))

    assert made.request and made.response
    assert decode_request(made.request.data).header["client_id"] == made.client_id == "client-1"
    (member,) = decode_response(made.response.data, 15, 5).body["groups"][0]["members"]
    assert (member["member_id"], member["client_id"], member["client_host"]) == ("member-1", "client-1", "/10.0.0.1")
    assert (made.who.client_address, made.who.principal, made.who.broker) == ("10.0.0.1", "User:user-1", "host-1:9092")

    endpoints = {"responses": [], "node_endpoints": [{"node_id": 1, "host": "kafka-1", "port": 9092}]}
    found = redaction.exchange(captured(exchange("Produce", 10, {}, endpoints)))
    assert found.response is not None
    assert decode_response(found.response.data, 0, 10).body["node_endpoints"][0]["host"] == "host-1"


def test_bytes_behind_the_last_field_are_none() -> None:
    """librdkafka sends one behind Metadata 13; what it is, is not known."""
    seen = captured(exchange("Metadata", 12, {}, {"brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092}]}))
    assert seen.response is not None
    seen.response.data += SECRET
    seen.response.size += len(SECRET)
    made = Redaction(Pseudonyms()).exchange(seen)

    assert made.response is not None
    assert made.response.data.endswith(bytes(len(SECRET)))
    assert decode_response(made.response.data, 3, 12, trailing=True).body["brokers"][0]["host"] == "host-1"


def test_what_cannot_be_read_is_cut() -> None:
    """A version that is not known (of both frames), a body against its grammar, a header that ends too early."""
    unknown, broken, short = produced(), produced(), produced()
    assert unknown.request and broken.request and short.request
    unknown.version = 99
    at = broken.request.data.index(b"\x02t") + 2
    broken.request.data = broken.request.data[:at] + b"\xff" + broken.request.data[at + 1 :]
    short.request.data = short.request.data[:8] + b"\x7f\xff" + short.request.data[10:]
    redaction = Redaction()
    made = [redaction.exchange(seen).request for seen in (unknown, broken, short)]

    assert all(frame is not None and SECRET not in frame.data and frame.form is Form.HEAD for frame in made)
    assert redaction.cut == 4


def test_credentials_are_taken_out_once_more() -> None:
    """Watchers and readers keep none; if one did, they would not get any further."""
    seen = captured(exchange("SaslAuthenticate", 1, {"auth_bytes": SECRET}, {"auth_bytes": SECRET}))
    assert seen.request and seen.response
    for frame in (seen.request, seen.response):
        frame.data, frame.form, frame.withheld = frame.data + b"\0\0\0\6" + SECRET, Form.HEAD, ""
    made = Redaction().exchange(seen)

    assert made.request and made.response
    assert (SECRET in made.request.data, SECRET in made.response.data) == (False, False)
    assert made.request.withheld == made.response.withheld == "SASL token"


def test_a_redacted_capture_reads_as_before(tmp_path: Path) -> None:
    """Same exchanges, same times, same outcomes; tshark reads its frames as before, too."""
    source, target = write_capture(tmp_path / "a.pcapng", conversation()), tmp_path / "b.pcapng"
    redaction = Redaction(Pseudonyms())
    write_capture(target, [redaction.exchange(seen) for seen in read(source)])
    facts = [
        [(seen.api, seen.version, seen.outcome, seen.acks, seen.request and seen.request.first) for seen in read(path)]
        for path in (source, target)
    ]

    assert facts[0] == facts[1]
    assert [record_of(one) for seen in read(target) for one in records_of(seen)] == [
        blanked(record_of(one)) for seen in read(source) for one in records_of(seen)
    ]
    for text in (b"order 1", b"user-2", b"etl", b"alice", b"kafka-1"):
        assert text in source.read_bytes() or text == b"order 1"
        assert text not in target.read_bytes()
    shown = [frames(path) for path in (source, target)]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 10


def frames(path: Path) -> list[str]:
    """What tshark says that they are."""
    shown = ("kafka.api_key", "kafka.correlation_id", "kafka.topic_name", "kafka.error", "_ws.malformed")
    command = ["tshark", "-r", str(path), "-Y", "kafka", "-T", "fields", *(f"-e{name}" for name in shown)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_orders_are_what_they_seem() -> None:
    """The conversation's records, redacted, are none of the users' words any more."""
    after = redact_records(memoryview(orders(5, codec=4)), RedactionCounts())

    assert {record.key for entry in entries(after) for record in decode(entry)} == {b"xxxxxx"}
