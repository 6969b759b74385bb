"""Whole messages with decoded records, as JSON, and decoded values in the details of an exchange."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from kproxy.cli.tui.details import record_text
from kproxy.protocol import apis
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.scan.sketch import Sketcher
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.exchange import Form
from kproxy.record.filters import ExchangeView, Filter
from kproxy.record.live_view import frame_steps
from kproxy.record.live_view.frame_steps import show_records
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.messages import messages_of
from kproxy.rules.content.schemas import Schema, SchemaCache, SchemaKey
from kproxy.rules.rule_set import RuleSet
from tests.support.exchange_factory import exchange
from tests.support.random_values import random_struct

ORDER = '{"type": "record", "name": "shop.Order", "fields": [{"name": "country", "type": "string"}]}'


@pytest.fixture
def cache() -> SchemaCache:
    made = SchemaCache(lambda: 0.0)
    made.put(SchemaKey("id", "7"), Schema("AVRO", ORDER, []))
    return made


def produced(*records: Record, codec: int = 0, form: Form = Form.WHOLE) -> Any:
    batch = encode_batch(list(records), codec=codec)
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]}
    return exchange("Produce", 9, body, {}, form=form)


def partition(seen: Any, cache: SchemaCache | None = None) -> dict[str, Any]:
    message = messages_of(seen, cache)["request"]
    found: dict[str, Any] = message["topic_data"][0]["partition_data"][0]
    return found


@pytest.mark.parametrize("api", apis(), ids=lambda api: api.name)
def test_every_message_becomes_json(api: Any) -> None:
    random = Random(api.key)
    for version in {api.versions.first, api.versions.last}:
        structs = [layout.body(api.key, version, direction) for direction in ("request", "response")]
        bodies = [random_struct(struct, random) for struct in structs]
        for form in (Form.WHOLE, Form.HEAD):
            found = json.loads(json.dumps(messages_of(exchange(api.name, version, *bodies, form=form))))
            for direction, struct in zip(("request", "response"), structs, strict=True):
                names = {slot.name for slot in struct.all_slots}
                assert "omitted" in found[direction] or names <= found[direction].keys()


def test_filters_of_viewers_read_avro_and_never_wait(cache: SchemaCache) -> None:
    wanted: list[SchemaKey] = []
    cache.want = wanted.append
    masks, found = ViewerMasks(lambda: RuleSet([]), lambda cluster: cache), Filter("value.country == DE")
    for known in (b"\0\0\0\0\7\4DE", b"\0\0\0\0\7\4FR", b"\0\0\0\0\x08\4DE"):
        seen = masks.for_filter(produced(Record(0, 0, None, known)))
        assert found.holds(ExchangeView(seen, dict)) == known.endswith(b"\7\4DE")
    assert wanted == [SchemaKey("id", "8")]


def test_records_are_decoded_by_their_schema_and_form(cache: SchemaCache) -> None:
    headers = (("a", b"1"), ("a", None), ("raw", b"\xff"))
    seen = produced(
        Record(0, 5, b"k", b"\0\0\0\0\x07\x04DE", headers), Record(1, 5, None, b'{"n": 18446744073709551617}'),
        Record(2, 5, b"\xff", None), codec=1,
    )  # fmt: skip
    found = partition(seen, cache)
    assert found["index"] == 0
    assert "omitted" not in found
    assert found["batches"][0]["codec"] == "gzip"
    assert found["records"] == [
        {"offset": 0, "timestamp": 5, "key": "k", "value": {"country": "DE"}, "value_format": "avro",
         "value_schema_id": 7, "value_schema": "shop.Order", "headers": [
             {"name": "a", "value": "1"}, {"name": "a", "value": None}, {"name": "raw", "value": {"base64": "/w=="}}]},
        {"offset": 1, "timestamp": 5, "key": None, "value": {"n": 2**64 + 1}, "value_format": "json", "headers": []},
        {"offset": 2, "timestamp": 5, "key": {"base64": "/w=="}, "value": None, "headers": []},
    ]  # fmt: skip


def test_omitted_records_and_bytes_are_counted(cache: SchemaCache, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(number, 5, None, b"x" * 100) for number in range(5)]
    seen = produced(*records)
    sketcher = Sketcher(PRODUCE, 9, "request")
    sketcher.feed(seen.request.data, 0, len(seen.request.data))
    seen.request.sketch, seen.request.form = sketcher.data(), Form.HEAD
    assert partition(seen) == {"index": 0, "records": [], "batches": [], "omitted": 5}
    cut = messages_of(produced(*records, form=Form.HEAD))["request"]
    assert cut == {"omitted": produced(*records).request.size, "why": "its bytes were not kept"}
    monkeypatch.setattr(frame_steps, "LONGEST_VALUE", 99)
    assert partition(produced(*records))["records"][0]["value"] == {"omitted": 100}
    monkeypatch.setattr(frame_steps, "MOST_RECORDS", 2)
    found = partition(produced(*records))
    assert (len(found["records"]), found["omitted"]) == (2, 3)


def test_the_names_of_a_schema_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SchemaCache(lambda: 0.0)
    cache.put(SchemaKey("id", "7"), Schema("AVRO", ORDER.replace("country", "c" * 200), []))
    monkeypatch.setattr(frame_steps, "MOST_SHOWN", 500)
    found = partition(produced(*[Record(number, 5, None, b"\0\0\0\0\x07\x04DE") for number in range(9)]), cache)
    assert (len(found["records"]), found["omitted"]) == (3, 6)


def test_credentials_are_withheld() -> None:
    seen = exchange("SaslAuthenticate", 2, {"auth_bytes": b"\0me\0secret"}, {"auth_bytes": b"more secret"})
    assert "secret" not in json.dumps(messages_of(seen))


def test_details_have_decoded_values_and_pending_ones(cache: SchemaCache) -> None:
    wanted: list[SchemaKey] = []
    cache.want = wanted.append
    seen = produced(
        Record(0, 5, b"k", b"\0\0\0\0\x07\x04DE"), Record(1, 5, b"\0\0\0\0\x08k", b"{}"),
        Record(2, 5, None, b"\0\0\0\0\x07"),
    )  # fmt: skip
    (shown,) = show_records(seen, records=True, cache=cache)
    decoded = [record["decoded"] for record in shown["batches"][0]["records"]]
    schema = {"schema_id": 7, "schema": "shop.Order"}
    assert decoded[0] == {"value": {"value": {"country": "DE"}, "format": "avro", **schema}}
    assert decoded[1]["key"] | {"value": ""} == {"value": "", "pending": True, "schema_id": 8}
    assert decoded[2]["value"] | {"value": ""} == {
        "value": "", "why": "expected more bytes than the 0 of the datum", **schema,
    }  # fmt: skip
    assert wanted == [SchemaKey("id", "8")]
    lines = [record_text(record) for record in shown["batches"][0]["records"]]
    assert [line.partition("Z  ")[2] for line in lines] == [
        '"k"  shop.Order#7 {"country": "DE"}', 'schema#8 (pending)  "{}"',
        "null  shop.Order#7 (expected more bytes than the 0 of the datum)",
    ]  # fmt: skip
    (plain,) = show_records(seen, records=True)
    assert [record["decoded"] for record in plain["batches"][0]["records"]] == [None] * 3
