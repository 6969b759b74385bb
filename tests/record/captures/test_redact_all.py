"""Redaction of every message there is: only the places change, and none is forgotten; credentials go too."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, apis, decode_request, decode_response, encode
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Struct
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.redact import NAMED, Pseudonyms, Redaction
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import withheld_body
from tests.support.random_values import random_struct

SECRET = "s3cr3t"
BATCH = encode_batch([Record(0, 0, SECRET.encode(), SECRET.encode())])
RANDOM_BODIES = 8
"""Of each version: the places are found by the table, so that few say much."""


def planted(struct: Struct, value: dict[str, Any]) -> None:
    """A secret in each place; nulls stay."""
    for slot in struct.all_slots:
        inner = value.get(slot.name)
        if slot.struct is not None and inner is not None:
            for one in inner if slot.array else [inner]:
                planted(slot.struct, one)
        elif inner is not None and slot.type == "records":
            value[slot.name] = BATCH
        elif inner is not None and slot.type == "string" and slot.kind in (*NAMED, "config_value") and not slot.array:
            value[slot.name] = SECRET


def without_places(struct: Struct, value: dict[str, Any]) -> dict[str, Any]:
    """The value, but whether there is something in a place, instead of what."""
    found = dict(value)
    for slot in struct.all_slots:
        inner = value[slot.name]
        if slot.struct is not None and inner is not None:
            deeper = slot.struct
            found[slot.name] = (
                [without_places(deeper, one) for one in inner] if slot.array else without_places(deeper, inner)
            )
        elif slot.type == "records" or (slot.kind in (*NAMED, "config_value") and not slot.array):
            found[slot.name] = inner is not None
    return found


@pytest.mark.parametrize("api", apis(), ids=lambda api: api.name)
def test_every_message(api: Any) -> None:
    """Requests and responses of all versions, with random bodies and secrets in every place."""
    random = Random(api.key)
    who = CapturedConnection(1, "client", "1.2.3.4", 5, "6.7.8.9", 9092, 0.0, TopicIdNames())
    for version in api.versions:
        for direction in ("request", "response"):
            struct = layout.body(api.key, version, direction)
            for _ in range(RANDOM_BODIES):
                body = random_struct(struct, random)
                planted(struct, body)
                frame = encode(Message(api, version, header_of(api.key, version, direction), body))
                kept = Frame(len(frame) + 4, 0.0, 0.0, frame, Form.WHOLE)
                seen = ObservedExchange(who, 1, api.key, version, 1, SECRET, None)
                setattr(seen, direction, kept)
                redaction = Redaction(Pseudonyms())
                made = getattr(redaction.exchange(seen), direction)

                assert SECRET.encode() not in made.data
                if withheld_body(api.key, version, direction):
                    assert made.withheld
                    continue
                assert (made.form, made.size, redaction.cut) == (Form.WHOLE, len(made.data) + 4, 0)
                before, after = (read(data, api.key, version, direction) for data in (frame, made.data))
                assert same(without_places(struct, before), without_places(struct, after))


def header_of(key: int, version: int, direction: str) -> dict[str, Any]:
    if direction == "response":
        return {"correlation_id": 1}
    named = {"request_api_key": key, "request_api_version": version, "correlation_id": 1}
    return named if (key, version) == (7, 0) else named | {"client_id": SECRET}


def read(data: bytes, key: int, version: int, direction: str) -> dict[str, Any]:
    return decode_request(data).body if direction == "request" else decode_response(data, key, version).body


def same(one: Any, other: Any) -> bool:
    """Equal, and views by their bytes."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
