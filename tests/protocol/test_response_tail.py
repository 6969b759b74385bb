"""The tail of a streamed Fetch or ShareFetch response is found wherever the chunks are cut."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import decode, encode
from kproxy.protocol.scan.response_tail import PrefixSkipper, split, tail_layout
from kproxy.protocol.scan.walk import compile_walk, read_string
from kproxy.protocol.table import layout
from tests.support.random_values import random_struct

STREAMED = [(1, 16), (1, 17), (1, 18), (78, 0), (78, 1), (78, 2)]


def response(key: int, version: int, rng: Random) -> tuple[bytes, int]:
    """A body, and where its tail begins."""
    struct = layout.body(key, version, "response")
    value: dict[str, Any] = random_struct(struct, rng)
    for topic in value["responses"] or ():
        for partition in topic["partitions"] or ():
            partition["records"] = rng.choice((None, b"", rng.randbytes(rng.randrange(3000))))
    data = encode(struct, value)
    return data, decode(split(key, version)[0], data)[1]


def chunks(data: bytes, rng: Random, longest: int) -> list[bytes]:
    found = []
    position = 0
    while position < len(data):
        size = rng.randrange(longest + 1)
        found.append(data[position : position + size])
        position += size
    return found


@pytest.mark.parametrize(("key", "version"), STREAMED)
@pytest.mark.parametrize("longest", [1, 7, 400, 100_000])
def test_tail_is_found_in_any_chunks(key: int, version: int, longest: int) -> None:
    """The bytes counted by feed() add up to the true offset of the tail; empty chunks change nothing."""
    for seed in range(25):
        rng = Random(seed)
        data, cut = response(key, version, rng)
        skipper = PrefixSkipper(key, version)
        before = 0
        for chunk in chunks(data, rng, longest):
            was_done = skipper.done
            taken = skipper.feed(b"junk" + chunk + b"\xff\xff", 4, 4 + len(chunk))
            assert 0 <= taken <= len(chunk) and (skipper.done or taken == len(chunk)) and not (was_done and taken)
            before += taken
        assert skipper.done
        assert before == cut


@pytest.mark.parametrize(("key", "version"), STREAMED)
def test_tail_has_a_layout_of_its_own(key: int, version: int) -> None:
    """A walk of the tail alone finds the endpoints that a walk of the whole finds."""
    for seed in range(10):
        data, cut = response(key, version, Random(seed))
        hits: list[tuple[int, int, int]] = []
        found = compile_walk(tail_layout(key, version), {"node_endpoints[].host"})
        assert found.run(data, cut, len(data), hits) == len(data)
        value, _ = decode(layout.body(key, version, "response"), data)
        values = [hit for hit in hits if found.marks[hit[0]].what == "value"]
        hosts = [read_string(data, start, end, True) for _, start, end in values]
        texts = [None if host is None else host.decode("utf-8", "surrogateescape") for host in hosts]
        assert texts == [endpoint["host"] for endpoint in value["node_endpoints"] or ()]


def test_bad_bytes_raise_decode_error_or_never_end() -> None:
    """Noise cannot do more than to be refused, or to make the tail lie beyond the frame."""
    for seed in range(200):
        rng = Random(seed)
        key, version = rng.choice(STREAMED)
        skipper = PrefixSkipper(key, version)
        with contextlib.suppress(DecodeError):
            for _ in range(50):
                noise = bytes(rng.choice((0, 1, 2, 0x80, 0xFF)) for _ in range(rng.randrange(40)))
                assert 0 <= skipper.feed(noise, 0, len(noise)) <= len(noise)


def test_bad_varint_is_named() -> None:
    """The error says which message it was."""
    with pytest.raises(DecodeError, match=r"Fetch response v17 .*varint goes on after 5 bytes"):
        PrefixSkipper(1, 17).feed(bytes(10) + b"\xff" * 9, 0, 19)


@pytest.mark.parametrize(("key", "version"), [(1, 15), (3, 12), (0, 12)])
def test_other_messages_have_no_tail(key: int, version: int) -> None:
    """Only responses whose addresses come after records are treated so."""
    with pytest.raises(KeyError):
        tail_layout(key, version)
