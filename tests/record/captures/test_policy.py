"""How much of frames is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.captures.policy import LONGEST_HEADER, Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import take_out
from tests.support.capture_files import client, frame, metadata, produce, request, written
from tests.support.frames import message
from tests.support.random_values import random_struct


def kept(payload: str, seen: ObservedExchange, head: int = 20) -> tuple[bytes, bytes]:
    policy = Policy(payload, head)
    assert seen.request and seen.response
    return policy.kept(seen, seen.request, response=False), policy.kept(seen, seen.response, response=True)


def test_each_policy_keeps_a_beginning() -> None:
    """Headers only, so many bytes, or all."""
    seen = metadata()
    assert seen.request and seen.response

    assert (seen.request.data, seen.response.data) == kept("full", seen)
    assert (seen.request.data[:20], seen.response.data[:20]) == kept("head", seen)
    assert (seen.request.data[:14], seen.response.data[:4]) == kept("none", seen)
    assert (Depth.COUNT, Depth.FULL, Depth.FULL) == tuple(Policy(payload).depth for payload in ("none", "head", "full"))


def test_what_is_withheld_stays_so() -> None:
    """Should a frame about credentials have a body by mistake, it is cut off here."""
    data = request("SaslAuthenticate", 2, 5, {"auth_bytes": b"secret"})
    seen = ObservedExchange(
        client(), 1, 36, 2, 5, "shop", Frame(len(data) + 4, 1.0, 1.0, data, Form.WHOLE, "SASL token")
    )
    assert seen.request

    found = Policy("full").kept(seen, seen.request, response=False)

    assert data[: 8 + 2 + 4 + 1] == found and b"secret" not in found


def test_policy_of_config_frame_keeps_it_whole_without_values() -> None:
    """The frame stays readable. A value that an observer left is overwritten here."""
    secret = {"name": "ssl.keystore.password", "value": "secret"}
    broker = {"resource_type": 4, "resource_name": "1", "configs": [secret]}
    data, withheld = take_out(request("AlterConfigs", 1, 5, {"resources": [broker]}), 33, 1, "request")
    seen = ObservedExchange(client(), 1, 33, 1, 5, "shop", Frame(len(data) + 4, 1.0, 1.0, data, Form.WHOLE, withheld))
    assert seen.request

    found = Policy("full").kept(seen, seen.request, response=False)

    assert found == data
    assert b"secret" not in found
    seen.request.data = data.replace(b"******", b"secret")
    assert Policy("full").kept(seen, seen.request, response=False) == data
    assert Policy("head", 20).kept(seen, seen.request, response=False) == data[:20]
    assert Policy("none").kept(seen, seen.request, response=False) == data[:14]
    assert found[:20] == Policy("head", 20).kept(seen, seen.request, response=False)


def test_headers_are_made_where_nothing_was_kept() -> None:
    """From what is known; sketches are cut at their header, since their bytes are not the frame's."""
    seen = produce(acks=0)
    assert seen.request
    header = seen.request.data[:14]
    for form, data in ((Form.NONE, b""), (Form.SKETCH, seen.request.data)):
        seen.request = Frame(4000, 1.0, 1.0, data, form)
        assert header == Policy("full").kept(seen, seen.request, response=False)
    seen.request = Frame(40_000, 1.0, 1.0, b"", Form.NONE)
    seen.client_id = "x" * 32_000
    assert LONGEST_HEADER == len(Policy("none").kept(seen, seen.request, response=False))
    unknown = ObservedExchange(client(), 1, 999, 3, 5, None, Frame(50, 1.0, 1.0, b"\3\xe7\0\3\0\0\0\5more", Form.HEAD))
    assert unknown.request
    assert b"\3\xe7\0\3\0\0\0\5" == Policy("none").kept(unknown, unknown.request, response=False)


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_a_sketch_has_all_fields_and_no_record(api: schema.Api, tmp_path: Path) -> None:
    """Of every message of the table, with batches where records may stand: what is written and read again says the same
    of every field, and nothing of what is inside of a batch is in the file. Versions that nobody knows are headers."""
    random = Random(api.key)
    secret = b"what a user wrote 4711"
    batch = encode_batch([Record(0, 1_000, b"key " + secret, secret), Record(1, 1_001, None, secret)])
    seen = []
    for version in (*api.versions, api.versions.last + 1):
        known = min(version, api.versions.last)
        frames = []
        for direction in ("request", "response"):
            body = random_struct(layout.body(api.key, known, direction), random)
            put_records(layout.body(api.key, known, direction), body, batch)
            body |= {"acks": 1} if "acks" in body else {}
            frames.append(frame(message(api.key, known, direction, body, version), 1000.0))
        one = ObservedExchange(
            client(), version + 1, api.key, version, version, "tester", frames[0], frames[1], "answered"
        )
        one.acks = 1 if api.key == PRODUCE else None
        seen.append(one)
    path = written(tmp_path / "sketch.pcapng", seen, Policy("sketch"))

    assert secret not in path.read_bytes()
    found = sorted(Capture(path), key=lambda one: one.correlation_id)
    assert len(found) == len(seen)
    for before, after in zip(seen, found, strict=True):
        for old, new in ((before.request, after.request), (before.response, after.response)):
            assert old and new and old.size == new.size
        if before.version in api.versions:
            assert after.request_body == before.request_body
            assert after.response_body == before.response_body
            assert Form.HEAD not in {after.request and after.request.form, after.response and after.response.form}
        else:
            assert after.request and len(after.request.data) < 60


def put_records(struct: Any, body: dict[str, Any], batch: bytes) -> None:
    for slot in struct.slots:
        if slot.type == "records":
            body[slot.name] = batch
        elif slot.struct is not None and body.get(slot.name):
            for inner in body[slot.name] if slot.array else [body[slot.name]]:
                put_records(slot.struct, inner, batch)


def test_what_an_observer_has_sketched_stays_one() -> None:
    """Of a frame that is longer than an observer keeps, its sketch is written; one that cannot be followed is cut to
    its header, and so is the beginning of one."""
    seen = produce(size=5000)
    assert seen.request
    policy = Policy("sketch")
    sketch = policy.written(seen, seen.request, response=False)
    assert sketch.sketch and len(sketch.data) < 300

    head = replace(seen.request, data=seen.request.data[:1000], form=Form.HEAD, sketch=sketch.data)
    assert policy.written(seen, head, response=False) == sketch
    assert policy.written(seen, replace(head, data=sketch.data, form=Form.SKETCH, sketch=b""), response=False) == sketch
    assert policy.most(head) >= len(sketch.data)
    for lost in (replace(head, sketch=b""), replace(seen.request, data=seen.request.data[:20] + b"\x7f" * 5000)):
        cut = policy.written(seen, lost, response=False)
        assert not cut.sketch and len(cut.data) <= 20
    assert policy.depth is Depth.SKETCH
