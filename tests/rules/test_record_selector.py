"""Record conditions in rules: in sessions, in every API with records, and the errors and warnings of documents."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from kproxy.base.errors import DocumentError
from kproxy.protocol import decode_request
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.rules.content import edits
from kproxy.rules.content.schemas import Schema, SchemaCache, SchemaKey, decoder_of
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import parse_rules, read_document
from kproxy.rules.kinds.base import record_selector
from kproxy.rules.values.source import Source
from kproxy.session.commands import LoadSchemas
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from kproxy.tools.rehearse.explain.target import explain_selectors, of_frame

GERMAN = Record(0, 1_000, b"k1", b'{"c": "DE", "n": 1}', (("replay", b"no"),))
FRENCH = Record(1, 2_000, b"k2", b'{"c": "FR", "n": 2}')
BROKEN = Record(0, 1_000, b"k3", b'{"c": "DE"')
TOPIC_ID = UUID(int=5)
PRODUCE, FETCH, SHARE_FETCH = (0, 9), (1, 11), (78, 1)


def batch(*records: Record, codec: int = 0, **fields: Any) -> bytes:
    numbered = [Record(number, one.timestamp, one.key, one.value, one.headers) for number, one in enumerate(records)]
    return encode_batch(numbered, codec=codec, **fields)


BOTH, LAST = batch(GERMAN, FRENCH), batch(FRENCH)


def rule(text: str) -> str:
    return f"rules: [{{name: r, {text}}}]"


def produce(*parts: bytes, version: int = 9, acks: int = 1, **topic: Any) -> bytes:
    listed = [{"index": index, "records": records} for index, records in enumerate(parts)]
    topic = topic or {"name": "orders"}
    return request(0, version, 1, acks=acks, timeout_ms=1, topic_data=[topic | {"partition_data": listed}])


def fetched(talk: Dialogue, *parts: bytes) -> list[dict[str, Any]]:
    """Fetch these partitions of orders, and return their response."""
    asked = [{"partition": index, "fetch_offset": 0} for index in range(len(parts))]
    talk.client(request(*FETCH, 1, topics=[{"topic": "orders", "partitions": asked}]))
    listed = [{"partition_index": index, "records": records} for index, records in enumerate(parts)]
    talk.broker(response(*FETCH, 1, responses=[{"topic": "orders", "partitions": listed}]))
    found: list[dict[str, Any]] = talk.responses(FETCH)[0].body["responses"][0]["partitions"]
    return found


def records(data: Any) -> list[Record]:
    return [record for entry in entries(data) for record in decode(entry)]


def sent(talk: Dialogue) -> list[int]:
    """Return the partitions of the last Produce that the broker got."""
    (topic,) = talk.requests()[-1].body["topic_data"]
    return [one["index"] for one in topic["partition_data"]]


ERROR = "kind: error, error: POLICY_VIOLATION, match: {topic: orders, records: value.c == DE}"


@pytest.mark.parametrize("codec", range(5))
def test_produce_loses_the_partitions_with_a_matching_record(codec: int) -> None:
    talk = Dialogue(rule(ERROR)).client(produce(batch(GERMAN, FRENCH, codec=codec), LAST, batch(FRENCH, GERMAN)))

    assert sent(talk) == [1]
    talk.broker(response(*PRODUCE, 1, responses=[{"name": "orders", "partition_responses": [{"index": 1}]}]))
    (topic,) = talk.responses(PRODUCE)[0].body["responses"]
    assert [one["error_code"] for one in topic["partition_responses"]] == [44, 0, 44]
    (counts,) = talk.rules.live
    assert (counts.matched, counts.fired, counts.applied) == (1, 1, 1)


def test_produce_without_a_matching_record_passes() -> None:
    frame = produce(LAST, LAST)
    talk = Dialogue(rule(ERROR)).client(frame).client(produce(BOTH, name="bills"))

    assert talk.to_broker == frame + produce(BOTH, name="bills")
    assert talk.rules.live[0].matched == 0


def test_a_partition_that_is_listed_twice_is_judged_by_its_place() -> None:
    parts = [{"index": 0, "records": one} for one in (BOTH, LAST)]
    frame = request(*PRODUCE, 1, acks=1, topic_data=[{"name": "orders", "partition_data": parts}])

    (topic,) = Dialogue(rule(ERROR)).client(frame).requests()[0].body["topic_data"]

    assert [bytes(one["records"]) for one in topic["partition_data"]] == [LAST]


def test_fetch_gets_errors_for_partitions_with_a_matching_record() -> None:
    talk = Dialogue(rule(ERROR))

    assert [(one["error_code"], bytes(one["records"] or b"")) for one in fetched(talk, BOTH, LAST)] == [
        (44, b""),
        (0, LAST),
    ]
    assert (talk.rules.live[0].matched, talk.rules.live[0].applied) == (1, 1)


def test_share_fetch_selects_by_the_records_of_its_response() -> None:
    talk = Dialogue(rule(ERROR.replace("topic: orders, ", "")))
    asked = [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    talk.client(request(*SHARE_FETCH, 1, group_id="g", member_id="m", share_session_epoch=0, topics=asked))
    parts = [{"partition_index": index, "records": one} for index, one in enumerate((BOTH, LAST))]
    talk.broker(response(*SHARE_FETCH, 1, responses=[{"topic_id": TOPIC_ID, "partitions": parts}]))

    (topic,) = talk.responses(SHARE_FETCH)[0].body["responses"]
    assert [one["error_code"] for one in topic["partitions"]] == [44, 0]


@pytest.mark.parametrize("kind", ["kind: set_record, value: x", "kind: drop_records", "kind: duplicate_records"])
def test_kinds_that_change_records_change_matching_records_only(kind: str) -> None:
    talk = Dialogue(rule(f"{kind}, match: {{topic: orders, records: value.c == DE}}"))

    (changed, same) = fetched(talk, BOTH, LAST)

    values = [one.value for one in records(changed["records"])]
    after = {"set_record": [b"x"], "drop_records": [], "duplicate_records": [GERMAN.value] * 2}
    assert values == [*after[kind.split()[1].rstrip(",")], FRENCH.value]
    assert bytes(same["records"]) == LAST


def test_corrupt_records_damages_batches_with_a_matching_record() -> None:
    talk = Dialogue(rule("kind: corrupt_records, match: {topic: orders, records: value.c == DE}"))

    first, second = fetched(talk, BOTH + LAST, LAST)

    assert bytes(first["records"]) != BOTH + LAST
    assert bytes(first["records"]).endswith(LAST)
    assert bytes(second["records"]) == LAST


NOT = {  # by the records of a partition; other records never exempt one
    "records": ("not: {records: value.c == DE}", [0, 1]),
    "all records": ("not: {records: value.n > 0}", []),
    "records and another line": ("not: {records: value.n > 0, client_id: other}", [0, 1]),
    "records of both": ("match: {records: value.n > 0}, not: {records: header.replay}", [0, 1]),
    "same records": ("match: {records: value.c == DE}, not: {records: header.replay}", []),
    "another record": ("match: {records: value.c == DE}, not: {records: value.c == FR}", [0]),
    "another API": ("not: {api: Fetch, records: value.n > 0}", [0, 1]),
    "partition": ("not: {partition: 1, records: value.n == 2}", [0]),
}


@pytest.mark.parametrize(("lines", "failing"), NOT.values(), ids=NOT)
def test_not_excludes_partitions_by_their_records(lines: str, failing: list[int]) -> None:
    talk = Dialogue(rule(f"kind: error, error: 44, {lines}")).client(produce(BOTH, LAST))
    left = [one for one in (0, 1) if one not in failing]

    assert (sent(talk) if left else talk.requests()) == left
    frame = produce(BOTH, LAST)[4:]
    target = of_frame(decode_request(frame), frame, {})
    found = explain_selectors(talk.rules.live[0].rule, target.subject)
    assert [one.partition for one in found.entities] == failing


def test_not_excludes_single_records_in_kinds_that_change_records() -> None:
    talk = Dialogue(rule("kind: set_record, value: x, not: {records: value.c == DE}"))

    assert [one.value for one in records(fetched(talk, BOTH)[0]["records"])] == [GERMAN.value, b"x"]


@pytest.mark.parametrize("side", ["match", "not"])
def test_unreadable_record_matches_only_rules_that_limit_clients(side: str) -> None:
    condition = f"{side}: {{api: Produce, records: value.c == DE}}"
    for damaged in (batch(BROKEN), batch(GERMAN, codec=3)[:-3], b"\0" * 30, batch(GERMAN, control=True)):
        if side == "match":
            passes = Dialogue(rule(f"kind: error, error: 44, {condition}")).client(produce(damaged))
            assert len(passes.requests()) == 1
        else:
            condition = "match: {api: Produce}, not: {records: value.c == DE}"
        assert not Dialogue(rule(f"kind: deny, {condition}")).client(produce(damaged)).requests()


def test_trigger_counts_requests_with_a_matching_record() -> None:
    talk = Dialogue(rule(f"{ERROR}, when: {{nth: 2}}"))
    for data in (BOTH, LAST, BOTH):
        talk.client(produce(data))

    assert len(talk.requests()) == 2
    assert (talk.rules.live[0].matched, talk.rules.live[0].fired) == (2, 1)


@pytest.mark.parametrize("mode", ["enforce", "dry_run"])
def test_dry_run_counts_what_enforce_does(mode: str) -> None:
    for text in (ERROR, "kind: set_record, value: x, match: {topic: orders, records: value.c == DE}"):
        talk = Dialogue(rule(f"{text}, mode: {mode}"))
        found = fetched(talk, BOTH)
        again = Dialogue(rule(f"{text}, mode: {mode}"))
        fetched(again, LAST)

        assert (bytes(found[0]["records"] or b"") == BOTH) == (mode == "dry_run")
        assert talk.rules.live[0].fired == 1
        if "error" in text:
            assert again.rules.live[0].fired == 0


def test_age_is_measured_from_unix_time() -> None:
    for now, count in ((60.0, 1), (62.5, 0)):
        talk = Dialogue(rule("kind: error, error: 44, match: {records: age > 1m}"), now=now)
        assert len(talk.client(produce(LAST)).requests()) == count


def test_requests_with_a_known_beginning_are_judged_by_their_records() -> None:
    talk = Dialogue(rule(ERROR))
    for data in (LAST, BOTH, LAST, BOTH, BOTH, LAST):
        talk.client(produce(data))

    assert len(talk.requests()) == 3


MISTAKES = {
    "value..a == 1": "expected a path of at most 64 steps such as .items[0].sku, got ..a (at column 1)",
    "topic == x": 'unknown field "topic"',
    "value.a >": "expected text, a number, true, false or null here, such as value.a == 1 (at column 10)",
    "''": "expected a condition such as value.country == DE, got empty text",
    "5": "expected a condition such as value.country == DE, got the number 5",
}


@pytest.mark.parametrize(("condition", "mistake"), MISTAKES.items())
def test_wrong_condition_is_an_error_of_the_document(condition: str, mistake: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_rules(rule(f"kind: error, error: 6, match: {{topic: x, records: {condition}}}"))
    assert mistake in str(caught.value)


REFUSED = {
    "kind: error, error: 6, match: {topic: x}, on_unreadable: reject": "expected on_unreadable with records",
    "kind: error, error: 6, match: {topic: x}, on_registry_down: pass": "expected on_registry_down with records",
    "kind: error, error: 6, match: {topic: x, records: value.a}, format: xml": "expected one of auto, text, json, avro",
    "kind: deny, match: {topic: x, records: value.a}": "expected match: {api: Produce} with records in a rule of the "
    "kind deny, got Fetch and ShareFetch: it decides about requests",
    "kind: delay, delay: 1s, not: {topic: x, records: value.a, error: 6}": "expected either records or error in not, "
    "got both",
    "kind: rename_topic, from: a, to: b, match: {records: value.a}": '"records"',
}


@pytest.mark.parametrize(("text", "mistake"), REFUSED.items())
def test_condition_that_a_rule_cannot_judge_is_an_error(text: str, mistake: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_rules(rule(text))
    assert mistake in str(caught.value)


WARNINGS = {
    "kind: error, error: 6, match: {topic: x, records: value.a}": "",
    "kind: error, error: 6, match: {records: value.a}": "decodes the records of every topic",
    "kind: error, error: 6, match: {topic: x}, not: {records: value.a}": "",
    "kind: error, error: 6, match: {topic: x}, format: json": "it has neither records nor fields",
    "kind: error, error: 6, match: {api: Metadata, records: value.a}": "Metadata carries no records, only Produce, "
    "Fetch, ShareFetch do",
    "kind: error, error: 6, at: request, match: {api: Fetch, topic: x, records: value.a}": 'it acts on requests, and '
    '"records" is known only when the response has come',
    "kind: delay, delay: 1s, at: response, when: {hold: true}, match: {api: Fetch, topic: x, records: value.a}":
        "nothing is held by a rule that selects records in responses",
}  # fmt: skip


@pytest.mark.parametrize(("text", "warning"), WARNINGS.items())
def test_lint_warns_about_conditions_without_effect_or_topic(text: str, warning: str) -> None:
    found = [one.text for one in lint_rules(read_document(Source("r.yaml", rule(text))).parsed_rules)]

    assert any(warning in one for one in found) if warning else not found, found


AVRO_DE = Record(0, 1_000, b"k1", b"\0\0\0\0\1" + b"\4DE")
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "c", "type": "string"}]}'
DENY = "kind: deny, match: {api: Produce, topic: orders, records: value.c == DE}"
NOT = "kind: error, error: 44, match: {topic: orders, records: key}, not: {records: value.c == DE}"
DOWN = ", on_registry_down: "
FOUND = [
    (ERROR, "loaded", 44), (ERROR, "not found", 0), (ERROR, "down", 19), (ERROR + DOWN + "pass", "down", 0),
    (ERROR + DOWN + "reject", "down", 44), (ERROR + ", on_unreadable: reject", "down", 19),
    (ERROR + ", mode: dry_run", "down", 0), (NOT, "loaded", 0), (NOT, "not found", 44), (NOT, "down", 19),
    (NOT + DOWN + "pass", "down", 0), (DENY, "loaded", 29), (DENY, "down", 19),
    ("kind: delay, delay: 1s, match: {topic: orders, records: value.c == DE}", "down", 0),
    (ERROR + ", format: avro", "loaded", 44), (ERROR + ", format: json", "loaded", 0),
    (ERROR + ", format: text", "loaded", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "outcome", "expected"), FOUND)
@pytest.mark.parametrize("key", [0, 1])
def test_partitions_wait_for_the_schemas_of_records(text: str, outcome: str, expected: int, key: int) -> None:
    cache, shared = SchemaCache(lambda: 0.0), ClusterState()
    shared.find_schemas = lambda: cache
    shared.decoder = decoder_of(shared.find_schemas)
    talk, data = Dialogue(rule(text), shared=shared), batch(AVRO_DE)
    if key == 0:
        talk.client(produce(data))
    elif "deny" not in text:
        talk.client(request(*FETCH, 1, max_wait_ms=500, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}]))
        part = {"partition_index": 0, "records": data}
        talk.broker(response(*FETCH, 1, responses=[{"topic": "orders", "partitions": [part]}]))
    else:
        return
    wanted = [one.keys for one in talk.log if isinstance(one, LoadSchemas)]
    assert wanted == ([] if "text" in text else [(SchemaKey("id", "1"),)])
    if outcome != "down":
        cache.put(SchemaKey("id", "1"), Schema("AVRO", SCHEMA, []) if outcome == "loaded" else None)
    talk.session.schemas_ready(talk.now)
    talk.obey()

    if key == 0 and not expected:
        assert bytes(talk.requests()[-1].body["topic_data"][0]["partition_data"][0]["records"]) == data
    elif key == 0:
        (topic,) = talk.responses(PRODUCE)[0].body["responses"]
        assert topic["partition_responses"][0]["error_code"] == expected
    else:  # held records are fetched again
        assert bool(talk.to_client) == (expected != 19 and "delay" not in text)
        talk.later(1.0 if "delay" in text else 0.5)
        part = talk.responses(FETCH)[0].body["responses"][0]["partitions"][0]
        assert part["error_code"] == (0 if expected == 19 else expected)
        assert bytes(part["records"] or b"") == (b"" if expected else data)


REASON = 'record matches rule "r"'
NAMED = {
    "named records": ("", 9, (BOTH, LAST), [(0, [(0, REASON)])]),
    "own message": (", message: wrong", 8, (batch(FRENCH, GERMAN, GERMAN),), [(0, [(1, "wrong"), (2, "wrong")])]),
    "before version 8": ("", 7, (BOTH,), [(0, None)]),
    "topic ids": ("", 13, (BOTH,), [(0, [(0, REASON)])]),
    "unreadable record": (", on_unreadable: reject", 9, (batch(FRENCH, BROKEN),), [(0, [(1, REASON)])]),
    "unreadable batch": (", on_unreadable: reject", 9, (b"x" * 70,), [(0, [(0, REASON)])]),
}  # fmt: skip


@pytest.mark.parametrize(("extra", "version", "parts", "failed"), NAMED.values(), ids=NAMED)
def test_error_names_the_matching_records(extra: str, version: int, parts: Any, failed: Any) -> None:
    talk = Dialogue(rule(ERROR.replace("topic: orders, ", "") + extra))
    talk.client(produce(*parts, version=version, **({"topic_id": TOPIC_ID} if version == 13 else {})))
    (topic,) = talk.responses((0, version))[0].body["responses"] if len(parts) == 1 else merged(talk)

    assert [
        (one["index"], [tuple(named.values()) for named in one["record_errors"]] if version > 7 else None)
        for one in topic["partition_responses"]
        if one["error_code"] == 44
    ] == failed


def merged(talk: Dialogue) -> Any:
    """Let the broker accept partition 1, and return the topics of the response."""
    talk.broker(response(*PRODUCE, 1, responses=[{"name": "orders", "partition_responses": [{"index": 1}]}]))
    return talk.responses(PRODUCE)[0].body["responses"]


def test_error_names_a_bounded_number_of_records() -> None:
    with patch.object(record_selector, "MOST_NAMED", 3):
        talk = Dialogue(rule(ERROR)).client(produce(batch(*[GERMAN] * 10)))
    (topic,) = talk.responses(PRODUCE)[0].body["responses"]

    assert [one["batch_index"] for one in topic["partition_responses"][0]["record_errors"]] == [0, 1, 2]


def test_error_without_acks_closes_the_connection_after_other_partitions() -> None:
    talk = Dialogue(rule(ERROR)).client(produce(BOTH, LAST, acks=0))

    assert sent(talk) == [1]
    assert talk.closed or talk.shut


COUNTED = {
    "error": (ERROR, {"seen": 2, "matched": 1, "rejected": 2}, PRODUCE),
    "error on fetch": (ERROR, {"seen": 2, "matched": 1}, FETCH),
    "set_record": ("kind: set_record, value: x, match: {records: value.c == DE}",
                   {"seen": 3, "matched": 1, "changed": 1}, FETCH),
    "drop_records": ("kind: drop_records, match: {records: value.c == DE}",
                     {"seen": 3, "matched": 1, "withheld": 1}, FETCH),
    "unreadable": ("kind: drop_records, match: {records: value.c ~ DE}",
                   {"seen": 3, "matched": 1, "withheld": 1, "unreadable": 1}, FETCH),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "api"), COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize("mode", ["enforce", "dry_run"])
@pytest.mark.parametrize("kept", [0, 1 << 15])
def test_records_are_counted_by_result(text: str, expected: Any, api: Any, mode: str, kept: int) -> None:
    talk = Dialogue(rule(f"{text}, mode: {mode}"))
    with patch.object(edits, "KEPT_RECORDS", kept):
        if api is PRODUCE:
            talk.client(produce(batch(FRENCH, GERMAN, GERMAN)))
        else:
            fetched(talk, batch(FRENCH, GERMAN, BROKEN))
    counts = {name: count for name, count in asdict(talk.rules.live[0].records).items() if count}

    assert counts == expected
