"""The rule store as a state machine beside a model: any sequence of operations, with shortest examples.

The model is a list of rules in order and says of each where it came from, since when it is there, when it goes, whether
it is enabled and in force, what it has counted and at which number its trigger is. After each step:

- the store lists the rules of the model, in order, each as the model says; in force are exactly those that are enabled,
  not killed and, of a scenario, of the stage whose time it is
- a rule that an operation did not change keeps its counters, its trigger and its object; any other is a new one, with a
  higher number than all before it
- an operation that is refused, for the reason that the model gives, leaves all as it was, as does one that is undone
- what an operation says is new, or has left, is; the next thing due is when the model says
- the version is the same exactly when the rules in force are
- no mistake of an earlier document is left to be told again
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kproxy.base.errors import DocumentError, NoSuchRule, RuleInUse
from kproxy.rules.document.store import RuleStore, StoreChange
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Source

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
ORIGINS = ("file", "api", "test")
LIVE = ("tiny", "tiny_quota")
BODIES = {
    "tiny": "kind: tiny, when: {every: 2}",
    "tiny_quota": "kind: tiny_quota, when: {every: 2}",
    "rename_topic": "kind: rename_topic",
    "advertise": "kind: advertise, host: h",
}
BAD = (
    "", "rules: [", "rules: {}", "rule: []", "rules: [{name: x, kind: tinny}]", "rules: [{kind: tiny}]",
    "rules: [{name: x, kind: tiny, sise: 1}]", "rules: [{name: x, kind: tiny, size: y}]",
    "rules: [{name: x, kind: tiny}, {name: x, kind: tiny}]", "rules: [{name: x, kind: tiny, ttl: 0s}]",
    "rules: []\nscenario: {stages: []}", "rules: []\nscenario: {repeat: 2, stages: [{rules: []}]}",
    "rules: []\nscenario: {stages: [{for: 1s, rules: [{name: x}]}]}",
)  # fmt: skip
"""Documents with a mistake, wherever they come from."""


@dataclass(frozen=True)
class Wanted:
    """A rule as somebody writes it. `stage` and `began` are its scenario's."""

    name: str
    kind: str
    size: int = 0
    ttl: float | None = None
    origin: str = ""
    file: str = ""
    stage: int | None = None
    scenario: Scenario | None = None
    began: float = 0.0  # its scenario
    until: float | None = None

    @property
    def content(self) -> tuple[str, str, int]:
        return self.name, self.kind, self.size if self.kind != "advertise" else 0

    @property
    def is_same(self) -> tuple[Any, ...]:
        """What a rule that goes on has in common with the one that was there."""
        return self.content, self.origin, self.file, self.stage, self.began


@dataclass(frozen=True)
class Scenario:
    """Stages of so many, 5 and 5 seconds: with the rule s0, without any, with the rule s2."""

    length: int
    repeat: int | bool

    def moment(self, elapsed: float) -> tuple[int, float, float] | None:
        """The stage, when it began and when it ends."""
        rounds, rest = divmod(elapsed, self.length + 10)
        if self.repeat is not True and rounds >= self.repeat:
            return None
        start = rounds * (self.length + 10)
        bounds = (0, self.length, self.length + 5, self.length + 10)
        stage = next(number for number in range(3) if rest < bounds[number + 1])
        return stage, start + bounds[stage], start + bounds[stage + 1]

    @property
    def text(self) -> str:
        repeat = "true" if self.repeat is True else str(self.repeat)
        stages = ", ".join(
            f"{{for: {length}s, rules: [{one}]}}"
            for length, one in (
                (self.length, f"{{name: s0, {BODIES['tiny']}}}"), (5, ""), (5, f"{{name: s2, {BODIES['tiny']}}}"),
            )
        )  # fmt: skip
        return f"scenario: {{repeat: {repeat}, stages: [{stages}]}}\n"


@dataclass(frozen=True)
class Written:
    """A document."""

    rules: tuple[Wanted, ...]
    scenario: Scenario | None = None

    def source(self, file: str) -> Source:
        lines = []
        for one in self.rules:
            size = f", size: {one.size}" if one.kind in LIVE else ""
            size = f", topics: {{{one.name}-{one.size}: up.{one.name}-{one.size}}}" if "rename" in one.kind else size
            ttl = f", ttl: {one.ttl:g}s" if one.ttl is not None else ""
            lines.append(f"  - {{name: {one.name}, {BODIES[one.kind]}{size}{ttl}}}\n")
        more = self.scenario.text if self.scenario is not None else ""
        return Source(file, ("rules:\n" + "".join(lines) if lines else "rules: []\n") + more)

    def wanted(self, origin: str, file: str, now: float, ttl: float | None = None) -> list[Wanted]:
        """What it asks for, its scenario beginning at `now`."""
        found = []
        for one in self.rules:
            after = one.ttl if one.ttl is not None else ttl
            found.append(replace(one, origin=origin, file=file, ttl=None, until=None if after is None else now + after))
        for stage in (0, 2) if self.scenario is not None else ():
            until = None if ttl is None else now + ttl
            found.append(Wanted(f"s{stage}", "tiny", 0, None, origin, file, stage, self.scenario, now, until))
        return found


@dataclass
class Entry:
    """A rule in the store. `running` is None until it has been in force, or when it does not count."""

    wanted: Wanted
    since: float
    active: bool = False
    running: ActiveRule | None = None
    matched: int = 0
    fired: int = 0
    seen: int = 0  # by its trigger
    restarted: float = 0.0  # when that began

    def __deepcopy__(self, memo: Any) -> Entry:
        return replace(self)

    def begins(self, now: float) -> float | None:
        one = self.wanted
        if one.scenario is None:
            return self.since
        at = one.scenario.moment(now - one.began)
        return one.began + at[1] if at is not None and at[0] == one.stage else None


@dataclass
class Model:
    """What the store should be."""

    entries: dict[str, Entry] = field(default_factory=dict)
    off: frozenset[str] = frozenset()
    faults_disabled: bool = False
    new: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def of(self, origin: str) -> list[Wanted]:
        return [entry.wanted for entry in self.entries.values() if entry.wanted.origin == origin]

    def of_all(self) -> list[Wanted]:
        return [entry.wanted for entry in self.entries.values()]

    # ---- operations; each returns why it is refused, or None

    def replace_files(self, documents: list[tuple[str, Written]], now: float) -> type[Exception] | None:
        wanted = []
        for file, document in documents:
            before = next((entry.wanted for entry in self.entries.values() if self.in_scenario(entry, file)), None)
            for one in document.wanted("file", file, now):
                goes_on = one.scenario is not None and before is not None and before.scenario == one.scenario
                wanted.append(replace(one, began=before.began) if goes_on and before is not None else one)
        return self.adopt([*wanted, *self.of("api"), *self.of("test")], self.off, now)

    def in_scenario(self, entry: Entry, file: str) -> bool:
        return entry.wanted.file == file and entry.wanted.scenario is not None

    def replace_api(self, document: Written, now: float, ttl: float | None) -> type[Exception] | None:
        wanted = document.wanted("api", "<api>", now, ttl)
        off = self.off - {one.name for one in wanted}
        return self.adopt([*self.of("file"), *wanted, *self.of("test")], off, now)

    def put(self, origin: str, document: Written, now: float, ttl: float | None, again: bool) -> type[Exception] | None:
        wanted = document.wanted(origin, f"<{origin}>", now, ttl)
        names = [one.name for one in wanted]
        if len(names) > len(set(names)):
            return DocumentError
        for one in wanted:
            old = self.entries.get(one.name)
            if old is not None and (
                old.wanted.origin != origin or origin == "file" or not again
                or one.stage is not None or old.wanted.stage is not None
            ):  # fmt: skip
                return RuleInUse
        places = {one.name: one for one in wanted}
        kept = [places.pop(one.name, one) for one in self.of(origin)]
        mine = [*kept, *places.values()]
        everything = [one for each in ORIGINS for one in (mine if each == origin else self.of(each))]
        return self.adopt(everything, self.off - set(names), now)

    def remove(self, name: str, now: float) -> type[Exception] | None:
        if name not in self.entries:
            return NoSuchRule
        one = self.entries[name].wanted
        if one.origin == "file" or one.stage is not None:
            return RuleInUse
        return self.adopt([each.wanted for each in self.entries.values() if each.wanted is not one], self.off, now)

    def clear(self, origin: str, now: float) -> type[Exception] | None:
        return self.adopt([one.wanted for one in self.entries.values() if one.wanted.origin != origin], self.off, now)

    def turn(self, name: str, on: bool, now: float) -> type[Exception] | None:
        if name not in self.entries:
            return NoSuchRule
        off = self.off - {name} if on else self.off | {name}
        return self.adopt(self.of_all(), off, now)

    def disable_faults(self, on: bool, now: float) -> type[Exception] | None:
        self.faults_disabled = on
        return self.take_over(self.of_all(), self.off, now)

    def expire(self, now: float) -> type[Exception] | None:
        over = [one for one in self.of_all() if one.until is not None and one.until <= now]
        scenarios = {(one.origin, one.file, one.began) for one in over if one.stage is not None}
        stays = [
            one
            for one in self.of_all()
            if one not in over and (one.stage is None or (one.origin, one.file, one.began) not in scenarios)
        ]
        return self.take_over(stays, self.off, now)

    def reset(self, name: str | None, now: float) -> type[Exception] | None:
        if name is not None and name not in self.entries:
            return NoSuchRule
        for entry in self.entries.values() if name is None else [self.entries[name]]:
            if entry.running is not None:
                entry.matched = entry.fired = entry.seen = 0
                entry.restarted = now
        return None

    def due(self, now: float) -> float | None:
        ends = [one.wanted.until for one in self.entries.values() if one.wanted.until is not None]
        for one in self.entries.values():
            if one.wanted.scenario is not None:
                at = one.wanted.scenario.moment(now - one.wanted.began)
                ends.append(inf if at is None else one.wanted.began + at[2])
        return min((end for end in ends if end < inf), default=None)

    # ---- inside

    def adopt(self, wanted: list[Wanted], off: frozenset[str], now: float) -> type[Exception] | None:
        names = [one.name for one in wanted]
        hosts = [one for one in wanted if one.kind == "advertise" and one.name not in off]
        if len(names) > len(set(names)) or len(hosts) > 1:
            return DocumentError
        return self.take_over(wanted, off, now)

    def take_over(self, wanted: list[Wanted], off: frozenset[str], now: float) -> None:
        before, self.entries = self.entries, {}
        self.new = []
        for one in wanted:
            old = before.get(one.name)
            if old is not None and old.wanted.is_same == one.is_same:
                entry = replace(old, wanted=one)
            else:
                entry = Entry(one, now)
            self.entries[one.name] = entry
            if old is None or old.wanted.content != one.content:
                self.new.append(one.name)
            begins = entry.begins(now)
            fault = one.kind == "tiny"
            entry.active = begins is not None and one.name not in off and not (self.faults_disabled and fault)
            if entry.active and entry.running is not None and one.stage is not None:
                assert begins is not None
                if entry.restarted < begins:
                    entry.seen, entry.restarted = 0, begins
        self.off = off & set(self.entries)
        self.left = [
            name
            for name, old in before.items()
            if old.active and old.wanted.kind in LIVE
            if (now_ := self.entries.get(name)) is None or not now_.active or now_.running is not old.running
        ]


NAMES = st.sampled_from(("a", "b", "c", "d"))
ANY_NAME = st.sampled_from(("a", "b", "c", "d", "s0", "s2", "nobody"))
KINDS = st.sampled_from(("tiny", "tiny", "tiny", "tiny_quota", "rename_topic", "advertise"))
SIZES = st.sampled_from((0, 0, 1))
TTLS = st.sampled_from((None, None, 3.0, 12.0))
RULES = st.builds(Wanted, NAMES, KINDS, SIZES)
RULES_THAT_GO = st.builds(Wanted, NAMES, KINDS, SIZES, TTLS)
SCENARIOS = st.one_of(
    st.none(), st.none(), st.builds(Scenario, st.sampled_from((5, 10)), st.sampled_from((1, 2, True)))
)
FILE_DOCUMENTS = st.builds(Written, st.lists(RULES, max_size=3).map(tuple), SCENARIOS)
FILES = st.lists(
    st.tuples(st.sampled_from(("0.yaml", "1.yaml")), FILE_DOCUMENTS), max_size=2, unique_by=lambda one: one[0]
)
DOCUMENTS = st.builds(Written, st.lists(RULES_THAT_GO, max_size=3).map(tuple), SCENARIOS)
TIMES = st.sampled_from((0.5, 1.0, 3.0, 4.5, 10.0, 40.0))


class StoreMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(documents=FILES, document=DOCUMENTS)
    def begins(self, documents: list[tuple[str, Written]], document: Written) -> None:
        """With some rules in files, and some from the API."""
        self.store, self.model, self.now = RuleStore(seed=7), Model(), 100.0
        self.versions: dict[tuple[Any, ...], str] = {}
        self.born = 0
        self.files_are_read(documents, False)
        self.rules_are_put("api", document, None, True, False)

    def both(
        self, does: Callable[[RuleStore], Any], says: Callable[[Model], type[Exception] | None], *, undo: bool = False
    ) -> None:
        """The same operation of store and model."""
        store, was = self.store, deepcopy(self.model)
        state = store.rule_set, store.stored_rules, store.documents, store.off, store.faults_disabled, store.born
        refused = says(self.model)
        if refused is not None:
            with pytest.raises(refused):
                does(store)
            assert (
                store.rule_set,
                store.stored_rules,
                store.documents,
                store.off,
                store.faults_disabled,
                store.born,
            ) == state
            assert store.rule_set is state[0] and store.stored_rules is state[1]
            self.model = was
            return
        saved = store.saved()
        change = does(store)
        if isinstance(change, StoreChange):
            assert [one.name for one in change.new] == self.model.new
            assert [one.name for one in change.left] == self.model.left
        self.learn()
        if undo:
            self.agrees()
            store.restore(saved, self.now)
            self.model = was
            self.model.take_over([one.wanted for one in was.entries.values()], was.off, self.now)
            self.learn()

    def learn(self) -> None:
        """Rules that were put to work by this are new ones."""
        for name, entry in self.model.entries.items():
            if entry.active and entry.running is None and entry.wanted.kind in LIVE:
                running = self.store[name].running
                assert running is not None
                assert running.born > self.born, f"{name} is none that is new"
                begins = entry.begins(self.now)
                assert begins is not None
                entry.running, entry.restarted = running, begins
        self.born = self.store.born

    # ---- operations

    @rule(documents=FILES, undo=st.booleans())
    def files_are_read(self, documents: list[tuple[str, Written]], undo: bool) -> None:
        """Those that are there now."""
        self.both(
            lambda store: store.replace_files([one.source(file) for file, one in documents], self.now),
            lambda model: model.replace_files(documents, self.now),
            undo=undo,
        )

    @rule(
        origin=st.sampled_from(("api", "test")), document=DOCUMENTS, ttl=TTLS, again=st.booleans(), undo=st.booleans()
    )
    def rules_are_put(self, origin: Any, document: Written, ttl: float | None, again: bool, undo: bool) -> None:
        """Added, or those of the same names replaced."""
        self.both(
            lambda store: store.put(document.source(f"<{origin}>"), origin, self.now, ttl=ttl, again=again),
            lambda model: model.put(origin, document, self.now, ttl, again),
            undo=undo,
        )

    @rule(document=DOCUMENTS, ttl=TTLS)
    def api_rules_are_replaced(self, document: Written, ttl: float | None) -> None:
        """All of them."""
        self.both(
            lambda store: store.replace_api(document.source("<api>"), self.now, ttl=ttl),
            lambda model: model.replace_api(document, self.now, ttl),
        )

    @rule(name=ANY_NAME, undo=st.booleans())
    def rule_is_removed(self, name: str, undo: bool) -> None:
        """Or is not there, or stands where it cannot be."""
        self.both(lambda store: store.remove(name, self.now), lambda model: model.remove(name, self.now), undo=undo)

    @rule(origin=st.sampled_from(("api", "test")))
    def origin_is_cleared(self, origin: Any) -> None:
        """With its scenario."""
        self.both(lambda store: store.clear(origin, self.now), lambda model: model.clear(origin, self.now))

    @rule(name=ANY_NAME, on=st.booleans(), undo=st.booleans())
    def rule_is_turned(self, name: str, on: bool, undo: bool) -> None:
        """On or off."""
        self.both(
            lambda store: store.enable(name, self.now) if on else store.disable(name, self.now),
            lambda model: model.turn(name, on, self.now),
            undo=undo,
        )

    @rule(on=st.booleans())
    def faults_are_switched(self, on: bool) -> None:
        """Or as they were."""
        self.both(lambda store: store.disable_faults(on, self.now), lambda model: model.disable_faults(on, self.now))

    @rule(name=st.one_of(st.none(), ANY_NAME))
    def counters_are_reset(self, name: str | None) -> None:
        """Of one rule, or of all."""
        if name is None:
            count = sum(entry.running is not None for entry in self.model.entries.values())
            assert self.store.reset(None, self.now) == count
            self.model.reset(None, self.now)
        else:
            self.both(lambda store: store.reset(name, self.now), lambda model: model.reset(name, self.now))

    @rule(text=st.sampled_from(BAD), way=st.sampled_from(("file", "api", "test", "all")))
    def mistake_is_made(self, text: str, way: Any) -> None:
        """Alone, or in one file of two. It changes nothing."""

        def does(store: RuleStore) -> None:
            bad = Source("bad", text)
            if way == "file":
                store.replace_files([Written(()).source("0.yaml"), bad], self.now)
            elif way == "all":
                store.replace_api(bad, self.now)
            else:
                store.put(bad, way, self.now)

        self.both(does, lambda model: DocumentError)

    @rule(way=st.sampled_from(("ttl in a file", "code")))
    def rule_comes_a_wrong_way(self, way: str) -> None:
        """What is right elsewhere is a mistake here."""
        if way == "code":
            source = Source("<api>", "rules: [{name: x, kind: tiny_code}]")
            self.both(lambda store: store.put(source, "api", self.now), lambda model: DocumentError)
        else:
            source = Source("0.yaml", "rules: [{name: x, kind: tiny, ttl: 3s}]")
            self.both(lambda store: store.replace_files([source], self.now), lambda model: DocumentError)

    # ---- traffic and time

    @precondition(lambda self: any(entry.active for entry in self.model.entries.values()))
    @rule(times=st.integers(1, 3))
    def requests_come(self, times: int) -> None:
        """All rules in force count them, and every second one fires."""
        for running in self.store.rule_set.live:
            entry = self.model.entries[running.name]
            for _ in range(times):
                entry.seen += 1
                fires = entry.seen % 2 == 0
                assert running.trigger.fires(self.now) is fires
                running.count(fired=fires)
                entry.matched += 1
                entry.fired += fires

    @rule(seconds=TIMES, late=st.booleans())
    def time_passes(self, seconds: float, late: bool) -> None:
        """What is due is done, or will be by the next who comes."""
        self.now += seconds
        if not late:
            self.both(lambda store: store.expire(self.now), lambda model: model.expire(self.now))

    # ---- what always holds

    @invariant()
    def agrees(self) -> None:
        store, entries = self.store, self.model.entries
        assert list(store.stored_rules) == list(entries)
        for name, entry in entries.items():
            kept, one = store[name], entry.wanted
            assert (kept.origin, kept.parsed.source.file, kept.parsed.stage) == (one.origin, one.file, one.stage), name
            assert (kept.since, kept.until, kept.active) == (entry.since, one.until, entry.active), name
            assert store.is_enabled(name) is (name not in self.model.off)
            assert kept.running is entry.running
            if entry.running is not None:
                running = entry.running
                assert (running.matched, running.fired) == (entry.matched, entry.fired), name
                assert (running.trigger.began, running.enabled) == (entry.restarted, entry.active), name
        assert store.off == self.model.off and store.faults_disabled is self.model.faults_disabled
        assert store.due(self.now) == self.model.due(self.now)

    @invariant()
    def puts_into_force(self) -> None:
        active = [entry for entry in self.model.entries.values() if entry.active]
        rules = self.store.rule_set
        assert [one.name for one in rules.rules] == [entry.wanted.name for entry in active]
        assert [getattr(one, "size", 0) for one in rules.rules if one.kind in LIVE] == [
            entry.wanted.size for entry in active if entry.wanted.kind in LIVE
        ]
        assert list(rules.live) == [entry.running for entry in active if entry.running is not None]
        version = self.versions.setdefault(tuple(entry.wanted.content for entry in active), rules.id)
        assert version == rules.id
        assert len(set(self.versions.values())) == len(self.versions)

    @invariant()
    def no_mistake_is_left(self) -> None:
        assert not any(stored.document.source.lines() for stored in self.store.documents)


@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.usefixtures("tiny")
def test_the_store_is_as_its_model_after_any_sequence_of_operations() -> None:
    """See the module."""
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=2000 if EVERYTHING else 40, stateful_step_count=60 if EVERYTHING else 40, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
