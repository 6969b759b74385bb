"""The kill switch: which rules of which kinds it turns off, and which it leaves."""

from __future__ import annotations

import textwrap

import pytest
import yaml

from kproxy.errors import DocumentError
from kproxy.rules.document import parse_rules, read_document
from kproxy.rules.kinds import CLASSES, KINDS
from kproxy.rules.kinds.live import LiveRule
from kproxy.rules.source import Source
from kproxy.rules.store import RuleStore

STAYS = {
    "names": ("rename_topic", "rename_group", "rename_transactional_id", "prefix", "advertise", "limit_versions"),
    "access": ("deny", "require", "read_only", "allow_from"),
    "quota": ("quota",),
    "code": ("python",),
}
MAY_LAST = (
    "refuse", "set", "set_record", "drop_records", "throttle_time", "delay", "bandwidth", "hide_topic", "hide_node",
    "preferred_replica", "set_watermark",
)  # fmt: skip
"""Faults that may be meant for good."""
FAULTS = (
    *MAY_LAST, "error", "slice", "blackhole", "disconnect", "drop", "truncate", "short_body", "bad_length",
    "wrong_correlation_id", "duplicate_response", "reorder_responses", "trailing_bytes", "unknown_tag", "corrupt",
    "stale_metadata", "move_leader", "no_leader", "shift_epoch", "add_node", "wrong_address", "recreate_topic",
    "change_partitions", "no_controller", "rebalance", "move_coordinator", "rewind_offset", "omit_offset",
    "drop_commit", "bad_assignment", "fence_producer", "short_session", "empty_fetch", "duplicate_records",
    "reorder_records", "corrupt_records", "poison_records", "malformed_batch",
)  # fmt: skip
ALL = {**dict.fromkeys(FAULTS, "fault"), **{kind: family for family, kinds in STAYS.items() for kind in kinds}}


def example(kind: str, **more: object) -> str:
    """A document with the kind's own example."""
    (rule, *_) = yaml.safe_load(textwrap.dedent(KINDS[kind].example))
    rule.pop("when", None)
    return yaml.safe_dump({"rules": [{**rule, "name": kind, **more}]})


def store_of(text: str, file: str = "f.yaml") -> RuleStore:
    store = RuleStore()
    store.replace_files([read_document(Source(file, text))], 0.0)
    return store


def test_every_kind_has_a_line() -> None:
    assert sorted(ALL) == sorted(CLASSES)


@pytest.mark.parametrize("kind", ALL)
def test_kill(kind: str) -> None:
    """Faults go, whatever is loaded while they are off, and come back; all else is in force all the time."""
    store = store_of(example(kind))
    fault = ALL[kind] == "fault"
    assert store[kind].rule.family == ALL[kind]
    assert store[kind].active

    store.kill(True, 1.0)
    assert store[kind].active is not fault
    store.replace_files([read_document(Source("f.yaml", example(kind)))], 2.0)
    elsewhere = {"match": {"listener": "b"}, "not": {"listener": "c"}} if ALL[kind] == "names" else {}
    more = example(kind, **elsewhere).replace(f"name: {kind}", "name: another")
    if elsewhere:  # beside one of its own kind it must be for other connections
        store.replace_files([read_document(Source("f.yaml", example(kind, match={"listener": "a"})))], 2.0)
    store.put(read_document(Source("<api>", more)), "api", 2.0)
    assert [kept.active for kept in store.kept.values()] == [not fault] * 2
    assert [rule.name for rule in store.rule_set.rules] == ([] if fault else [kind, "another"])

    store.kill(False, 3.0)
    assert [kept.active for kept in store.kept.values()] == [True] * 2


@pytest.mark.parametrize("kind", MAY_LAST)
def test_what_lasts_stays(kind: str) -> None:
    store = store_of(example(kind, lasting=True))
    store.kill(True, 1.0)

    assert store[kind].active
    assert store[kind].rule.family == "fault"


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in MAY_LAST])
def test_others_cannot_last(kind: str) -> None:
    with pytest.raises(DocumentError, match='unknown key "lasting"'):
        parse_rules(example(kind, lasting=True))


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("kind: refuse, not: {client_address: 10.0.0.0/8}", True),
        ("kind: refuse, not: {client_address: 10.0.0.0/8}, lasting: true", False),
        ("kind: refuse, not: {client_address: 10.0.0.0/8}, when: {for: 5s}", False),
        ("kind: refuse, match: {client_address: 10.0.0.0/8}", False),
    ],
)
def test_refuse_as_a_list_of_who_may_come(line: str, warned: bool) -> None:
    """The panic button would open the door: it is said when such a rule loads."""
    (rule,) = parse_rules(f"rules: [{{name: r, {line}}}]").rules
    assert isinstance(rule, LiveRule)

    assert any("lasting: true" in text and "kind: allow_from" in text for text in rule.warnings()) is warned
