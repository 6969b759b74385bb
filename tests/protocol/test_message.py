"""Whole frames: the public functions, the headers of every version, and the frames that follow a rule of their own."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kproxy.protocol
from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import Message, apis, decode_request, decode_response, encode
from kproxy.protocol.codec.structs import header_version, read_request_header
from kproxy.protocol.table import layout, schema
from tests.support.random_values import random_struct

PRODUCE_V0 = Path(__file__).parent / "seeds" / "produce-v0-frame.txt"


def messages(api: schema.Api, version: int, random: Random) -> list[Message]:
    """A request and its response, with random bodies."""
    request = random_struct(layout.header("request", header_version(api.key, version, "request")), random)
    request |= {"request_api_key": api.key, "request_api_version": version}
    response = random_struct(layout.header("response", header_version(api.key, version, "response")), random)
    bodies = [random_struct(layout.body(api.key, version, way), random, 2) for way in ("request", "response")]
    return [Message(api, version, request, bodies[0]), Message(api, version, response, bodies[1])]


def read(message: Message, frame: bytes) -> Message:
    if message.direction == "request":
        return decode_request(frame)
    return decode_response(frame, message.api.key, message.version)


@pytest.mark.parametrize("api", apis(), ids=str)
def test_every_frame_survives_both_ways(api: schema.Api) -> None:
    """Header and body of each version: a frame is read as the message it was made from, and refused cut or longer."""
    random = Random(api.key)
    for version in api.versions:
        for message in messages(api, version, random):
            frame = encode(message)

            assert read(message, frame) == message
            assert encode(read(message, frame)) == frame
            for wrong in (frame + b"\x00", frame + frame, frame[:-1], frame[:3], b""):
                with pytest.raises(DecodeError):
                    read(message, wrong)


def test_the_golden_produce_frame() -> None:
    """The 82 bytes of the oldest example: one message in one partition of one topic, and the same bytes again."""
    dump = PRODUCE_V0.read_text().partition("Hex Dump")[2]
    data = bytes(int(number, 16) for number in re.findall(r"0x(..)", dump))

    message = decode_request(data[4:])
    records = message.body["topic_data"][0]["partition_data"][0].pop("records")

    assert (len(data), data[:4]) == (82, (78).to_bytes(4, "big"))
    assert (message.api.name, message.version, message.direction) == ("Produce", 0, "request")
    assert message.header == {
        "request_api_key": 0,
        "request_api_version": 0,
        "correlation_id": 1,
        "client_id": "foo",
    }
    assert message.body == {
        "acks": 1,
        "timeout_ms": 1500,
        "topic_data": [{"name": "test", "partition_data": [{"index": 0}]}],
    }
    assert (len(records), bytes(records[-11:])) == (37, b"hello world")
    message.body["topic_data"][0]["partition_data"][0]["records"] = records
    assert encode(message) == data[4:]


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (3, 8, 1, 0),
        (3, 9, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (17, 1, 1, 0),
        (18, 0, 1, 0),
        (18, 3, 2, 0),
        (18, 4, 2, 0),
        (18, 99, 2, 0),
        (18, 32767, 2, 0),
        (3, 32767, 2, 1),
        (47, 0, 1, 0),
    ],
)
def test_which_header_a_frame_has(key: int, version: int, request_header: int, response_header: int) -> None:
    """Flexible versions have the newer header; ControlledShutdown v0 and ApiVersions responses are the exceptions."""
    assert header_version(key, version, "request") == request_header
    assert header_version(key, version, "response") == response_header


def test_an_api_versions_request_from_the_future_has_a_readable_header() -> None:
    """Its header is read as version 2, whatever the version; its body cannot be."""
    frame = bytes.fromhex("0012 0063 00000007 0003 666f6f 00") + b"whatever"

    api, version, header, pos = read_request_header(frame)

    assert (api.name, version, header["correlation_id"], header["client_id"], pos) == ("ApiVersions", 99, 7, "foo", 14)
    with pytest.raises(DecodeError, match=r"ApiVersions v99 at byte 0: this version is not known, expected 0-5"):
        decode_request(frame)


@pytest.mark.parametrize("asked", [0, 1, 2, 3, 4, 5, 99, -1])
@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("00000001 0023 00000000", []),
        ("00000001 0023 00000001 0012 0000 0003", [{"api_key": 18, "min_version": 0, "max_version": 3}]),
    ],
    ids=["before 2.4", "since 2.4"],
)
def test_a_refused_api_versions_request_is_answered_in_version_0(asked: int, text: str, keys: list[Any]) -> None:
    """Error 35 comes in the oldest form whatever was asked (KIP-511), and the message says so."""
    message = decode_response(bytes.fromhex(text), 18, asked)

    assert message.version == 0
    assert message.body == {"error_code": 35, "api_keys": keys}
    assert encode(message) == bytes.fromhex(text)


def test_error_35_in_the_version_asked_is_read_in_that_version() -> None:
    """Some brokers answer so, and a decoder has to take both."""
    message = Message(
        schema.load(18), 3, {"correlation_id": 1}, {"error_code": 35, "api_keys": [], "throttle_time_ms": 0}
    )

    assert decode_response(encode(message), 18, 3).version == 3


def test_unknown_tags_are_kept_in_header_and_body() -> None:
    """A newer peer's fields come back where they stood."""
    frame = bytes.fromhex("0012 0003 00000001 ffff 01 05 02 aabb 02 61 02 62 01 63 01 cc")

    message = decode_request(frame)

    assert message.header["_tagged_fields"] == [(5, b"\xaa\xbb")]
    assert message.body["_tagged_fields"] == [(0x63, b"\xcc")]
    assert encode(message) == frame


def test_an_error_in_the_header_says_so() -> None:
    """Its path begins with `header`."""
    with pytest.raises(DecodeError) as caught:
        decode_request(bytes.fromhex("0003 000c 00000001 00ff"))

    assert (caught.value.path, caught.value.offset) == ("header.client_id", 10)


def test_what_cannot_be_encoded_is_an_encode_error() -> None:
    """A version that the table lacks, and a header that names another api than the message."""
    header = {"request_api_key": 3, "request_api_version": 12, "correlation_id": 1, "client_id": None}
    body = {"topics": None}

    assert decode_request(encode(Message(schema.load(3), 12, header, body))).body["topics"] is None
    with pytest.raises(EncodeError, match="expected 0-13"):
        encode(Message(schema.load(3), 99, header, body))
    with pytest.raises(EncodeError, match=r"header names api and version \(3, 12\), expected \(3, 11\)"):
        encode(Message(schema.load(3), 11, header, body))
    with pytest.raises(EncodeError, match=r"Metadata header v12 client_id: expected a string, got 5"):
        encode(Message(schema.load(3), 12, header | {"client_id": 5}, body))


def test_the_public_names() -> None:
    """What `kproxy.protocol` promises is there, and an api says its key, names and versions."""
    metadata = apis()[3]

    assert all(hasattr(kproxy.protocol, name) for name in kproxy.protocol.__all__)
    assert (metadata.key, metadata.name, metadata.aliases) == (3, "Metadata", ("TopicMetadata",))
    assert list(metadata.versions) == list(range(14))
    assert (
        kproxy.protocol.grammar(17, 1, "request")
        == "SaslHandshake Request (Version: 1) => mechanism\n  mechanism => STRING"
    )
    for wrong in ((99, 0, "request"), (17, 2, "request"), (17, 1, "reply")):
        with pytest.raises(KeyError):
            kproxy.protocol.grammar(*wrong)


def test_bytes_behind_the_last_field_can_be_kept() -> None:
    """librdkafka sends some; they are in nobody's way, and written again."""
    request = Message(schema.load(12), 3, {"request_api_key": 12, "request_api_version": 3, "correlation_id": 1}, {})
    frame = encode(request)
    with pytest.raises(DecodeError, match="3 bytes left over"):
        decode_request(frame + b"abc")
    found = decode_request(frame + b"abc", trailing=True)

    assert found.trailing == b"abc"
    assert encode(found) == frame + b"abc"
    assert decode_request(frame, trailing=True).trailing == b""

    answer = encode(Message(schema.load(12), 3, {"correlation_id": 1}, {}))
    assert encode(decode_response(answer + b"x", 12, 3, trailing=True)) == answer + b"x"
