"""`GET /api/exchanges`: what is kept, listed, searched and in detail; no credentials, and records only if allowed."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.admin import limits, responses
from kproxy.base.errors import KproxyError
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import ObservedExchange
from kproxy.record.live_view.rows import COLUMNS
from kproxy.record.observer.credentials import BODIES, VALUES
from kproxy.record.observer.exchange_builder import DIRECTIONS
from tests.record.live_view.stream_reader import produced, viewing
from tests.support.exchange_factory import exchange, orders
from tests.support.random_values import random_struct

pytestmark = pytest.mark.trio


def fanout_of(api: Any) -> Any:
    return api.proxy.server.taps.fanout


def watch_of(api: Any) -> Any:
    (member,) = api.members
    return member.kept_exchanges.watch


async def kept(api: Any, *seen: ObservedExchange) -> None:
    """Have these exchanges kept, by a viewer who goes again."""
    async with viewing(api.app):
        for one in seen:
            fanout_of(api).take(one)


async def listed(api: Any, query: str = "") -> Any:
    answer = await api("GET", f"/api/exchanges?{query}")
    assert answer.status == 200, answer.body
    found = answer.json
    return {**found, "rows": [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]}


async def test_the_newest_come_first_and_next_goes_on(api: Any) -> None:
    """In the columns of the stream; the last page has no next one."""
    await kept(api, *(produced("orders", number) for number in range(1, 8)))
    first = await listed(api, "limit=3")
    second = await listed(api, f"limit=3&before={first['next']}")
    third = await listed(api, f"limit=3&before={second['next']}")

    assert tuple(first["columns"]) == COLUMNS
    assert [row["id"] for row in first["rows"]] == ["0-7", "0-6", "0-5"]
    assert [row["id"] for row in second["rows"]] == ["0-4", "0-3", "0-2"]
    assert ([row["id"] for row in third["rows"]], third["next"]) == (["0-1"], None)
    assert [row["id"] for row in (await listed(api, "before=0-3"))["rows"]] == ["0-2", "0-1"]


async def test_a_filter_searches_what_is_kept(api: Any) -> None:
    """Records, too; what cannot be judged is counted."""
    await kept(
        api, produced("orders", 1, orders(2)), produced("bills", 2, orders(3, base=5)), produced("orders", 3, orders(1))
    )
    watch_of(api).ring.get(3).seen.request.data = b"cut"
    found = await listed(api, "filter=~key+user-6")

    assert [row["topic"] for row in found["rows"]] == ["bills"]
    assert (found["searched"], found["unknown"], found["next"]) == (3, 1, None)
    assert [row["id"] for row in (await listed(api, "filter=~t+orders"))["rows"]] == ["0-1"]


async def test_a_search_ends_in_time_and_goes_on(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where, even if nothing was found until then."""
    monkeypatch.setattr("kproxy.record.live_view.watch.LONGEST_SEARCH", -1.0)
    await kept(api, produced("orders", 1), produced("orders", 2))
    found = await listed(api, "filter=~t+bills")

    assert (found["rows"], found["searched"], found["next"]) == ([], 1, "0-2")
    found = await listed(api, f"filter=~t+bills&before={found['next']}")
    assert (found["searched"], found["next"]) == (1, None)


async def test_one_in_detail(api: Any) -> None:
    """Its frames field by field, with the broker's beside it where that is another, and its records."""
    seen = produced("orders", 7, orders(2, codec=4))
    behind = produced("prod.orders", 7, orders(2, codec=4), at=seen.request.first)
    async with viewing(api.app):
        fanout_of(api).take(seen)
        fanout_of(api).take_behind(behind)
    shown = (await api("GET", "/api/exchanges/0-1")).json

    client, broker = shown["request"]["client"], shown["request"]["broker"]
    assert b64decode(client["data"]) == seen.request.data
    assert b64decode(broker["data"]) == behind.request.data
    assert (client["bytes"], client["kept"], client["form"], client["withheld"]) == (
        seen.request.size, seen.request.size - 4, "whole", "",
    )  # fmt: skip
    steps = {step[3]: step for step in client["steps"]}
    start, end, depth, _, what, kind, value = steps["topic_data[0].name"]
    assert (depth, what, kind, value) == (3, "value", "COMPACT_STRING", "orders")
    assert seen.request.data[start:end] == b"\x07orders"
    assert steps["header.request_api_key"][6:] == [0, "Produce"]
    batch = steps["topic_data[0].partition_data[0].records[0]"]
    assert (batch[4], batch[6]["count"], batch[6]["codec"]) == ("batch", 2, "zstd")
    assert "topic_data[0].name" in {one["path"] for one in shown["request"]["changed"]}
    (changed,) = [one for one in shown["request"]["changed"] if one["path"] == "topic_data[0].name"]
    assert (changed["client"], changed["broker"][1] - changed["broker"][0]) == ([start, end], 12)
    assert (shown["response"]["broker"], shown["response"]["changed"]) == (None, [])
    (partition,) = shown["records"]
    (batch,) = partition["batches"]
    assert (partition["topic"], partition["partition"], batch["crc"]) == ("orders", 0, "right")
    first = batch["records"][0]
    assert (b64decode(first["key"]), first["key_bytes"], first["offset"]) == (b"user-0", 6, 0)
    assert first["headers"] == [["trace", "YTE="]]


async def test_null_is_not_empty(api: Any) -> None:
    """Neither as a key nor as a value."""
    batch = encode_batch([Record(0, 0, None, b""), Record(1, 0, b"", None)])
    await kept(api, produced("orders", 1, batch))
    (partition,) = (await api("GET", "/api/exchanges/0-1")).json["records"]

    records = partition["batches"][0]["records"]
    assert [(one["key"], one["value"]) for one in records] == [(None, ""), ("", None)]
    assert [(one["key_bytes"], one["value_bytes"]) for one in records] == [(None, 0), (0, None)]


async def test_the_rest_of_a_long_frame_is_asked_for(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of its first step; the bytes are there at once."""
    monkeypatch.setattr("kproxy.record.live_view.frame_steps.AT_ONCE", 5)
    await kept(api, produced("orders", 1, orders(2)))
    first = (await api("GET", "/api/exchanges/0-1")).json["request"]["client"]
    second = (await api("GET", f"/api/exchanges/0-1?from={first['next']}")).json["request"]["client"]

    assert (len(first["steps"]), first["next"]) == (5, 5)
    assert first["steps"][-1][1] <= second["steps"][0][0]
    assert (await api("GET", "/api/exchanges/0-1?from=90000")).json["request"]["client"]["steps"] == []


async def test_frames_as_they_are(api: Any) -> None:
    """With the length in front, as a file; the broker's is the client's where they are the same."""
    seen = produced("orders", 1, orders(2))
    await kept(api, seen)
    for query in ("of=request", "of=request&side=broker"):
        answer = await api("GET", f"/api/exchanges/0-1/frame?{query}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == 'attachment; filename="exchange-0-1-request.bin"'
        assert answer.body == len(seen.request.data).to_bytes(4, "big") + seen.request.data


async def test_one_is_saved_as_a_capture(api: Any, tmp_path: Path) -> None:
    """With what passed at the broker, as kproxy's own captures have it; its rows say that this was something else."""
    seen = produced("orders", 7, orders(2))
    behind = produced("prod.orders", 7, orders(2), at=seen.request.first)
    async with viewing(api.app) as reader:
        fanout_of(api).take(seen)
        fanout_of(api).take_behind(behind)
        fanout_of(api).take(produced("orders", 8))
        told = await reader.rows(2)
    answer = await api("GET", "/api/exchanges/0-1/capture")
    path = tmp_path / "one.pcapng"
    path.write_bytes(answer.body)
    found = [*Capture(path, side="both")]

    assert answer.headers["content-disposition"] == 'attachment; filename="exchange-0-1.pcapng"'
    assert [(one.who.interface, one.request.data) for one in found] == [
        ("client", seen.request.data), ("broker", behind.request.data),
    ]  # fmt: skip
    assert found[0].response.data == seen.response.data
    listed_ = (await listed(api))["rows"]
    assert [(row["correlation"], row["changed"]) for row in listed_] == [(8, False), (7, True)]
    assert [row["correlation"] for row in told] == [7, 8]


@pytest.mark.parametrize(
    ("name", "code", "status"),
    [("0-9", "no_such_exchange", 404), ("7-1", "no_such_exchange", 404), ("x", "no_such_exchange", 404),
     ("0-1", "exchange_gone", 410), ("0-1%2F..", "no_such_exchange", 404)],
)  # fmt: skip
async def test_those_that_are_not_there(api: Any, name: str, code: str, status: int) -> None:
    """Gone is something else than never there."""
    async with viewing(api.app):
        watch_of(api).ring.most = 1
        for number in (1, 2):
            fanout_of(api).take(produced("orders", number))
    for path in (f"/api/exchanges/{name}", f"/api/exchanges/{name}/frame"):
        refused = await api("GET", path)
        assert (refused.status, refused.code) == (status, code)


@pytest.mark.parametrize("before", ["1", "0-", "0-1.", "a-1", "0-1.1-2." * 300])
async def test_bad_places(api: Any, before: str) -> None:
    """422."""
    refused = await api("GET", f"/api/exchanges?before={before}")
    assert (refused.status, refused.code) == (422, "invalid_query")


# ---- what is never shown

SECRET = b"s3cr3t-of-somebody"


def planted(struct: Struct, value: dict[str, Any], everywhere: bool) -> None:
    """The secret in each config value, or in each text and bytes field."""
    for slot in struct.all_slots:
        inner = value.get(slot.name)
        if slot.struct is not None:
            for one in (inner if slot.array else [inner]) or ():
                if one is not None:
                    planted(slot.struct, one, everywhere)
        elif slot.type in ("string", "bytes") and (everywhere or slot.kind == "config_value") and not slot.array:
            value[slot.name] = SECRET.decode() if slot.type == "string" else SECRET


def with_secrets(key: int, version: int, random: Random) -> ObservedExchange:
    """An exchange of this API with the secret in each place that may hold one; arrays have elements."""
    bodies = []
    for direction in DIRECTIONS:
        struct = layout.body(key, version, direction)
        body = random_struct(struct, random)
        planted(struct, body, (key, direction) in BODIES)
        bodies.append(body)
    return exchange(schema.load(key).name, version, bodies[0], bodies[1], at=monotonic())


async def test_no_credential_is_in_any_answer(api: Any) -> None:
    """Of every API of the table that carries some, in every version: not in rows, lists, details or frames."""
    random, planted_in = Random(5), 0
    keys = sorted({key for key, _ in (*BODIES, *VALUES)})
    talk = []
    for key in keys:
        for version in schema.load(key).versions:
            talk += [with_secrets(key, version, random) for _ in range(3)]
    async with viewing(api.app, "rows=2000") as reader:
        for seen in talk:
            fanout_of(api).take(seen)
            fanout_of(api).take_behind(seen)
            planted_in += seen.request is not None and bool(seen.request.withheld)
        await reader.rows(len(talk))
        answers = [b"".join(message.get("body", b"") for message in reader.sent)]
    answers.append((await api("GET", "/api/exchanges?limit=1000")).body)
    for number in range(1, len(talk) + 1):
        details = await api("GET", f"/api/exchanges/0-{number}")
        answers.append(details.body)
        answers.append((await api("GET", f"/api/exchanges/0-{number}/capture")).body)
        for direction in DIRECTIONS:
            answers.append((await api("GET", f"/api/exchanges/0-{number}/frame?of={direction}")).body)
            frame = details.json[direction]
            answers.append(b64decode(frame["client"]["data"]))

    assert len(keys) > 10
    assert planted_in > len(keys)
    assert not [answer for answer in answers if SECRET in answer or b64encode(SECRET)[:-4] in answer]


# ---- records that are not to be shown


@pytest.fixture
def without_records(api: Any) -> Any:
    """The API of a proxy with `view: {records: false}`."""
    api.backend.view = api.backend.view.model_copy(update={"records": False})
    (member,) = api.members
    member.kept_exchanges.records = False
    return api


VALUE = b"what-a-user-wrote"
MARKS = (VALUE, b"a-users-key", b"a-users-header")


def batch(codec: int = 0) -> bytes:
    record = Record(0, 0, b"a-users-key", VALUE, (("a-users-header", VALUE),))
    return encode_batch([record] * 3, codec=codec)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_records_can_be_hidden_everywhere(without_records: Any, codec: int) -> None:
    """From trees, bytes, lists of records, files; written and read, whole, cut or broken. Topics and numbers stay."""
    api = without_records
    read = {"topic": "orders", "partitions": [{"partition_index": 0, "records": batch(codec)}]}
    asked = {"topics": [{"topic": "orders", "partitions": [{"partition": 0}]}]}
    fetched = exchange("Fetch", 11, asked, {"responses": [read]}, at=monotonic(), number=3)
    broken = produced("orders", 4, batch(codec))
    broken.request.data = broken.request.data[:-2]
    trailing = produced("orders", 5, batch(codec))
    trailing.request.data += VALUE
    async with viewing(api.app) as reader:
        for seen in (produced("orders", 1, batch(codec)), fetched, broken, trailing):
            fanout_of(api).take(seen)
            fanout_of(api).take_behind(seen)
        rows = await reader.rows(4)
        (hello,) = await reader.until("hello")
    answers = [(await api("GET", "/api/exchanges")).body]
    for number in range(1, 5):
        details = await api("GET", f"/api/exchanges/0-{number}")
        answers.append(details.body)
        answers.append((await api("GET", f"/api/exchanges/0-{number}/capture")).body)
        for direction in ("request", "response"):
            for side in ("client", "broker"):
                frame = await api("GET", f"/api/exchanges/0-{number}/frame?of={direction}&side={side}")
                answers.append(frame.body)
                shown = (details.json[direction] or {}).get(side)
                answers.append(b64decode(shown["data"]) if shown else b"")

    for answer in answers:
        for mark in MARKS:
            assert mark not in answer
            assert mark not in uncompressed(answer)
    assert hello.data["records"] is False
    assert (rows[0]["topic"], rows[0]["records"]) == ("orders", 3)
    (partition,) = json.loads(answers[1])["records"]
    assert (partition["batches"], partition["why"]) == ([], "records, which this view does not show")


def uncompressed(frame: bytes) -> bytes:
    """All that the batches in a frame hold, wherever they stand."""
    found = b""
    for at in range(len(frame) - 61):
        if frame[at + 16] == 2:
            try:
                for entry in entries(memoryview(frame)[at:]):
                    for record in decode(entry, 1 << 20):
                        found += (record.key or b"") + (record.value or b"") + repr(record.headers).encode()
            except KproxyError:
                continue
    return found


@pytest.mark.parametrize("text", ["~key+x", "~val+x", "~t+orders+and+not+~val+x"])
async def test_hidden_records_are_not_searched(without_records: Any, text: str) -> None:
    """Who asks often enough would learn them."""
    for path in ("/api/exchanges", "/api/view"):
        refused = await without_records("GET", f"{path}?filter={text}")
        assert (refused.status, refused.code) == (422, "invalid_query")
        assert "`view: {records: false}`" in refused.json["error"]["message"]


async def test_answers_that_were_asked_for_together_are_bounded(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All found room when they were asked for: those that find none when they are made are refused."""
    await kept(api, *(produced("orders", number, orders(100)) for number in range(1, 40)))
    one = len((await api("GET", "/api/exchanges")).body)
    monkeypatch.setattr(responses, "LONG", 1000)
    monkeypatch.setattr(limits.RESPONSES, "most", 3 * one)
    reads, answered, statuses = trio.Event(), trio.Event(), list[int]()

    async def ask() -> None:
        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if len(statuses) == 20:
                    answered.set()
            await reads.wait()

        scope = {"type": "http", "method": "GET", "path": "/api/exchanges", "raw_path": b"/api/exchanges",
                 "query_string": b"", "headers": [(b"host", b"127.0.0.1:9190")], "client": ("127.0.0.1", 1),
                 "server": ("127.0.0.1", 9190), "root_path": "", "http_version": "1.1", "scheme": "http"}  # fmt: skip
        await api.app(scope, trio.sleep_forever, send)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
            await answered.wait()
            reads.set()

    assert statuses.count(200) == 4  # more than three have no room behind them
    assert statuses.count(429) == 16
    assert limits.RESPONSES.total == 0
