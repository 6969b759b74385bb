"""Frames and records of real clients and brokers: read, and written again to the very byte."""

from __future__ import annotations

import pytest

from kproxy.protocol import DecodeError, decode_request, decode_response, encode
from kproxy.protocol.records import Batch, Cut, LegacyEntry, check_crc, decode, entries, rewrite
from kproxy.protocol.table import schema
from tests.protocol.golden.frames import Frame, golden, record_fields

FRAMES = golden()
CLIENTS = sorted({frame.client for frame in FRAMES})
FIELDS = [(frame, data) for frame in FRAMES for data in record_fields(frame.decode())]


def read_again(frame: Frame, data: bytes) -> None:
    if frame.direction == "request":
        decode_request(data)
    else:
        decode_response(data, frame.key, frame.version)


@pytest.mark.parametrize("client", CLIENTS)
def test_decode_and_encode_give_the_same_bytes(client: str) -> None:
    """Every frame of every client, and every answer of the broker, is its own encoding after decoding."""
    for frame in FRAMES:
        if frame.client == client:
            message = frame.decode()

            assert frame.frame == encode(message), str(frame)
            assert (frame.direction, frame.key) == (message.direction, message.api.key)


@pytest.mark.parametrize("client", CLIENTS)
def test_cut_and_prolonged_frames(client: str) -> None:
    """Cut at every byte, or with a byte more, each of them is a DecodeError and nothing else."""
    for frame in FRAMES:
        if frame.client == client:
            for length in range(min(len(frame.frame), 400)):
                with pytest.raises(DecodeError):
                    read_again(frame, frame.frame[:length])
            with pytest.raises(DecodeError):
                read_again(frame, frame.frame + b"\x00")


def test_the_set_is_broad() -> None:
    """Many APIs and versions, all codecs and magics, and an entry that a broker has cut off, are among them."""
    messages = {(frame.key, frame.version, frame.direction) for frame in FRAMES}
    apis = {schema.load(key).name for key, _, _ in messages}
    found = {(entry.magic, entry.codec) for _, data in FIELDS for entry in entries(data) if not isinstance(entry, Cut)}

    assert len(messages) >= 200
    assert len(apis) >= 40
    assert {(0, 0), (0, 1), (1, 0), (1, 1), (1, 3), *((2, codec) for codec in range(5))} <= found
    assert any(isinstance(entry, Cut) for _, data in FIELDS for entry in entries(data))


@pytest.mark.parametrize("client", CLIENTS)
def test_records(client: str) -> None:
    """The entries joined are the field; crcs hold; records survive a rewrite, uncompressed ones to the byte."""
    fields = [data for frame, data in FIELDS if frame.client == client]
    assert fields
    for data in fields:
        found = list(entries(data))

        assert data == b"".join(entry.raw for entry in found)
        for entry in found:
            if not isinstance(entry, Cut):
                assert_rewritten(entry)


def assert_rewritten(entry: Batch | LegacyEntry) -> None:
    check_crc(entry)
    records = list(decode(entry, stored=True))
    assert records
    if isinstance(entry, Batch) and entry.is_control:
        return
    again = rewrite(entry, records)
    (written,) = entries(again)
    assert not isinstance(written, Cut)
    check_crc(written)

    assert records == list(decode(written, stored=True))
    assert entry.codec or entry.raw == again


def test_snappy_as_librdkafka_writes_it() -> None:
    """librdkafka sends raw snappy, without the framing that Java and Python clients use; both were recorded."""
    framed = {
        frame.client: bytes(entry.payload[:7]) == b"\x82SNAPPY"
        for frame, data in FIELDS
        for entry in entries(data)
        if isinstance(entry, Batch) and entry.codec == 2 and frame.direction == "request"
    }

    assert {client: not client.startswith("librdkafka") for client in framed} == framed
    assert len(framed) >= 3
