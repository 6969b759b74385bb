"""Steps of frames: every frame of the protocol is told whole, byte by byte; what cannot be read is told as far as it
can."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from kproxy.protocol import apis
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.records import batch as batches
from kproxy.protocol.records.compression import decompress as decompress_in_earnest
from kproxy.protocol.records.entry import BATCH
from kproxy.protocol.table import layout
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.live_view.detail import both, changes, frame_bytes
from kproxy.record.live_view.frame_steps import MOST_RECORDS, MOST_STEPS, show_frame, show_records
from kproxy.record.live_view.rows import encode
from kproxy.record.observer.credentials import take_out
from tests.support.exchange_factory import Somebody, exchange, orders
from tests.support.frames import message
from tests.support.random_values import random_struct


def kept(key: int, version: int, direction: str, body: dict[str, Any]) -> tuple[ObservedExchange, Frame]:
    data = message(key, version, direction, body, 1, "tester")
    seen = ObservedExchange(Somebody(), 1, key, version, 1, "tester", None)
    shown, why = take_out(data, key, version, direction)
    form = Form.WHOLE if len(shown) == len(data) else Form.HEAD
    return seen, Frame(len(data) + 4, 0.0, 0.0, shown, form, why)


@pytest.mark.parametrize("api", apis(), ids=lambda api: api.name)
def test_every_frame_is_told_from_its_first_byte_to_its_last(api: Any) -> None:
    """Steps that are no containers touch each other; all of it is JSON, and is the same when it is told again."""
    random = Random(api.key)
    for version in {api.versions.first, api.versions.last}:
        for direction in ("request", "response"):
            seen, frame = kept(
                api.key, version, direction, random_struct(layout.body(api.key, version, direction), random)
            )
            shown = show_frame(seen, direction, frame, records=True)
            told = json.loads(encode(shown.shown("client", 0)))
            assert told["decode_error"] == ""
            if frame.form is Form.HEAD:
                assert (told["steps"], bool(told["withheld"])) == ([], True)
                continue
            at = 0
            for step in shown.steps:
                if step[4] in ("batch", "record", "part", "header"):
                    continue
                assert (step[0], step[1] >= step[0]) == (at, True), step
                at = step[1]
            assert at == len(frame.data)
            assert [] == changes(shown.steps, show_frame(seen, direction, frame, records=True).steps)


def record_frame(records: list[Record], **more: Any) -> tuple[ObservedExchange, Frame]:
    part = {"index": 0, "records": encode_batch(records, **more)}
    return kept(0, 9, "request", {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [part]}]})


def test_records_have_places_of_their_own() -> None:
    """Each with its key, value and headers, one behind the other; control batches have no records of users."""
    records = [Record(7, 1000, b"k", b"value", (("trace", b"a1"), ("none", None))), Record(9, 1002, None, b"")]
    seen, frame = record_frame(records)
    steps = [one for one in show_frame(seen, "request", frame, records=True).steps if ".records[0][" in one[3]]
    path = "topic_data[0].partition_data[0].records[0]"

    assert [(one[3].removeprefix(path), one[4], one[6]) for one in steps] == [
        ("[0]", "record", {"offset": 7, "time": 1000}), ("[0].key", "part", {"bytes": 1}),
        ("[0].value", "part", {"bytes": 5}), ("[0].headers[0]", "header", {"name": "trace", "bytes": 2}),
        ("[0].headers[1]", "header", {"name": "none", "bytes": None}), ("[1]", "record", {"offset": 9, "time": 1002}),
        ("[1].key", "part", None), ("[1].value", "part", {"bytes": 0}),
    ]  # fmt: skip
    assert [frame.data[one[0] : one[1]] for one in steps[1:4]] == [b"\x02k", b"\x0avalue", b"\x0atrace\x04a1"]
    assert steps[0][1] == steps[5][0] == steps[4][1]
    seen, frame = record_frame(records[1:], control=True)
    assert not [one for one in show_frame(seen, "request", frame, records=True).steps if one[4] == "record"]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_packed_records_are_told_with_their_bytes(codec: int) -> None:
    """They have no place of their own: each has that of all that is packed, and what stands in it comes with it."""
    records = [Record(7, 1000, b"k", b"value", (("trace", b"a1"), ("none", None))), Record(9, 1002, None, b"")]
    seen, frame = record_frame(records, codec=codec)
    steps = [one for one in show_frame(seen, "request", frame, records=True).steps if ".records[0]" in one[3]]
    path, packed = "topic_data[0].partition_data[0].records[0]", {"packed": True}

    assert [(one[3].removeprefix(path), one[4], one[6]) for one in steps[1:]] == [
        ("[0]", "record", {"offset": 7, "time": 1000, **packed}),
        ("[0].key", "part", {"bytes": 1, "data": "aw==", **packed}),
        ("[0].value", "part", {"bytes": 5, "data": "dmFsdWU=", **packed}),
        ("[0].headers[0]", "header", {"name": "trace", "bytes": 2, "data": "YTE=", **packed}),
        ("[0].headers[1]", "header", {"name": "none", "bytes": None, **packed}),
        ("[1]", "record", {"offset": 9, "time": 1002, **packed}),
        ("[1].key", "part", None), ("[1].value", "part", {"bytes": 0, "data": "", **packed}),
    ]  # fmt: skip
    assert {(one[0], one[1]) for one in steps[1:]} == {(steps[0][0] + BATCH.size, steps[0][1])}
    hidden = show_frame(seen, "request", frame, records=False)
    assert not [one for one in hidden.steps if one[4] in ("record", "part", "header")]


KINDS_OF_BOMBS = {
    "values": Record(0, 0, b"k", bytes(1 << 16)),
    "a header's value": Record(0, 0, None, None, (("h", bytes(1 << 16)),)),
    "a header's name": Record(0, 0, None, None, (("h" * (1 << 16), None),)),
    "many headers": Record(0, 0, None, None, (("", None),) * (1 << 15)),
}


@pytest.mark.parametrize("kind", [*KINDS_OF_BOMBS, "records of nothing", "what cannot be read"])
def test_a_frame_of_bombs_is_unpacked_up_to_a_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes stand for much, and there is room for thousands of them in a frame: in the tree as in the list of
    records some are unpacked, whatever it is that they have much of."""
    unpacked: list[int] = []

    def decompress(codec: int, data: Any, limit: int, *more: Any) -> Any:
        unpacked.append(1)
        return decompress_in_earnest(codec, data, limit, *more)

    monkeypatch.setattr(batches, "decompress", decompress)
    if kind == "records of nothing":
        bomb = encode_batch([Record(n, 0, None, None) for n in range((1 << 16) // 7)], codec=4)
    else:
        bomb = encode_batch([KINDS_OF_BOMBS.get(kind, KINDS_OF_BOMBS["values"])], codec=4)
    if kind == "what cannot be read":
        bomb = bomb[:57] + (2).to_bytes(4, "big") + bomb[61:]
    part = {"index": 0, "records": bomb * 2000}
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [part]}]}
    seen, frame = kept(0, 9, "request", body)

    show_frame(seen, "request", frame, records=True, most=20_000)
    most = (8 << 20) // (1 << 16) + 2
    assert 0 < len(unpacked) <= most
    unpacked.clear()
    answer = encode(show_records(exchange("Produce", 9, body, {}), records=True))
    assert 0 < len(unpacked) <= 8 * most
    assert len(answer) < 16 << 20


def test_records_that_are_lies_are_told_as_far_as_they_go() -> None:
    """Counts, lengths and times may say anything: no step is outside of its batch, and all of it is JSON."""
    random = Random(7)
    records = [Record(number, number, b"key", b"v" * 20, (("h", b"x"),)) for number in range(20)]
    seen, frame = record_frame(records)
    whole = show_frame(seen, "request", frame, records=True).steps
    (batch,) = [one for one in whole if one[4] == "batch"]
    for _ in range(300):
        data = bytearray(frame.data)
        for _ in range(3):
            data[random.randrange(batch[0] + 17, batch[1])] = random.randrange(256)
        frame.data, was = bytes(data), frame.data
        told = show_frame(seen, "request", frame, records=True).steps
        json.loads(encode(told))
        assert all(batch[0] <= one[0] <= one[1] <= batch[1] for one in told if one[4] in ("record", "part", "header"))
        assert len(told) < len(whole) + 1000
        frame.data = was


def test_what_cannot_be_read_is_told_up_to_there() -> None:
    """With the place; the bytes are all there."""
    seen, frame = kept(12, 4, "request", {"group_id": "g", "member_id": "m"})
    frame.data = frame.data[:-6]
    shown = show_frame(seen, "request", frame, records=True)

    assert [step[3] for step in shown.steps][-1] == "group_id"
    assert "generation_id" in shown.unread or "member_id" in shown.unread
    assert shown.data == frame.data


def test_bytes_behind_the_last_field_are_told_as_such() -> None:
    """Clients send some; nothing is left out."""
    seen, frame = kept(12, 4, "request", {"group_id": "g"})
    frame.data += b"more"
    last = show_frame(seen, "request", frame, records=True).steps[-1]

    assert last == [len(frame.data) - 4, len(frame.data), 0, "left_over", "unknown", "BYTES", {"bytes": 4}]


def test_an_api_that_is_not_known_has_a_header_only() -> None:
    """And the reason why it is all that is kept."""
    seen = ObservedExchange(Somebody(), 1, 999, 3, 1, "tester", None)
    data, why = take_out(b"\x03\xe7\x00\x03\x00\x00\x00\x01\x00\x01xbody", 999, 3, "request")
    shown = show_frame(seen, "request", Frame(20, 0.0, 0.0, data, Form.HEAD, why), records=False)

    assert (shown.steps, shown.withheld, b"body" in shown.data) == ([], "an API that is not known", False)


def test_changes_are_told_by_path_with_both_places() -> None:
    """Fields that differ, and those that only one side has; what is the same is not told."""
    ours = [
        [0, 2, 1, "a", "value", "INT16", 1],
        [2, 4, 1, "b", "value", "INT16", 2],
        [4, 6, 1, "c", "count", "ARRAY", 1],
    ]
    theirs = [
        [0, 2, 1, "a", "value", "INT16", 1],
        [2, 6, 1, "b", "value", "INT32", 3],
        [6, 8, 1, "d", "value", "INT16", 1],
    ]

    assert changes(ours, theirs) == [
        {"path": "b", "client": [2, 4], "broker": [2, 6]},
        {"path": "c (count)", "client": [4, 6], "broker": None},
        {"path": "d", "client": None, "broker": [6, 8]},
    ]


def test_bytes_of_the_same_length_are_told_as_changed() -> None:
    """A value that a rule has overwritten is as long as before; the bytes are compared where they are here."""
    frames = [record_frame([Record(0, 0, b"k", value)]) for value in (b"secret", b"******")]
    ours, theirs = (show_frame(seen, "request", frame, records=True) for seen, frame in frames)
    path = "topic_data[0].partition_data[0].records"

    assert [one["path"] for one in changes(ours.steps, theirs.steps, ours.data, theirs.data)] == [
        path, f"{path}[0][0].value (part)",
    ]  # fmt: skip
    packed = [record_frame([Record(0, 0, b"k", value)], codec=2) for value in (b"secret", b"******")]
    ours, theirs = (show_frame(seen, "request", frame, records=True) for seen, frame in packed)
    found = [one["path"] for one in changes(ours.steps, theirs.steps, ours.data, theirs.data)]
    assert found == [path, f"{path}[0][0].value (part)"]


def test_a_frame_that_only_one_side_has() -> None:
    """A response of kproxy's own has none of the broker's; a side that is the same is told as such."""
    seen = exchange("Heartbeat", 4, {"group_id": "g"}, {})
    behind = exchange("Heartbeat", 4, {"group_id": "g"}, None)
    assert both(seen, None, "request", 0, True)["broker"] is None
    assert both(seen, behind, "request", 0, True)["broker"] is None
    assert both(behind, None, "response", 0, True) is None
    assert frame_bytes(behind, None, "response", "client", records=True) is None
    mine = frame_bytes(seen, behind, "request", "broker", records=True)
    assert mine == frame_bytes(seen, None, "request", "client", records=True)


def test_records_are_bounded() -> None:
    """So many in an answer; what was left out is counted, and batches that cannot be read say so."""
    seen = exchange("Produce", 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": [
        {"index": 1, "records": encode_batch([Record(0, 0, b"k", b"v" * 500)], codec=1)[:-9] + bytes(9)},
        {"index": 0, "records": orders(MOST_RECORDS + 7, codec=4)},
    ]}]}, {})  # fmt: skip
    second, first = show_records(seen, records=True)

    assert (len(first["batches"][0]["records"]), first["batches"][0]["omitted"]) == (MOST_RECORDS, 7)
    assert (second["batches"][0]["records"], bool(second["batches"][0]["why"])) == ([], True)
    assert "crc" in second["batches"][0]
    assert show_records(exchange("Heartbeat", 4, {"group_id": "g"}, {}), records=True) == []


def test_a_frame_that_was_not_kept_whole_has_no_records() -> None:
    """And says why."""
    seen = exchange("Produce", 9, {"acks": 1, "topic_data": []}, {}, form=Form.HEAD)
    (said,) = show_records(seen, records=True)

    assert (said["batches"], said["why"]) == ([], "of the request the beginning was kept")


def test_a_frame_of_very_many_values_is_told_in_part() -> None:
    """It is read no further than is ever asked for."""
    topics = [{"name": "t"}] * (MOST_STEPS // 2)
    seen, frame = kept(3, 12, "request", {"topics": topics})
    shown = show_frame(seen, "request", frame, records=True)

    assert len(shown.steps) == MOST_STEPS
    assert shown.shown("client", MOST_STEPS - 3)["next"] is None
