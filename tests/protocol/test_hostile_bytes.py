"""Bytes from an enemy: only DecodeError may come of them, in bounded time and memory.

Every message of the table is cut at its bytes and changed at random places; the fast decoder and the slow reader have
to agree on each result. Short by default; KPROXY_TEST_ALL=1 cuts everywhere and changes more.
"""

from __future__ import annotations

import os
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.codec.trace import diagnosis, trace
from kproxy.protocol.primitives import write_uvarint
from kproxy.protocol.scan.walk import compile_walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from tests.support.line_count import LineCount
from tests.support.random_values import random_struct

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
CHANGES = 300 if EVERYTHING else 8
CUTS = 1_000_000 if EVERYTHING else 100
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def agreed(struct: Struct, data: bytes) -> bool:
    """Whether the bytes can be read; the slow reader has to say the same, and end at the same place."""
    error = None
    try:
        _, end = codec.decode(struct, data)
    except DecodeError as caught:
        error = caught
    if error is not None:
        assert 0 <= error.offset <= len(data)
        assert error.problem != "cannot be read", "the slow reader found nothing wrong"
        return False
    assert [0, *(step.end for step in trace(struct, data))][-1] == end
    return True


def changed(data: bytes, random: Random) -> bytes:
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        found[random.randrange(len(found))] = random.choice((*EDGES, random.randrange(256)))
    if not random.randrange(4):
        del found[random.randrange(len(found)) :]
    return bytes(found)


@pytest.mark.parametrize("key", list(schema.paths()), ids=lambda key: schema.load(key).name)
@pytest.mark.parametrize("direction", ["request", "response"])
def test_cut_and_changed_messages_raise_decode_error_only(key: int, direction: str) -> None:
    """A cut message is never read to its old end; a changed one is read or refused, by both readers alike."""
    random = Random(key)
    for version in schema.load(key).versions:
        struct = layout.body(key, version, direction)
        data = codec.encode(struct, random_struct(struct, random))
        cuts = range(len(data)) if len(data) <= CUTS else random.sample(range(len(data)), CUTS)

        assert agreed(struct, data)
        assert not any(agreed(struct, data[:length]) for length in cuts)
        for _ in range(CHANGES if data else 0):
            agreed(struct, changed(data, random))


@settings(max_examples=20_000 if EVERYTHING else 300, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(list(schema.paths())), st.integers(-1, 20))
def test_any_bytes_raise_decode_error_only(data: bytes, key: int, version: int) -> None:
    """The public functions let nothing else escape, whatever the bytes, the key and the version."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    for read in (
        lambda: decode_request(data),
        lambda: decode_request(head + data),
        lambda: decode_response(data, key, version),
    ):
        try:
            read()
        except DecodeError:
            continue


BOMBS = {
    "array of structs": (3, 0, "response", "7fffffff"),
    "compact array of structs": (3, 12, "response", "00000000 ffffffff07"),
    "array of numbers": (4, 0, "request", "00000000 00000000 7fffffff"),
    "string": (10, 0, "request", "7fff"),
    "compact string": (10, 3, "request", "ffffffff07 00 00"),
    "bytes": (17 + 19, 0, "request", "7fffffff"),
    "compact bytes": (36, 2, "request", "ffffffff07"),
    "tags": (18, 3, "request", "01 01 ffffffff07"),
    "size of a tag": (18, 3, "request", "01 01 01 00 ffffffff07"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_length_of_two_thousand_million_allocates_nothing(name: str) -> None:
    """Counts and lengths are measured against the bytes that remain before anything is made of them."""
    key, version, direction, text = BOMBS[name]
    struct, data = layout.body(key, version, direction), bytes.fromhex(text) + bytes(30)
    agreed(struct, data)  # compiled by now

    tracemalloc.start()
    readable = agreed(struct, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert not readable
    assert peak < 50_000


def test_decode_of_many_small_structs_takes_linear_work() -> None:
    """Work and memory grow with the frame: the smallest brokers that fit, then nothing in place of a cluster id."""
    struct, brokers = layout.body(3, 12, "response"), 15_000
    frame = bytes(4) + write_uvarint(brokers + 1) + bytes(11 * brokers)

    def refuse() -> None:
        with pytest.raises(DecodeError, match="something after 3000 good values cannot be read"):
            codec.decode(struct, frame)

    tracemalloc.start()
    refuse()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with LineCount() as count:
        refuse()

    assert count.total < 40 * brokers
    assert peak < 50 * len(frame)


def test_what_is_wrong_far_behind_is_not_searched_for() -> None:
    """The slow reader gives up after a number of values; the error then says roughly where."""
    struct, brokers = layout.body(3, 12, "response"), 40_000
    frame = bytes(4) + write_uvarint(brokers + 1) + bytes(11 * brokers)
    walk = compile_walk(struct, {"brokers[].host"})
    near = bytes(4) + write_uvarint(301) + bytes(11 * 300)

    said = r"brokers\[\d+\].* something after \d+ good values cannot be read"

    for read in (lambda: codec.decode(struct, frame), lambda: walk.run(frame, 0, len(frame), [])):
        with pytest.raises(DecodeError, match=said) as caught:
            read()
        assert 0 < caught.value.offset < len(frame)
    with pytest.raises(DecodeError, match="cluster_id"):
        walk.run(near, 0, len(near), [])


def test_diagnosis_of_a_large_frame_takes_bounded_work() -> None:
    """It looks at a fixed number of values, since it blocks the loop."""
    struct = layout.body(3, 12, "response")
    frame = bytes(4) + write_uvarint(500_001) + bytes(11 * 500_000)
    with LineCount() as count:
        diagnosis(struct, frame, 0, "Metadata response", 12)

    assert count.total < 200_000
