"""Entities from bytes: the same as from values."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.codec.structs import read_request_header
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.schema import Api
from kproxy.rules.entity import entities, entity_reader
from tests.support.random_values import random_struct


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_both_ways_agree(api: Api) -> None:
    """For random requests of every version, reader and decoded message give the same entities in the same order."""
    random = Random(api.key)
    for version in api.versions:
        for _ in range(30):
            header = {"request_api_key": api.key, "request_api_version": version, "correlation_id": 1}
            body = random_struct(layout.body(api.key, version, "request"), random)
            frame = encode(Message(api, version, header, body))
            start = read_request_header(frame)[3]
            expected = entities(decode_request(frame))

            assert expected == entity_reader(api.key, version).read(frame, start, len(frame))
            moved = b"before" + frame + b"after"
            assert expected == entity_reader(api.key, version).read(moved, start + 6, len(frame) + 6)


def test_records_are_not_looked_at() -> None:
    """A walk for Produce's entities has no mark for records: what they hold does not matter."""
    marks = {mark.path for mark in entity_reader(0, 9).walk.marks}

    assert marks == {"transactional_id", "topic_data[].name", "topic_data[].partition_data[].index"}


def test_a_cut_frame() -> None:
    """Bytes that end too early are a DecodeError that names the api."""
    header = {"request_api_key": 1, "request_api_version": 11, "correlation_id": 1}
    topics = [{"topic": "orders", "partitions": [{"partition": 1}]}]
    frame = encode(Message(schema.load(1), 11, header, {"topics": topics}))
    start = read_request_header(frame)[3]

    for end in range(start, len(frame)):
        with pytest.raises(DecodeError, match="Fetch"):
            entity_reader(1, 11).read(frame, start, end)
