"""However many records a batch has, or batches a partition, rules about records work on them in short stretches.

By default sampled: three forms for each rule. KPROXY_TEST_ALL=1 takes all forms.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from kproxy.protocol.records import encode_batch, encode_message_set
from kproxy.protocol.records.record import Record
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.records_rule import RecordsRule
from kproxy.session.commands import BROKER
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.stretches import ALL_CASES, IN_BOTH_UNITS, READ, Unit, Watch, batch, large

PRODUCE, FETCH = (0, 9, 2), (1, 11, 3)
"""API key, version with batches, version with message sets."""

FORMS = ("plain", "gzip", "snappy", "lz4", "zstd", "batches", "headers", "values", "set", "set in one message")
RULES: dict[str, dict[str, Any]] = {
    "twice": {"kind": "duplicate_records"},
    "half": {"kind": "drop_records", "fraction": 0.5},
    "none": {"kind": "drop_records", "fraction": 1.0},
    "value": {"kind": "set_record", "value": "x"},
    "timestamp": {"kind": "set_record", "timestamp_by": "1h"},
    "header": {"kind": "set_record", "headers": {"a": None}},
    "flipped": {"kind": "corrupt_records", "bits": 64},
    "poison": {"kind": "poison_records", "fraction": 0.9, "bytes": 1000},
    "disorder": {"kind": "reorder_records"},
    "codec": {"kind": "malformed_batch", "defect": "unknown_codec"},
    "abort": {"kind": "malformed_batch", "defect": "double_abort", "at": "fetch"},
    "empty": {"kind": "empty_fetch", "max_bytes": 1_000_000},
    "bits": {"kind": "corrupt", "where": "records", "bits": 1_000_000, "match": {"api": "Fetch"}},
    "mark": {"kind": "set_watermark", "offset_by": -10},
    "small": {"kind": "require", "max_record": 1},
    "added": {"kind": "add_header", "headers": {"a": "{now}", "h1": "other"}},
    "masked": {"kind": "mask", "at": "produce", "on_unreadable": "pass", "fields": {"value.a": None}},
    "withheld": {"kind": "filter_records", "match": {"records": 'value ~ "v$"'}},
    "field": {"kind": "set_field", "fields": {"value.a": 1}, "on_unreadable": "pass"},
    "traced": {"kind": "add_header", "headers": {"traceparent": "{traceparent}"}, "replace": False},
    "packed": {"kind": "require", "compression": ["zstd"]},
}
FETCH_ONLY = {"empty_fetch", "set_watermark", "corrupt", "filter_records"}


@cache
def records(form: str, count: int) -> bytes:
    """Return the records of a partition in this form: `count` records, or one record with `count` headers."""
    match form:
        case "plain" | "gzip" | "snappy" | "lz4" | "zstd":
            return batch(count, FORMS.index(form))
        case "batches":
            return b"".join(encode_batch([Record(at, 1, b"k", b"v")]) for at in range(count))
        case "values":
            return encode_batch([Record(at, 1, b"k", b"v" * 1000) for at in range(count // 20)])
        case "headers":
            return encode_batch([Record(0, 1, b"k", b"v", tuple((f"h{at}", b"x") for at in range(count)))])
        case _:
            made = [Record(at, 1_700_000_000_000 + at, b"k", b"v" * 20) for at in range(count)]
            return encode_message_set(made, 1, codec=0 if form == "set" else 1)


def ways(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """The rule for what is written, and for what is read, where it can be about both."""
    if rule["kind"] == "require" or rule["kind"] in FETCH_ONLY or "at" in rule:
        return [rule]
    return [rule | {"at": at} for at in ("produce", "fetch")]


CASES = [
    (name, at, form)
    for number, name in enumerate(RULES)
    for at in range(len(ways(RULES[name])))
    for form in (FORMS if ALL_CASES else dict.fromkeys((FORMS[(number + at) % len(FORMS)], "batches", "values")))
]


@IN_BOTH_UNITS
@pytest.mark.parametrize(("name", "at", "form"), CASES)
def test_rule_with_many_records_yields(name: str, at: int, form: str, unit: Unit) -> None:
    rule = ways(RULES[name])[at]
    fetch = rule.get("at") == "fetch" or rule["kind"] in FETCH_ONLY
    key, new, old = FETCH if fetch else PRODUCE
    version = old if form.startswith("set") else new
    asked, said = (large(key, version, way, 1, records=records(form, unit.count)) for way in ("request", "response"))

    def work(watch: Watch) -> None:
        talk = Dialogue(json.dumps({"rules": [{"name": "r"} | rule]}))
        with watch:
            talk.client(asked, READ)
            if talk.closed is None and talk.out[BROKER]:
                talk.broker(said, READ)
        assert sum(live.matched for live in talk.rules.live) > 0

    draws = (
        name == "poison" and unit.name == "lines"
    )  # the 1,000 bytes that change in a record are drawn in one stretch
    unit.check(work, 15_000 if draws else None)


def test_all_kinds_that_change_records_are_measured() -> None:
    changing = {kind for kind, model in KINDS.items() if issubclass(model, RecordsRule)}
    assert changing <= {rule["kind"] for rule in RULES.values()}
