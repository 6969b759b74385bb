"""Elements that are laid out alike are passed at once, and the walk's result is that of going through each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import encode
from kproxy.protocol.scan.walk import Walk, compile_walk
from kproxy.protocol.scan.walk_support import (
    LEARN_EVERY,
    LEAST,
    MOST,
    MOST_KNOWN,
    UniformArray,
    can_be_uniform,
    find_measures,
)
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.tools.rehearse.dialogue import response
from tests.support.random_values import random_struct

PRODUCE, METADATA = 0, 3
HEADER = 9  # bytes of a flexible response's: size, correlation id, no tags


def has_such(struct: Struct) -> bool:
    """Whether a walk that wants nothing meets an array whose elements may be alike."""
    return any(
        slot.struct is not None and ((slot.array and can_be_uniform(slot.struct)) or has_such(slot.struct))
        for slot in struct.slots
    )


ALL = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
    if has_such(layout.body(api.key, version, direction))
]
SAMPLE = ALL if os.environ.get("KPROXY_TEST_ALL") else ALL[::23]


def with_many(struct: Struct, random: Random) -> dict[str, Any]:
    """A value whose arrays have many elements, of one layout mostly."""
    found = random_struct(struct, random)
    for slot in struct.slots:
        if slot.array and slot.struct is not None:
            deep = not can_be_uniform(slot.struct)
            one = with_many(slot.struct, random) if deep else random_struct(slot.struct, random)
            one |= {part.name: [] for part in slot.struct.slots if not deep and part.array and part.struct is not None}
            count = random.choice((1, 3)) if deep else random.choice((0, LEAST - 1, LEAST, 10, MOST + 1, 150))
            elements = [dict(one) for _ in range(count)]
            for element in elements:
                for part in slot.struct.slots:
                    if part.type in ("int16", "int32", "int64") and not part.array:
                        element[part.name] = random.randrange(1 << 15)
            if count and not random.randrange(3):
                elements[random.randrange(count)] = random_struct(slot.struct, random)
            found[slot.name] = elements
    return found


@contextmanager
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known."""
    with monkeypatch.context() as patch:
        patch.setattr(UniformArray, "skip", lambda self, buf, p, n: (p, n))
        yield


def outcome(walk: Walk, data: bytes) -> tuple[Any, ...]:
    """Where it ends, or what it says is wrong, and its hits."""
    hits: list[tuple[int, int, int]] = []
    buf = memoryview(b"\x9e" * 3 + data + b"\x01" * 300)  # a neighbour, into which nothing may reach
    try:
        return walk.run(buf, 3, 3 + len(data), hits), hits
    except DecodeError as mistake:
        return (str(mistake),)


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_the_result_is_that_of_going_through_each(
    key: int, version: int, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of good messages, of some with a byte changed, and of some cut short."""
    struct = layout.body(key, version, direction)
    tops = frozenset(slot.path for slot in struct.slots[:1])
    random = Random(key * 100 + version)
    for walk in (compile_walk(struct, frozenset()), compile_walk(struct, tops)):
        for _ in range(6):
            data = encode(struct, with_many(struct, random))
            frames = [data]
            for _ in range(4):
                bad = bytearray(data)
                bad[random.randrange(len(bad))] = random.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
                frames += [bytes(bad), data[: random.randrange(len(data))]]
            for frame in frames:
                found = outcome(walk, frame)
                with one_by_one(monkeypatch):
                    assert found == outcome(walk, frame)


def topics(*partitions: list[tuple[int, int]]) -> bytes:
    """A Metadata answer, version 12: for each topic its partitions, by how many replicas and how many in sync."""
    frame = response(METADATA, 12, 1, topics=[
        {"name": "t", "partitions": [{"replica_nodes": [1] * n, "isr_nodes": [1] * synced} for n, synced in each]}
        for each in partitions
    ])  # fmt: skip
    return frame[HEADER:]


@pytest.fixture
def skipped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements were passed at once, array for array."""
    found: list[int] = []
    skip = UniformArray.skip

    def noting(self: UniformArray, buf: Any, p: int, n: int) -> tuple[int, int]:
        reached, left = skip(self, buf, p, n)
        found.append(n - left)
        return reached, left

    monkeypatch.setattr(UniformArray, "skip", noting)
    return found


def walks() -> Walk:
    return compile_walk(layout.body(METADATA, 12, "response"), frozenset(("topics[].name",)))


def test_what_was_met_once_is_passed_at_once(skipped: list[int]) -> None:
    """The first array is learnt, those after it are known, in this message and in the next; long ones in parts."""
    walk, ten = walks(), [(3, 3)] * 10

    for _ in range(2):
        outcome(walk, topics(ten, ten, ten))
    assert skipped == [0, 10, 10, 10, 10, 10]
    skipped.clear()
    outcome(walks(), topics([(3, 3)] * 200, [(3, 3)] * 200))
    assert skipped == [0, 3 * MOST]


def test_few_elements_are_not_worth_it(skipped: list[int]) -> None:
    """They are gone through, and not learnt."""
    outcome(walks(), topics(*[[(3, 3)] * (LEAST - 1)] * 20))

    assert skipped == []


def test_other_layouts_are_gone_through_and_learnt_in_time(skipped: list[int]) -> None:
    """By their first measure arrays are told apart; one array of several is learnt, so that change costs little."""
    walk = walks()
    one, three, lagging = [(1, 1)] * 10, [(3, 3)] * 10, [(3, 2)] + [(3, 3)] * 9
    outcome(walk, topics(three, *[one] * (LEARN_EVERY + 1), three))
    assert skipped == [10 if number > LEARN_EVERY else 0 for number in range(LEARN_EVERY + 3)]
    skipped.clear()
    outcome(walk, topics(lagging, three, one))
    assert skipped == [0, 10, 10]


def test_memory_is_bounded() -> None:
    """Whatever lengths come, so many of them are known at a time."""
    alike = UniformArray(struct_of_partitions())
    alike.unknown = -1
    for replicas in range(2, 100):
        for count in range(LEAST, LEAST + 8):
            part = bytes(14) + bytes((replicas,)) + bytes(4 * (replicas - 1)) + b"\x01\x01\x00"
            alike.unknown = 0
            alike.learn(part * count, 0, count)
            assert alike.skip(part * count, 0, count) == (len(part) * count, 0)
            assert len(alike.known) <= MOST_KNOWN


def test_bytes_that_are_all_the_same_mislead_nobody() -> None:
    """Partitions of ones: an empty array is a one, and so is a tag buffer's count and what is in it."""
    alike, partition = UniformArray(struct_of_partitions()), b"\x01" * (14 + 3 + 4)

    alike.learn(partition * 20, 0, 20)

    assert not alike.known


def test_arrays_of_what_has_measures_itself_are_not_known() -> None:
    """The length of such an element does not follow from their count."""
    answer = layout.body(PRODUCE, 8, "response")
    responses = next(slot for slot in answer.slots if slot.name == "responses").struct
    assert responses is not None
    partitions = next(slot for slot in responses.slots if slot.name == "partition_responses").struct
    assert partitions is not None
    blank: dict[str, Any] = {slot.name: slot.default() for slot in partitions.slots}
    error = {"batch_index": 0, "batch_index_error_message": None}

    for errors, known in (([], 1), ([error], 0)):
        data, alike = encode(partitions, blank | {"record_errors": errors}), UniformArray(partitions)
        alike.learn(data * 20, 0, 20)
        assert len(alike.known) == known
        assert find_measures(partitions, data, 0) is None or known


def struct_of_partitions() -> Struct:
    topics = next(slot for slot in layout.body(METADATA, 12, "response").slots if slot.name == "topics")
    assert topics.struct is not None
    partitions = next(slot for slot in topics.struct.slots if slot.name == "partitions")
    assert partitions.struct is not None
    return partitions.struct
