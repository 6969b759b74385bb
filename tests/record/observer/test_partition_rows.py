"""Compiled readers of rows give what the decoder gives, for good bytes and for others."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import framed
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table import layout, schema
from kproxy.record.observer.partition_rows import PATHS, asked_rows, fetch_rows, read_rows, row_reader, written_answers
from tests.protocol.golden.frames import golden
from tests.support.frames import message
from tests.support.random_peers import mangled, plausible
from tests.support.random_values import random_struct

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
ROUNDS = 400 if EVERYTHING else 30
MESSAGES = [(key, version, direction) for key, direction in PATHS for version in schema.load(key).versions]


def decoded(frame: bytes, key: int, version: int, direction: str) -> Any:
    """The same from the decoded body; None where it cannot be decoded."""
    try:
        body = decode_sketch(frame, key, version, direction)
    except DecodeError:
        return None
    if direction == "request":
        return asked_rows(version, body), body["acks"]
    if key == 0:
        return written_answers(version, body)
    return fetch_rows(key, version, body)


def read(frame: bytes, key: int, version: int, direction: str) -> Any:
    """What the reader says, of a frame in the middle of others."""
    data = bytearray(b"\0\0\0" + framed(frame) + b"\x01" * 200)
    found = read_rows(key, version, direction, data, 3, 3 + 4 + len(frame))
    if found is None:
        return None
    rows, acks = found
    if direction == "request":
        return rows, acks
    return {(topic, index): (error, base) for topic, index, error, base in rows} if key == 0 else rows


def frame_of(key: int, version: int, direction: str, random: Random) -> bytes:
    body = random_struct(layout.body(key, version, direction), random)
    plausible(body, random)
    return message(key, version, direction, body, client_id=random.choice((None, "me")))


@pytest.mark.parametrize(("key", "version", "direction"), MESSAGES)
def test_readers_agree_with_the_decoder(key: int, version: int, direction: str) -> None:
    """Random messages of each version, and such messages with bytes changed, give the same rows if they are good."""
    assert row_reader(key, version, direction) is not None
    random = Random(version)
    for _ in range(ROUNDS):
        frame = frame_of(key, version, direction, random)
        expected = decoded(frame, key, version, direction)
        assert expected is not None
        assert expected == read(frame, key, version, direction)
        changed = mangled(frame, random, 10)
        assert decoded(changed, key, version, direction) in (None, read(changed, key, version, direction))


def test_golden_frames() -> None:
    """So do frames of real clients and brokers, records of all magics and codecs among them."""
    frames = [one for one in golden() if (one.key, one.direction) in PATHS]
    for one in frames:
        args = (one.frame, one.key, one.version, one.direction)
        if row_reader(one.key, one.version, one.direction) is not None:
            assert decoded(*args) == read(*args), str(one)
    assert len(frames) > 50


def test_unknown_versions_have_no_reader() -> None:
    """What the table lacks is read by nobody."""
    assert row_reader(0, 99, "request") is None
    assert row_reader(3, 9, "response") is None
