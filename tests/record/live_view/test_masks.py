"""Rules of the kind `mask` hold for everyone who looks: no answer has a masked value, and no filter finds one."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from time import monotonic
from typing import Any, cast
from uuid import uuid4

import pytest
import trio

from kproxy.admin.api import OPERATIONS, make_app
from kproxy.admin.guard import AdminTokens
from kproxy.admin.kept import SourceExchanges
from kproxy.base.errors import KproxyError
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.record.live_view.masks import MOST_BYTES, ViewerMasks
from kproxy.record.live_view.rows import KeptExchange
from tests.admin.test_tail import listening
from tests.record.live_view.stream_reader import produced, viewing
from tests.record.live_view.test_capture_download import OneCapture
from tests.support.exchange_factory import exchange
from tests.support.frames import message
from tests.support.held_api import Held

pytestmark = pytest.mark.trio

SECRET, OTHER = uuid4().hex, uuid4().hex
RULES = """\
rules:
- name: masked
  kind: mask
  when: {every: 1000}
  match: {topic: "orders*", client_id: nobody}
  not: {principal: viewer}
  fields: {value.mail: {fixed: shown}, value.list: null, key: {fixed: k}, header.user: {fixed: u}}
- name: rehearsed
  kind: mask
  mode: dry_run
  fields: {value.open: null}
"""
VALUE = json.dumps({"mail": SECRET, "list": [SECRET], "open": "visible"}).encode()
RECORDS = [
    Record(0, 0, SECRET.encode(), VALUE, (("user", SECRET.encode()), ("other", b"visible"))),
    Record(1, 0, None, f"unreadable {SECRET}".encode()),
]
GUESSES = (f"~val+{SECRET}", f"value.mail+==+{SECRET}", f"~key+{SECRET}", f"~h+{SECRET}", f"header.user+==+{SECRET}")


def batch(codec: int = 0) -> bytes:
    return encode_batch(RECORDS, codec=codec)


def fetched(topic: str, number: int, codec: int) -> Any:
    read = {"topic": topic, "partitions": [{"partition_index": 0, "records": batch(codec)}]}
    asked = {"topics": [{"topic": topic, "partitions": [{"partition": 0}]}]}
    return exchange("Fetch", 11, asked, {"responses": [read]}, at=monotonic(), number=number)


def found_in(answer: bytes) -> bytes:
    """All that an answer holds: its bytes, what is base64 in it, and the records of all batches."""
    parts = [answer]
    for text in re.findall(rb"[A-Za-z0-9+/]{16,}={0,2}", answer):
        try:
            parts.append(b64decode(text + b"=" * (-len(text) % 4)))
        except ValueError:
            continue
    for part in list(parts):
        for at in range(len(part) - 61):
            if part[at + 16] == 2:
                try:
                    for entry in entries(memoryview(part)[at:]):
                        parts += [repr(record).encode() for record in decode(entry, 1 << 20)]
                except KproxyError:
                    continue
    return b"\n".join(parts)


@pytest.fixture
def masked(make_api: Any) -> Any:
    return make_api(RULES)


async def keep(api: Any, codec: int = 0) -> int:
    """Have exchanges kept: written and read, whole, cut, broken and long, each also at the broker's side."""
    cut = produced("orders", 3, batch(codec))
    cut.request.data = cut.request.data[:-2]
    trailing = produced("orders", 4, batch(codec))
    trailing.request.data += SECRET.encode()
    damaged = produced("orders-2", 5, batch(codec)[:-8])
    long = produced("orders", 6, encode_batch([Record(0, 0, None, VALUE + b" " * MOST_BYTES)], codec=codec))
    seen = [produced("orders", 1, batch(codec)), fetched("orders", 2, codec), cut, trailing, damaged, long]
    async with viewing(api.app):
        for one in seen:
            api.proxy.server.taps.fanout.take(one)
            behind = produced("prod.orders", one.number, batch(codec), at=one.request.first)
            api.proxy.server.taps.fanout.take_behind(behind if one.api == "Produce" else one)
    return len(seen)


@pytest.mark.parametrize("codec", [0, 4])
async def test_no_outlet_of_kept_exchanges_has_a_secret(masked: Any, codec: int) -> None:
    count = await keep(masked, codec)
    paths = ["/api/exchanges", "/api/names", "/api/rules", "/api/held"]
    for number in range(1, count + 1):
        paths += [f"/api/exchanges/0-{number}", f"/api/exchanges/0-{number}/capture"]
        paths += [
            f"/api/exchanges/0-{number}/frame?of={of}&side={side}"
            for of in ("request", "response")
            for side in ("client", "broker")
        ]
    tested = {re.sub(r"0-\d+", "{id}", path.partition("?")[0]) for path in paths}
    assert {one.path for one in OPERATIONS if one.method == "GET" and one.path.startswith("/api/exchanges")} <= tested
    for path in paths:
        assert SECRET.encode() not in found_in((await masked("GET", path)).body), path

    records = (await masked("GET", "/api/exchanges/0-1")).json["records"][0]["batches"][0]["records"]
    assert [(one["key"], b"shown" in found_in(b64decode(one["value"]))) for one in records] == [("aw==", True)]
    assert b"visible" in found_in((await masked("GET", "/api/exchanges/0-2")).body)


@pytest.mark.parametrize("guess", GUESSES, ids=["value", "field", "key", "headers", "header"])
async def test_filters_read_masked_records(masked: Any, guess: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a search, a view, a tail, and rules that are only checked."""
    monkeypatch.setattr("kproxy.admin.editor.LONGEST_LOOK", 1e6)
    monkeypatch.setattr("kproxy.record.live_view.watch.LONGEST_SEARCH", 1e6)
    async with viewing(masked.app, f"filter={guess}") as reader, listening(masked, f"filter={guess}") as tail:
        await keep(masked)
        (matched,) = {one["matched"] for one in [event.data for event in await reader.until("tick")]}
        await tail.lines(1)
    assert matched == 0
    assert not any("request" in line for line in await tail.lines(1))
    assert (await masked("GET", f"/api/exchanges?filter={guess}")).json["rows"] == []
    assert len((await masked("GET", "/api/exchanges?filter=value.mail+==+shown")).json["rows"]) == 2

    text = guess.replace("+", " ")
    told = []
    for one in (text, text.replace(SECRET, OTHER)):
        for rule in ({"kind": "intercept", "filter": one}, {"kind": "delay", "delay": "1s", "match": {"records": one}}):
            if not one.startswith("~") or "filter" in rule:
                answer = await masked("POST", "/api/check", json.dumps({"rules": [{"name": "a", **rule}]}))
                told.append((rule["kind"], str(answer.json.get("matches"))))
    assert len(set(told)) == len(told) // 2


@pytest.mark.parametrize(("token", "unmasked", "shown"), [("read", True, 0), ("full", False, 0), ("full", True, 1)])
async def test_originals_need_the_full_token_and_the_config(
    make_api: Any, token: str, unmasked: bool, shown: int
) -> None:
    api = make_api(RULES)
    await keep(api)
    api.backend.view = api.backend.view.model_copy(update={"unmasked": unmasked})
    api.backend.tokens = AdminTokens("full", "read")
    api.app = make_app(api.backend, "127.0.0.1")
    async with listening(api, "body=true", token=token) as tail:
        await tail.lines(1)
        api.proxy.server.taps.fanout.take(produced("orders", 9, batch()))
        answers = [json.dumps(await tail.lines(2)).encode()]
    paths = ("0-1", "0-1/capture", "0-1/frame?of=request&side=client")
    told = {"authorization": f"Bearer {token}"}
    answers += [(await api("GET", f"/api/exchanges/{path}", **told)).body for path in paths]
    assert [SECRET.encode() in found_in(one) for one in answers] == [bool(shown)] * 4


async def test_bodies_of_a_tail_are_masked(masked: Any) -> None:
    async with listening(masked, "body=true") as tail:
        await keep(masked)
        lines = await tail.lines(7)
    text = json.dumps(lines)
    assert SECRET.encode() not in found_in(text.encode())
    assert "shown" in text and "visible" in text


async def test_opened_captures_are_masked(masked: Any) -> None:
    masks = ViewerMasks(lambda: masked.backend.keeper.store.rule_set)

    class Spool:
        def __len__(self) -> int:
            return 1

        def exchange(self, number: int) -> Any:
            return produced("orders", 1, batch())

        def behind(self, number: int) -> Any:
            return produced("prod.orders", 1, batch())

        def is_changed(self, number: int) -> bool:
            return True

    class Opened:
        id, name, spool = "s1", "file", Spool()

    opened = SourceExchanges(cast("Any", Opened()), True, masks)
    cast("Any", opened).server_of = lambda kept: ("127.0.0.1", 9092)
    answers = [await opened.exchange(1, 0), await opened.saved_exchange(1)]
    answers += [await opened.exchange_frame(1, "request", cast("Any", side)) for side in ("client", "broker")]
    assert all(SECRET.encode() not in found_in(one.encode()) for one in answers)
    for guess in GUESSES:
        assert (await opened.exchanges(guess.replace("+", " "), None, 9)).rows == []
    assert len((await opened.exchanges("value.mail == shown", None, 9)).rows) == 1
    assert isinstance(opened.get(1), KeptExchange)


async def test_held_frames_are_masked_and_keep_their_records(make_api: Any) -> None:
    """Other fields can be set. The records leave as they came."""
    held = Held(make_api("rules:\n- {name: hold, kind: intercept, at: both}\n" + RULES.removeprefix("rules:\n")))
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch()}]}]
    held.talk.client(framed(message(0, 9, "request", {"acks": 1, "topic_data": data}, 1, "tester")))
    record = "topic_data[0].partition_data[0].records[0].records[0].value"
    answers = [await held.api("GET", "/api/held"), await held.api("GET", "/api/held/1-1")]
    answers.append(await held("preview", set=[{"path": "timeout_ms", "value": 7}]))
    assert '"value":7' in answers[-1].body.decode().replace(" ", "") or answers[-1].status == 200
    other = [{"path": "topic_data[0].name", "value": "bills"}]
    for change in ({"set": [{"path": record, "value": "x"}]}, {"set": other}, {"bytes": "AAAA"}):
        refused = await held("preview", **change)
        assert refused.status in (409, 422) and "masked by a rule" in refused.body.decode()
        answers.append(refused)
    assert all(SECRET.encode() not in found_in(one.body) for one in answers)
    assert b"visible" in found_in(answers[1].body)

    assert (await held("resume", set=[{"path": "timeout_ms", "value": 7}])).status == 200
    assert SECRET.encode() in held.talk.to_broker


async def test_masks_follow_the_rules_in_force(masked: Any) -> None:
    """Topics of no rule, and rules that are gone or in dry-run mode, do not mask."""
    masks = ViewerMasks(lambda: masked.backend.keeper.store.rule_set)
    other, own = produced("bills", 1, batch()), produced("orders", 2, batch())
    assert masks.exchange(other) is other
    assert masks.exchange(own) is not own and masks.hides(own, "request", own.request)
    assert (await masked("POST", "/api/rules/masked/disable")).status == 200
    assert not masks and masks.exchange(own) is own


@pytest.mark.parametrize(("token", "status"), [("read", 403), ("full", 200)])
async def test_captures_with_originals_need_the_full_token(
    make_api: Any, tmp_path: Path, token: str, status: int
) -> None:
    api = make_api(RULES, token="full", read="read")
    path = tmp_path / "orders.pcapng"
    path.write_bytes(b"originals")
    api.backend.captures = OneCapture(path)
    call = api("GET", "/api/captures/orders.pcapng/file", receive=trio.sleep_forever, authorization=f"Bearer {token}")
    assert (await call).status == status
