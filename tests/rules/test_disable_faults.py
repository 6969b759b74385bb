"""Disabled faults: which rules of each kind are turned off, and which stay in force."""

from __future__ import annotations

import textwrap

import pytest
import yaml

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules, read_document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.values.source import Source

STAYS = {
    "names": ("rename_topic", "rename_group", "rename_transactional_id", "prefix", "advertise", "limit_versions"),
    "access": ("deny", "require", "read_only", "allow_from"),
    "quota": ("quota",),
    "content": ("add_header", "filter_records", "set_field", "mask"),
    "code": ("python",),
}
STAYS_KINDS = {kind: family for family, kinds in STAYS.items() for kind in kinds}
ALL = {kind: STAYS_KINDS.get(kind, model.family) for kind, model in KINDS.items()}
MAY_LAST = [kind for kind, model in KINDS.items() if "permanent" in model.model_fields]


def example(kind: str, **more: object) -> str:
    (rule, *_) = yaml.safe_load(textwrap.dedent(KINDS[kind].example))
    rule.pop("when", None)
    return yaml.safe_dump({"rules": [{**rule, "name": kind, **more}]})


def store_of(text: str, file: str = "f.yaml") -> RuleStore:
    store = RuleStore()
    store.replace_files([read_document(Source(file, text))], 0.0)
    return store


def test_most_kinds_are_faults() -> None:
    assert len([kind for kind in ALL if ALL[kind] == "fault"]) > len(STAYS_KINDS) < len(ALL) - len(MAY_LAST)
    assert {"refuse", "delay", "set_record"} <= set(MAY_LAST) <= {kind for kind in ALL if ALL[kind] == "fault"}


@pytest.mark.parametrize("kind", ALL)
def test_disable_faults(kind: str) -> None:
    """Faults go, whatever is loaded while they are off, and come back; all else is in force all the time."""
    store = store_of(example(kind))
    fault = ALL[kind] == "fault"
    assert store[kind].rule.family == ALL[kind]
    assert store[kind].active

    store.disable_faults(True, 1.0)
    assert store[kind].active is not fault
    store.replace_files([read_document(Source("f.yaml", example(kind)))], 2.0)
    elsewhere = {"match": {"listener": "b"}, "not": {"listener": "c"}} if ALL[kind] == "names" else {}
    more = example(kind, **elsewhere).replace(f"name: {kind}", "name: another")
    if elsewhere:  # beside one of its own kind it must be for other connections
        store.replace_files([read_document(Source("f.yaml", example(kind, match={"listener": "a"})))], 2.0)
    store.put(read_document(Source("<api>", more)), "api", 2.0)
    assert [kept.active for kept in store.stored_rules.values()] == [not fault] * 2
    assert [rule.name for rule in store.rule_set.rules] == ([] if fault else [kind, "another"])

    store.disable_faults(False, 3.0)
    assert [kept.active for kept in store.stored_rules.values()] == [True] * 2


@pytest.mark.parametrize("kind", MAY_LAST)
def test_what_lasts_stays(kind: str) -> None:
    store = store_of(example(kind, permanent=True))
    store.disable_faults(True, 1.0)

    assert store[kind].active
    assert store[kind].rule.family == "fault"


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in MAY_LAST])
def test_others_cannot_last(kind: str) -> None:
    with pytest.raises(DocumentError, match='unknown key "permanent"'):
        parse_rules(example(kind, permanent=True))


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("kind: refuse, not: {client_address: 10.0.0.0/8}", True),
        ("kind: refuse, not: {client_address: 10.0.0.0/8}, permanent: true", False),
        ("kind: refuse, not: {client_address: 10.0.0.0/8}, when: {for: 5s}", False),
        ("kind: refuse, match: {client_address: 10.0.0.0/8}", False),
    ],
)
def test_refuse_as_a_list_of_who_may_come(line: str, warned: bool) -> None:
    (rule,) = parse_rules(f"rules: [{{name: r, {line}}}]").rules
    assert isinstance(rule, LiveRule)

    assert any("permanent: true" in text and "kind: allow_from" in text for text in rule.warnings()) is warned
