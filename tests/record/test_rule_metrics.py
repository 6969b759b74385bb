"""What rules counted, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kproxy.record.component_collectors import RuleCollector
from kproxy.record.metrics.traffic import exposition, registry
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source
from kproxy.runtime.rule_keeper import Loads

RULES = """
rules:
  - {name: a, kind: delay, delay: 1s}
  - {name: b, kind: delay, delay: 1s}
  - {name: names, kind: rename_topic, topics: {a: b}}
  - {name: c, kind: disconnect, close_with: fin}
  - {name: d, kind: delay, delay: 1s}
"""


LABELS = ("rule", "kind", "result", "state", "family", "version", "origin")


WORDS = ("matched", "fired", "applied", "problems")


def samples(store: RuleStore, most: int) -> dict[tuple[str, tuple[str, ...]], float]:
    text = b"".join(exposition(registry(RuleCollector(store, Loads({"file": 3}, {"api": 2}), most)))).decode()
    return {
        (sample.name, tuple(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("kproxy_")
    }


def test_every_live_rule_has_its_lines() -> None:
    """And the store says what is in force."""
    store = RuleStore()
    store.replace_files([Source("r.yaml", RULES)], 0)
    running = store["a"].running
    assert running is not None
    running.count(fired=True)
    running.count(fired=False)
    running.was_applied()
    running.failed(ValueError("x"))
    store.disable("c", 1)
    found = samples(store, 1000)

    counted = {word: found[f"kproxy_rule_{word}_total", ("a", "delay")] for word in WORDS}
    assert counted == {"matched": 2, "fired": 1, "applied": 1, "problems": 1}
    assert ("kproxy_rule_fired_total", ("names", "rename_topic")) not in found
    assert found["kproxy_rules_info", (store.rule_set.id,)] == 1
    by_family = {labels: value for (name, labels), value in found.items() if name == "kproxy_rules" and value}
    assert by_family == {("in_force", "fault"): 3, ("in_force", "names"): 1, ("off", "fault"): 1}
    assert found["kproxy_rules_loaded_total", ("file",)] == 3
    assert found["kproxy_rules_rejected_total", ("api",)] == 2
    assert found["kproxy_faults_disabled", ()] == 0


def test_rules_beyond_the_limit_are_added_up() -> None:
    """By kind, so that no number of rules makes more labels than that; nothing counted is lost."""
    store = RuleStore()
    store.replace_files([Source("r.yaml", RULES)], 0)
    for name in "abcd":
        running = store[name].running
        assert running is not None
        running.count(fired=True)
    found = samples(store, 1)

    assert {key: value for key, value in found.items() if key[0] == "kproxy_rule_fired_total"} == {
        ("kproxy_rule_fired_total", ("a", "delay")): 1,
        ("kproxy_rule_fired_total", ("other", "delay")): 2,
        ("kproxy_rule_fired_total", ("other", "disconnect")): 1,
    }


def test_faults_are_told_from_what_is_there_for_good() -> None:
    rules = """
rules:
  - {name: fault, kind: refuse, match: {client_address: 10.0.0.1}}
  - {name: permanent, kind: refuse, permanent: true, match: {client_address: 10.0.0.1}}
  - {name: access, kind: deny, match: {api: Produce}}
  - {name: quota, kind: quota, per: [client_id], requests: 1}
"""
    store = RuleStore()
    store.replace_files([Source("r.yaml", rules)], 0)
    text = b"".join(exposition(registry(RuleCollector(store, Loads({"file": 3}, {"api": 2}), 1000)))).decode()
    found = {
        sample.labels["rule"]: sample.labels["fault"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kproxy_rule_applied_total"
    }
    assert found == {"fault": "true", "permanent": "false", "access": "false", "quota": "false"}


def test_records_have_lines_for_rules_that_have_seen_some() -> None:
    store = RuleStore()
    store.replace_files([Source("r.yaml", RULES)], 0)
    for name, seen in (("a", 3), ("b", 2), ("c", 1)):
        running = store[name].running
        assert running is not None
        running.records.seen, running.records.matched = seen, 1
    found = {
        labels: number for (name, labels), number in samples(store, 1).items() if name == "kproxy_rule_records_total"
    }

    results = ("seen", "matched", "changed", "withheld", "rejected", "unreadable")
    assert {labels[-1] for labels in found} == {*results}
    assert (found["a", "delay", "seen"], found["other", "delay", "seen"], found["other", "disconnect", "matched"]) == (
        3, 2, 1,
    )  # fmt: skip
