"""Rules by where they come from: what each operation leaves in force, and what it does not touch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.base.errors import DocumentError, NoSuchRule, RuleInUse
from kproxy.rules.document.store import ORIGINS, RuleStore
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Source

pytestmark = pytest.mark.usefixtures("tiny")


def source(*rules: str, file: str = "a.yaml", more: str = "") -> Source:
    """A document of rules in short form: a name of a tiny rule, or the inside of a mapping."""
    lines = [f"  - {{{rule if ':' in rule else f'name: {rule}, kind: tiny'}}}\n" for rule in rules]
    return Source(file, ("rules:\n" + "".join(lines) if rules else "rules: []\n") + more)


def api(*rules: str) -> Source:
    return source(*rules, file="<api>")


def names(store: RuleStore) -> list[str]:
    """Of the rules in force, in order."""
    return [rule.name for rule in store.rule_set.rules]


def running(store: RuleStore, name: str) -> ActiveRule:
    found = store[name].running
    assert found is not None
    return found


def scenario(*stages: str, repeat: str = "") -> str:
    lines = "".join(f"    - {{{stage}}}\n" for stage in stages)
    return f"scenario:\n{repeat}  stages:\n{lines}"


# ---- order and names


def test_the_order_is_files_then_api_then_tests() -> None:
    """Whatever came first in time."""
    store = RuleStore()
    store.put(source("t", file="<test>"), "test", 0)
    store.put(api("x"), "api", 0)
    store.replace_files([source("b", file="b.yaml"), source("a", "c")], 0)
    store.put(api("y"), "api", 0)

    assert names(store) == ["b", "a", "c", "x", "y", "t"]
    assert [store[name].origin for name in names(store)] == ["file"] * 3 + ["api"] * 2 + ["test"]
    assert store.rule_set.origins[1] == "a.yaml:2:5"


def test_a_replaced_rule_keeps_its_place() -> None:
    """It is another rule of the same name."""
    store = RuleStore()
    store.put(api("x", "y", "z"), "api", 0)
    store.put(api("name: y, kind: tiny, size: 5"), "api", 1)

    assert names(store) == ["x", "y", "z"]
    assert running(store, "y").rule.size == 5  # type: ignore[attr-defined]
    assert (store["x"].since, store["y"].since) == (0, 1)


def test_names_are_unique_over_all_origins() -> None:
    """The mistake stands at the one that comes later in order; nothing has changed."""
    store = RuleStore()
    store.put(api("x"), "api", 0)
    before = store.rule_set

    with pytest.raises(DocumentError) as caught:
        store.replace_files([source("a", "x")], 1)

    assert caught.value.mistakes == ['<api>:2:12: the name "x" is taken, first at a.yaml:3:5']
    assert store.rule_set is before
    store.replace_files([source("a")], 2)
    assert names(store) == ["a", "x"]


def test_a_name_of_another_origin_cannot_be_put() -> None:
    """With the place where the other one stands."""
    store = RuleStore()
    store.replace_files([source("a")], 0)
    store.put(api("x"), "api", 0)

    with pytest.raises(RuleInUse, match=r'"a" is in a file, at a\.yaml:2:5'):
        store.put(api("a"), "api", 1)
    with pytest.raises(RuleInUse, match='"x" is taken, by a rule of origin api'):
        store.put(source("x", file="<test>"), "test", 1)
    with pytest.raises(RuleInUse, match='"x" is taken'):
        store.put(api("x"), "api", 1, again=False)
    with pytest.raises(RuleInUse, match="is in a file"):
        store.remove("a", 1)
    with pytest.raises(NoSuchRule, match='unknown rule "aa", did you mean "a"'):
        store.remove("aa", 1)
    assert names(store) == ["a", "x"]


def test_rules_are_checked_across_origins() -> None:
    """As if they stood in one file; a rule that is off is not in the way of another."""
    store = RuleStore()
    store.replace_files([source("name: a, kind: advertise, host: h")], 0)
    second = "name: b, kind: advertise, host: i"

    with pytest.raises(DocumentError, match=r'<api>:2:5: this rule can never act, "a" advertises'):
        store.put(api(second), "api", 1)
    store.disable("a", 2)
    store.put(api(second), "api", 3)
    with pytest.raises(DocumentError, match="can never act"):
        store.enable("a", 4)
    assert names(store) == ["b"]


def test_the_same_name_twice_in_one_document_is_a_mistake() -> None:
    """Also where it would replace a rule."""
    store = RuleStore()
    store.put(api("x"), "api", 0)

    with pytest.raises(DocumentError, match=r'<api>:3:12: the name "x" is taken'):
        store.put(api("x", "x"), "api", 1)


def test_code_is_taken_from_files_only() -> None:
    """The reason is given; it is not even read as a rule."""
    store = RuleStore()

    with pytest.raises(DocumentError, match=r"<api>:2:21: rules of the kind tiny_code run code"):
        store.put(api("name: x, kind: tiny_code, nonsense: 1"), "api", 0)
    store.replace_files([source("name: x, kind: tiny_code")], 0)
    assert names(store) == ["x"]


# ---- what goes on


def test_counters_of_unchanged_rules_go_on() -> None:
    """A changed rule, one that moved to another file, and a new one start afresh."""
    store = RuleStore(seed=7)
    store.replace_files([source("a", "b", "c"), source("d", file="d.yaml")], 10)
    for name in "abcd":
        running(store, name).count(fired=True)
    kept = running(store, "a")

    change = store.replace_files([source("a", "name: b, kind: tiny, size: 1", "e"), source("c", file="d.yaml")], 20)

    assert running(store, "a") is kept
    assert {name: running(store, name).matched for name in names(store)} == {"a": 1, "b": 0, "e": 0, "c": 0}
    assert [(store[name].since, running(store, name).trigger.began) for name in "ab"] == [(10, 10), (20, 20)]
    assert [one.name for one in change.new] == ["b", "e"]
    assert [one.name for one in change.left] == ["b", "c", "d"]
    assert running(store, "b").seed == 7


def test_selectors_do_not_make_a_rule_another() -> None:
    """Models with compiled patterns are compared by what was written."""
    store = RuleStore()
    text = 'name: a, kind: tiny, match: {topic: "a*", api: Produce}, when: {nth: 2}'
    store.replace_files([source(text)], 0)
    first = running(store, "a")
    store.replace_files([source(text)], 1)

    assert running(store, "a") is first


def test_the_version_changes_exactly_when_the_content_does() -> None:
    """Also by what is turned off."""
    store = RuleStore()
    store.replace_files([source("a", "b")], 0)
    versions = [store.rule_set.id]
    store.replace_files([source("a", file="x.yaml"), source("b", file="y.yaml")], 1)
    versions.append(store.rule_set.id)
    store.disable("a", 2)
    versions.append(store.rule_set.id)
    store.enable("a", 3)
    versions.append(store.rule_set.id)

    assert versions[0] == versions[1] == versions[3] != versions[2]


def test_a_bad_document_changes_nothing() -> None:
    """Every mistake of every file is in the error; what was in force still is."""
    store = RuleStore()
    store.replace_files([source("a")], 0)
    before = store.rule_set

    with pytest.raises(DocumentError) as caught:
        store.replace_files([source("a", "name: b, kind: tinny"), Source("c.yaml", "rule: []")], 1)

    assert [line.split(": ")[0] for line in caught.value.mistakes] == ["a.yaml:3:21", "c.yaml:1:1"]
    assert store.rule_set is before


# ---- turning off


def test_disable_faults_turns_faults_off_and_nothing_else() -> None:
    """Nothing is lost by it; a reload does not undo it."""
    store = RuleStore()
    store.replace_files([source("a", "name: q, kind: tiny_quota", "name: r, kind: rename_topic, topics: {a: b}")], 0)
    running(store, "a").count(fired=True)

    change = store.disable_faults(True, 1)
    assert names(store) == ["q", "r"]
    assert [one.name for one in change.left] == ["a"]
    store.put(api("b"), "api", 2)
    assert names(store) == ["q", "r"]
    store.disable_faults(False, 3)
    assert names(store) == ["a", "q", "r", "b"]
    assert running(store, "a").matched == 1


def test_a_rule_that_is_off_stays_off_over_a_reload() -> None:
    """Until it is enabled, or gone, or put anew."""
    store = RuleStore()
    store.replace_files([source("a", "b")], 0)
    store.put(api("x"), "api", 0)
    store.disable("a", 1)
    store.disable("x", 1)

    store.replace_files([source("name: a, kind: tiny, size: 2", "b")], 2)
    assert names(store) == ["b"]
    store.put(api("x"), "api", 3)
    assert names(store) == ["b", "x"]
    store.replace_files([source("b")], 4)
    store.replace_files([source("a", "b")], 5)
    assert names(store) == ["a", "b", "x"]


def test_reset_starts_counts_and_triggers_anew() -> None:
    """`nth: 1` fires once more."""
    store = RuleStore()
    store.replace_files([source("name: a, kind: tiny, when: {nth: 1}", "b")], 0)
    a = running(store, "a")
    assert [a.trigger.fires(1), a.trigger.fires(1)] == [True, False]
    a.count(fired=True)

    assert store.reset("a", 5) == 1
    assert (a.matched, a.fired, a.trigger.fires(6)) == (0, 0, True)
    assert store.reset(None, 7) == 2
    with pytest.raises(NoSuchRule):
        store.reset("z", 7)


# ---- time


def test_rules_with_a_ttl_go_by_themselves() -> None:
    """Each at its own time; what is given for the whole document is for those that say nothing."""
    store = RuleStore()
    store.put(api("x", "name: y, kind: tiny, ttl: 5s"), "api", 100, ttl=30)
    store.put(api("z"), "api", 100)

    assert store.due(100) == 105
    assert [one.name for one in store.expire(105).left] == ["y"]
    assert names(store) == ["x", "z"]
    assert store.due(105) == 130
    store.expire(130)
    assert names(store) == ["z"]
    assert store.due(130) is None


@pytest.mark.parametrize(("ttl", "words"), [("0s", "more than 0"), ("soon", "duration"), ("[1]", "a list")])
def test_a_ttl_is_a_duration(ttl: str, words: str) -> None:
    """The mistake stands at its place."""
    with pytest.raises(DocumentError, match=rf"<api>:2:32: .*{words}"):
        RuleStore().put(api(f"name: x, kind: tiny, ttl: {ttl}"), "api", 0)


def test_a_file_has_no_ttl() -> None:
    """A file that is there says what is in force."""
    with pytest.raises(DocumentError, match='unknown key "ttl"'):
        RuleStore().replace_files([source("name: x, kind: tiny, ttl: 5s")], 0)


STAGES = scenario(
    "for: 10s, rules: [{name: one, kind: tiny}]",
    "for: 5s, name: quiet, rules: []",
    "for: 5s, rules: [{name: two, kind: tiny}, {name: three, kind: rename_topic, topics: {a: b}}]",
)


def test_stages_follow_each_other() -> None:
    """Beside the document's own rules; after the last one only those are left."""
    store = RuleStore()
    store.replace_files([source("base", more=STAGES), source("last", file="z.yaml")], 100)
    seen = []
    for now in (100, 109.9, 110, 115, 120, 130):
        store.expire(now)
        seen.append((now, names(store), store.due(now)))

    assert seen == [
        (100, ["base", "one", "last"], 110),
        (109.9, ["base", "one", "last"], 110),
        (110, ["base", "last"], 115),
        (115, ["base", "two", "three", "last"], 120),
        (120, ["base", "last"], None),
        (130, ["base", "last"], None),
    ]


def test_a_repeated_scenario_starts_its_rules_anew() -> None:
    """Triggers and effects, at the stage's own beginning, however late the timer was; counters go on."""
    store = RuleStore()
    text = scenario(
        "for: 10s, rules: [{name: one, kind: tiny, when: {nth: 1}}]", "for: 5s, rules: []", repeat="  repeat: 2\n"
    )
    store.replace_files([Source("s.yaml", text)], 0)
    one = running(store, "one")
    assert one.trigger.fires(1)
    assert not one.trigger.fires(2)
    one.count(fired=True)

    store.expire(10.5)
    assert not one.enabled
    store.expire(15.5)
    assert running(store, "one") is one
    assert (one.enabled, one.trigger.began, one.matched) == (True, 15, 1)
    assert one.trigger.fires(16)
    store.expire(30)
    assert names(store) == []
    assert store.due(30) is None


def test_an_unchanged_scenario_goes_on_through_a_reload() -> None:
    """A changed one begins again."""
    store = RuleStore()
    store.replace_files([source("base", more=STAGES)], 100)
    store.expire(112)
    store.replace_files([source("base", "other", more=STAGES)], 112)
    assert names(store) == ["base", "other"]
    store.replace_files([source("base", more=STAGES.replace("for: 10s", "for: 20s"))], 113)
    assert names(store) == ["base", "one"]


def test_stages_are_checked_each_beside_what_is_always_in_force() -> None:
    """Two stages may say what in one rule set would be a mistake; names are unique over all of them."""
    store = RuleStore()
    one, two = "{name: one, kind: advertise, host: h}", "{name: two, kind: advertise, host: i}"
    text = scenario(f"for: 1s, rules: [{one}]", f"rules: [{two}]")
    store.replace_files([Source("s.yaml", text)], 0)
    assert names(store) == ["one"]

    with pytest.raises(DocumentError, match=r's\.yaml:3:25: this rule can never act, "base"'):
        store.replace_files([source("name: base, kind: advertise, host: j"), Source("s.yaml", text)], 1)
    with pytest.raises(DocumentError, match='the name "one" is taken'):
        store.replace_files([Source("s.yaml", text.replace("two", "one"))], 1)


def test_a_rule_of_a_scenario_is_not_changed_alone() -> None:
    """The API's scenario is replaced or cleared as a whole."""
    store = RuleStore()
    store.put(Source("<api>", STAGES), "api", 0)

    with pytest.raises(RuleInUse, match="belongs to a scenario"):
        store.remove("one", 1)
    with pytest.raises(RuleInUse, match="belongs to a scenario"):
        store.put(api("one"), "api", 1)
    store.replace_api(api("one"), 2)
    assert names(store) == ["one"]
    assert store["one"].parsed.stage is None
    store.clear("api", 3)
    assert names(store) == []


# ---- any sequence of operations

NAMES = st.sampled_from("abcdef")
RULES = st.lists(NAMES, min_size=1, max_size=3)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("files"), st.lists(RULES, max_size=2)),
        st.tuples(st.just("put"), st.sampled_from(["api", "test"]), RULES, st.sampled_from([None, 3.0])),
        st.tuples(st.just("replace_api"), RULES),
        st.tuples(st.sampled_from(["remove", "enable", "disable"]), NAMES),
        st.tuples(st.just("disable_faults"), st.booleans()),
        st.tuples(st.just("expire"), st.just(None)),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(operations=OPERATIONS)
def test_any_sequence_of_operations_keeps_the_store_in_order(operations: list[tuple[Any, ...]]) -> None:
    """Names are unique, origins stand in their order, a refused operation changes nothing, an unchanged rule is the
    same object with its counters, and what is in force is exactly what is neither disabled nor a disabled fault."""
    store, now = RuleStore(), 0.0
    for operation in operations:
        now += 1
        before, version, objects = dict(store.stored_rules), store.rule_set, {}
        for name, kept in before.items():
            if kept.running is not None:
                kept.running.count(fired=False)
                objects[name] = kept.running, kept.running.matched
        try:
            do(store, operation, now)
        except (DocumentError, NoSuchRule, RuleInUse):
            assert store.rule_set is version
            assert store.stored_rules == before
        origins = [ORIGINS.index(kept.origin) for kept in store.stored_rules.values()]
        assert origins == sorted(origins)
        written = [one.name for stored in store.documents for one in stored.document.parsed_rules]
        assert len(written) == len(set(written)) == len(store.stored_rules)
        assert names(store) == [
            name for name in store.stored_rules if store.is_enabled(name) and not store.faults_disabled
        ]
        for name, (old, matched) in objects.items():
            kept = store.stored_rules.get(name)
            if kept is not None and kept.since == before[name].since:
                assert kept.running is old
                assert old.matched == matched


def do(store: RuleStore, operation: tuple[Any, ...], now: float) -> None:
    match operation:
        case "files", files:
            store.replace_files([source(*rules, file=f"{n}.yaml") for n, rules in enumerate(files)], now)
        case "put", origin, rules, ttl:
            store.put(source(*rules, file=f"<{origin}>"), origin, now, ttl=ttl)
        case "replace_api", rules:
            store.replace_api(api(*rules), now)
        case "expire", _:
            store.expire(now)
        case name, argument:
            getattr(store, name)(argument, now)


def test_a_refused_document_enables_nothing() -> None:
    """A rule that was disabled stays so when a document that would take its name is refused."""
    store = RuleStore()
    store.put(api("a"), "test", 0)
    store.disable("a", 1)
    with pytest.raises(DocumentError, match='the name "a" is taken'):
        store.replace_api(api("a"), 2)
    assert not store.is_enabled("a")
