"""mask: fields of records in each format, API and direction, and everything that cannot be read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from kproxy.base.errors import DocumentError
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.rules.content import edits
from kproxy.rules.content.schemas import Schema, SchemaCache, SchemaKey, decoder_of
from kproxy.rules.document.read import load_rules
from kproxy.session.commands import LoadSchemas
from kproxy.session.shared import ClusterState

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78
FIELDS = "fields: {value.customer.email: {fixed: '***'}}"
RULE = f"kind: mask\n{FIELDS}"
SECRET = uuid4().hex


def customer(email: str = SECRET) -> str:
    return json.dumps({"id": 1, "customer": {"email": email, "name": "Anna"}})


def values(data: Any) -> list[Any]:
    return [json.loads(one.value) if one.value else one.value for entry in entries(data) for one in decode(entry)]


MASKED = {"id": 1, "customer": {"email": "***", "name": "Anna"}}


@pytest.mark.parametrize("at", ["fetch", "produce"])
def test_every_format_is_masked(carried: Any, form: dict[str, int], at: str) -> None:
    talk = carried(f"{RULE}\nat: {at}")
    before = talk.batch(customer(), None, '{"id":2}', first=0, **form)
    after = talk.fetched(before)["records"] if at == "fetch" else talk.produced(before)

    assert values(after) == [MASKED, None, {"id": 2}]
    assert [offset for offset, _ in talk.read(after)] == [0, 1, 2]
    assert SECRET.encode() not in after


@pytest.mark.parametrize("version", [1, 3, 4])
def test_share_fetch_is_masked(carried: Any, version: int) -> None:
    talk = carried(RULE)
    topic_id = UUID(int=7)
    talk.knows("orders", topic_id)
    topic = {"topic_id": topic_id, "partitions": [{"partition_index": 0}]}
    talk.ask(SHARE_FETCH, min(version, 2), group_id="g", member_id="m", topics=[topic])
    part = {"partition_index": 0, "records": talk.batch(customer())}
    body = talk.answer(SHARE_FETCH, min(version, 2), responses=[{"topic_id": topic_id, "partitions": [part]}])

    assert values(body["responses"][0]["partitions"][0]["records"]) == [MASKED]


def test_parts_of_a_record_are_masked(carried: Any) -> None:
    talk = carried(
        "kind: mask\nfields: {key: {keep: {last: 2}}, value: {fixed: x}, header.user: {fixed: u}, "
        "'header.\"a b\"': null}"
    )
    record = Record(0, 0, b"anna@example.com", SECRET.encode(), (("user", b"anna"), ("a b", b"c"), ("z", b"1")))
    (after,) = (one for entry in entries(talk.fetched(encode_batch([record]))["records"]) for one in decode(entry))

    assert (after.key, after.value) == (b"***om", b"x")
    assert after.headers == (("user", b"u"), ("a b", None), ("z", b"1"))


def test_rules_on_one_field_apply_in_file_order(carried: Any) -> None:
    talk = carried(
        "kind: mask\nfields: {value.a: {keep: {first: 2}}}",
        "kind: mask, fields: {value.a: {keep: {last: 4}}}",
        "kind: mask, match: {topic: other}, fields: {value.a: null}",
    )
    assert values(talk.fetched(talk.batch('{"a":"12345678"}'))["records"]) == [{"a": "***2***"}]


def test_record_condition_selects_records(carried: Any) -> None:
    """A record that the condition cannot read is selected."""
    talk = carried(f'kind: mask\nmatch: {{topic: orders, records: "value.id == 1"}}\n{FIELDS}')
    plain = '{"id": 2, "customer": {"email": "x"}}'
    after = talk.fetched(talk.batch(customer(), plain, "{" + SECRET))["records"]

    assert values(after) == [MASKED, json.loads(plain)]
    assert SECRET.encode() not in after


CUT = encode_batch([Record(0, 0, None, customer().encode())])[:-9]
DEEP = '{"a":' * 70 + '"' + SECRET + '"' + "}" * 70
MAGIC3 = bytearray(encode_batch([Record(0, 0, None, customer().encode())]))
MAGIC3[16] = 3
UNREADABLE = {
    "text": f"mail {SECRET}",
    "not JSON": '{"customer": {"email": "' + SECRET,
    "wrong type": json.dumps({"customer": SECRET}),
    "framed": "\0\0\0\0\1" + customer(),
    "whitespace": "\n[" + customer() + "]",
    "bom": "\ufeff" + customer(),
    "depth": DEEP,
    "length": json.dumps({"customer": {"email": SECRET}, "x": "y" * (1 << 20)}),
}


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_values_are_withheld_or_rejected(carried: Any, value: str) -> None:
    talk = carried(RULE)
    before = talk.batch('{"id":2}', value, "{}")
    after = talk.fetched(before)["records"]
    assert talk.read(after) == [(5, '{"id":2}'), (7, "{}")]
    assert SECRET.encode() not in after
    assert (talk.rule.problems, SECRET in talk.rule.problem, "orders-0" in talk.rule.problem) == (1, False, True)

    talk = carried(f"{RULE}\non_unreadable: pass")
    assert talk.fetched(before)["records"] == before

    talk = carried(f"{RULE}\nat: produce")
    assert talk.produced(before) is None
    answer = talk.received(PRODUCE, 9)["responses"][0]["partition_responses"][0]
    assert (answer["error_code"], [one["batch_index"] for one in answer["record_errors"]]) == (87, [1])
    assert SECRET not in str(answer)


def unreadable_entries(talk: Any) -> dict[str, bytes]:
    """Bytes of records fields with entries that cannot be read."""
    whole = talk.batch(customer())
    damaged = bytearray(talk.batch(customer() + "x" * 500, codec=1))
    damaged[90] ^= 255
    codec = bytearray(whole)
    codec[22] |= 7
    many = bytearray(whole)
    many[57:61] = (1_000_000).to_bytes(4, "big")
    none = bytearray(whole)
    none[57:61] = bytes(4)
    return {
        "cut": CUT, "damaged": bytes(damaged), "codec": bytes(codec), "count": bytes(many), "no records": bytes(none),
        "magic": bytes(MAGIC3), "rest": b"\0" * 30 + SECRET.encode(),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cut", "damaged", "codec", "count", "no records", "magic", "rest"])
def test_unreadable_entries_are_emptied_or_rejected(carried: Any, name: str) -> None:
    """Batches keep their offsets, and batches around them are masked."""
    talk = carried(RULE)
    bad = unreadable_entries(talk)[name]
    before = talk.batch(customer(), first=0) + bad
    after = talk.fetched(before)["records"]
    whole = edits.whole_entries(after)[0]
    assert json.loads(next(iter(decode(whole[0]))).value) == MASKED
    assert SECRET.encode() not in after and len(after) < len(before)
    if name in ("damaged", "codec", "count", "no records"):
        assert [(one.count, one.last_offset) for one in whole[1:]] == [(0, 5)]

    talk = carried(f"{RULE}\nat: produce")
    assert talk.produced(bad) is None
    assert talk.received(PRODUCE, 9)["responses"][0]["partition_responses"][0]["error_code"] == 87


def test_bombs_and_budgets_withhold(carried: Any) -> None:
    """A higher limit applies to the next frame."""
    talk = carried(RULE)
    limits = talk.talk.session.shared.content
    limits.max_decompressed_bytes = 50_000
    bomb = talk.batch(customer() + " " * 200_000, codec=1)
    many = talk.batch(*[customer()] * 5, codec=1)
    after = talk.fetched(talk.batch(customer(), first=0) + bomb * 8 + many)["records"]

    assert SECRET.encode() not in after
    assert [len(list(decode(entry))) for entry in edits.whole_entries(after)[0]][1:] == [0] * 9

    limits.max_decompressed_bytes = 300_000
    assert [len(list(decode(entry))) for entry in edits.whole_entries(talk.fetched(bomb)["records"])[0]] == [1]
    talk = carried(f"{RULE}\nat: produce")
    talk.talk.session.shared.content.max_decompressed_bytes = 50_000
    assert talk.produced(bomb) is None
    talk = carried("kind: error\nmatch: {api: Produce, records: key == x}\nerror: 44\non_unreadable: reject")
    for limit, passed in ((50_000, None), (300_000, bomb)):
        talk.talk.session.shared.content.max_decompressed_bytes = limit
        assert talk.produced(bomb) == passed


def test_old_produce_gets_a_policy_violation(carried: Any) -> None:
    talk = carried(f"{RULE}\nat: produce")
    assert talk.produced(talk.batch("text"), version=7) is None
    assert talk.received(PRODUCE, 7)["responses"][0]["partition_responses"][0]["error_code"] == 44


def test_unreadable_responses_close_the_connection(carried: Any) -> None:
    """So does a version of an API that kproxy does not have."""
    talk = carried(RULE)
    talk.ask(
        FETCH, 12, max_wait_ms=500, session_epoch=-1, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}]
    )
    part = {"partition_index": 0, "records": talk.batch(customer())}
    frame = talk.frame(FETCH, 12, responses=[{"topic": "orders", "partitions": [part]}])
    talk.talk.broker((len(frame) - 7).to_bytes(4, "big") + frame[4:-3])

    assert SECRET.encode() not in talk.talk.to_client
    assert talk.talk.closed


def test_topic_ids_without_a_name_are_masked(carried: Any) -> None:
    talk = carried(f"kind: mask\nmatch: {{topic: orders}}\n{FIELDS}")
    assert talk.rule.rule.holds_for(entity_of(UUID(int=9)))
    assert not talk.rule.rule.holds_for(dataclasses.replace(entity_of(UUID(int=9)), topic="other"))


def entity_of(topic_id: UUID) -> Any:
    from kproxy.rules.entity import Entity

    return Entity(topic_id=topic_id, partition=0)


def test_dry_run_counts_and_changes_nothing(carried: Any) -> None:
    talk = carried(f"{RULE}\nmode: dry_run")
    before = talk.batch(customer(), "text")

    assert talk.fetched(before)["records"] == before
    assert (talk.rule.matched, talk.rule.fired, talk.rule.applied, talk.rule.problems) == (1, 1, 0, 1)


def test_unchanged_records_keep_the_bytes(carried: Any) -> None:
    talk = carried(RULE)
    before = talk.batch('{"id": 1}', '{"customer": null}', None, codec=4)

    assert talk.fetched(before)["records"] == before
    assert talk.rule.applied == 0


TAGS = """\
tags:
  PII:
  - {topic: "orders*", fields: [value.customer, key]}
  - {topic: other, fields: [value.x]}
  SECRET:
  - {topic: [orders, c], fields: ["value.list[*].pin"]}
"""


def tagged(folder: Path, tags: str = TAGS, **more: Any) -> str:
    (folder / "tags.yaml").write_text(tags)
    extra = "".join(f"\n{name}: {value}" for name, value in more.items())
    return f"kind: mask\ntags: {{PII: {{fixed: '***'}}, SECRET: null}}\ntags_file: {folder}/tags.yaml{extra}"


def test_tags_mask_leaves_and_yield_to_fields(carried: Any, tmp_path: Path) -> None:
    talk = carried(tagged(tmp_path, fields="{value.customer.email: {keep: {last: 1}}}"))
    before = {"customer": {"email": "anna", "more": [1, {"b": "c"}]}, "list": [{"pin": 1}, {"pin": 2}], "x": 1}
    after = talk.fetched(talk.batch(json.dumps(before)))["records"]

    expected = {"email": "***a", "more": ["***", {"b": "***"}]}
    assert values(after) == [{"customer": expected, "list": [{"pin": None}, {"pin": None}], "x": 1}]
    assert [one.key for entry in entries(after) for one in decode(entry)] == [b"***"]


def test_required_tags_withhold_untagged_topics(carried: Any, tmp_path: Path) -> None:
    tags = TAGS.replace("orders*", "c").replace("orders, ", "")
    before = carried.batch('{"a":1}', None)
    assert carried.read(carried(tagged(tmp_path, tags)).fetched(before)["records"]) == carried.read(before)
    assert carried.read(carried(tagged(tmp_path, tags, require_tags="true")).fetched(before)["records"]) == [(6, None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fields: {}", "expected fields or tags"),
        ("fields: {value.a..b: null}", "expected a path"),
        ("fields: {mail: null}", "expected a field such as value.customer.email"),
        ("fields: {value: null}", "tombstone"),
        ("fields: {key.a: null}, at: produce", "keys are masked on fetch only"),
        ("fields: {value.a: {}}", "expected one of fixed, keep and hash"),
        ("fields: {value.a: {fixed: 1, keep: {first: 1}}}", "expected one of fixed, keep and hash"),
        ("fields: {value.a: {keep: {fill: '-'}}}", "expected at least one of first, last"),
        ("fields: {value.a: {keep: {from_char: ab}}}", "1"),
        ("fields: {value.a: {keep: {first: -1}}}", "0"),
        ("fields: {value.a: {hash: {key: secret}}}", "expected file: and the name"),
        ("fields: {value.a: {hash: {key: 'file:/nowhere'}}}", "cannot be read"),
        ("fields: {value.a: {hash: {key: 'file:/proc/self/environ'}}}", "cannot be read"),
        ("fields: {value.a: null}, on_unreadable: reject", "expected withhold or pass with at: fetch, got reject"),
        ("fields: {value.a: null}, on_registry_down: pass", "expected hold or unreadable with at: fetch, got pass"),
        ("fields: {value.a: null}, on_unreadable: withhold, at: produce", "expected reject or pass"),
        ("tags: {PII: null}", "expected tags_file"),
        ("fields: {value.a: null}, require_tags: true", "expected tags with masks"),
    ],
)
def test_wrong_rules_are_rejected(mistakes_of: Any, text: str, expected: str) -> None:
    assert expected in " ".join(mistakes_of(f"kind: mask, {text}"))


def test_files_are_read_and_change_the_rule(tmp_path: Path) -> None:
    """Relative names start at the folder of the rules; no error quotes a file."""
    rules, key = tmp_path / "rules.yaml", tmp_path / "mask.key"
    rules.write_text("rules: [{name: r, kind: mask, fields: {value.a: {hash: {key: 'file:mask.key'}}}}]")
    key.write_text(SECRET + "\n")
    (first,) = load_rules([rules]).rules
    key.write_text(SECRET + "2\n")
    (second,) = load_rules([rules]).rules
    assert first.files == (str(key),) and first.content != second.content
    assert SECRET not in first.content + repr(first)

    rules.write_text("rules: [{name: r, " + tagged(tmp_path).replace("\n", ", ") + "}]")
    assert load_rules([rules]).rules[0].files == (f"{tmp_path}/tags.yaml",)
    for text, expected in (
        ("tags: {PII: [{fields: [x]}]}", 'expected "topic"'),
        ("tags: {PII: [{topic: a, fields: [x]}]}", "expected a field such as"),
        ("- " * 2, "tags.yaml:1"),
        ("\n" * 10_001, "expected at most 10000 lines"),
    ):
        (tmp_path / "tags.yaml").write_text(text)
        with pytest.raises(DocumentError, match=expected):
            load_rules([rules])
    key.write_text("short")
    rules.write_text("rules: [{name: r, kind: mask, fields: {value.a: {hash: {key: 'file:mask.key'}}}}]")
    with pytest.raises(DocumentError, match="key of at least 16 bytes, got 5"):
        load_rules([rules])


COMMIT = Record(2, 0, b"\0\0\0\1", bytes(6))
SET = "kind: set_field\nfields: {value.customer.email: '***'}"
FILTER = "kind: filter_records\nmatch: {records: value.id == 1}"
CLEAR, DOWN = {**MASKED, "customer": {"email": SECRET, "name": "Anna"}}, "on_registry_down: "
WAITED = [
    (RULE, "fetch", "loaded", [{"id": 2}, MASKED], 0.0),
    (RULE, "fetch", "not found", [{"id": 2}], 0.0),
    (RULE, "fetch", "down", [{"id": 2}], 0.5),
    (f"{RULE}\n{DOWN}hold\non_unreadable: pass", "fetch", "down", [{"id": 2}], 0.5),
    (f"{RULE}\n{DOWN}unreadable", "fetch", "down", [{"id": 2}], 0.0),
    (f"{RULE}\n{DOWN}unreadable\non_unreadable: pass", "fetch", "down", [{"id": 2}, CLEAR], 0.0),
    (FILTER, "fetch", "loaded", [{"id": 2}], 0.0),
    (FILTER, "fetch", "down", [{"id": 2}], 0.5),
    (f"{FILTER}\n{DOWN}unreadable", "fetch", "down", [{"id": 2}], 0.0),
    (SET, "fetch", "down", [{"id": 2}], 0.5),
    (RULE, "produce", "loaded", 0, 0.0),
    (RULE, "produce", "not found", 87, 0.0),
    (RULE, "produce", "down", 19, 0.0),
    (f"{RULE}\n{DOWN}retry\non_unreadable: pass", "produce", "down", 19, 0.0),
    (f"{RULE}\n{DOWN}reject\non_unreadable: pass", "produce", "down", 87, 0.0),
    (f"{RULE}\n{DOWN}pass", "produce", "down", -1, 0.0),
    (SET, "produce", "down", 19, 0.0),
    (f"{SET}\n{DOWN}pass", "produce", "down", -1, 0.0),
]


@pytest.mark.parametrize(("rule", "at", "outcome", "expected", "delay"), WAITED)
def test_records_wait_for_their_schema(
    carried: Any, rule: str, at: str, outcome: str, expected: Any, delay: float
) -> None:
    """While the registry does not respond, no record is lost: the client fetches or sends it again."""
    cache, shared = SchemaCache(lambda: 0.0), ClusterState()
    shared.find_schemas = lambda: cache
    shared.decoder = decoder_of(shared.find_schemas)
    talk = carried(f"{rule}\nat: {at}", shared=shared)
    data = talk.batch("\0\0\0\0\1" + customer(), first=1)
    if at == "fetch":
        data = talk.batch('{"id":2}', first=0) + data + encode_batch([COMMIT], base_offset=2, control=True)
        talk.ask(FETCH, 11, max_wait_ms=500, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}])
        part = {"partition_index": 0, "records": data}
        talk.talk.broker(talk.frame(FETCH, 11, responses=[{"topic": "orders", "partitions": [part]}]))
    else:
        talk.ask(PRODUCE, 9, topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": data}]}])
    (command,) = (one for one in talk.talk.log if isinstance(one, LoadSchemas))
    assert command.keys == (SchemaKey("id", "1"),)
    if outcome != "down":
        cache.put(command.keys[0], Schema("JSON", "{}", []) if outcome == "loaded" else None)
    talk.talk.session.schemas_ready(talk.talk.now)
    talk.talk.obey()

    if at == "fetch":
        assert bool(talk.talk.to_client) == (not delay)
        talk.talk.later(delay)
        after = talk.received(FETCH, 11)["responses"][0]["partitions"][0]["records"]
        found = list(entries(after))
        assert [
            json.loads(one.value[5 * one.value.startswith(b"\0") :])
            for entry in found
            if not entry.is_control
            for one in decode(entry)
        ] == expected
        assert [entry.base_offset for entry in found] == ([0] if delay else [0, 1, 2])
    elif expected > 0:
        (topic,) = talk.received(PRODUCE, 9)["responses"]
        assert topic["partition_responses"][0]["error_code"] == expected
    else:
        assert (SECRET.encode() in talk.talk.to_broker) == (expected < 0)
        assert (b"***" in talk.talk.to_broker) == (not expected)
