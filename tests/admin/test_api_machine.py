"""The admin API as a state machine: any sequence of requests about rules, beside a model of what they mean.

After each step the list of rules is the model's: their order, where they came from, what they say, whether they are on
and in force, and their counters. Each request has the status and the code that the model says; one that is refused has
changed nothing. The state of faults and the counters of rules outlive loads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
YAML = "application/yaml"
IN_FILE = "base"
FILE = f"rules:\n  - {{name: {IN_FILE}, kind: delay, delay: 5ms}}\n"
FREE = st.sampled_from(("a", "größe/2 b"))
NAMES = st.sampled_from(("a", "größe/2 b", IN_FILE))
KINDS = st.sampled_from(("delay", "rename_topic"))
SIZES = st.integers(1, 2)
ORIGINS = st.sampled_from(("api", "test"))
MISTAKES: dict[str, tuple[str, str | None, int, str]] = {
    "no such kind": ('{"kind": "dealy"}', "application/json", 422, "invalid_document"),
    "no such field": ("kind: delay\ndelay: 1ms\nsise: 2\n", YAML, 422, "invalid_document"),
    "no rule": ("[]", YAML, 422, "invalid_document"),
    "no JSON": ('{"kind": ', "application/json", 422, "invalid_document"),
    "another name": ('{"name": "other", "kind": "delay", "delay": "1ms"}', "application/json", 422, "invalid_document"),
    "no text": ("kind: delay", "image/png", 415, "unsupported_media_type"),
    "no end, though of a test": ("kind: delay\ndelay: 1ms\n", YAML, 422, "invalid_query"),
    "in the file": ("kind: delay\ndelay: 1ms\n", YAML, 409, "rule_in_use"),
}


def percent(name: str) -> str:
    """As it stands in a path."""
    return "".join(f"%{byte:02X}" for byte in name.encode())


@dataclass
class Rule:
    """What the model knows of one."""

    name: str
    kind: str
    size: int
    origin: str
    enabled: bool = True
    worked: bool = False  # it has been in force, so it has counters
    hits: int = 0

    @property
    def counts(self) -> bool:
        return self.kind == "delay"

    @property
    def written(self) -> dict[str, Any]:
        """Its fields."""
        what: dict[str, Any] = {"delay": f"{self.size}ms"}
        if not self.counts:
            topic = self.name.encode().hex()
            what = {"topics": {f"in-{topic}": f"out-{topic}-{self.size}"}}
        return {"kind": self.kind, **what}


class ApiMachine(RuleBasedStateMachine):
    """See the module. `rules` are in the order of the list."""

    def __init__(self, make_api: Callable[[str], Any]) -> None:
        super().__init__()
        self.api = make_api(FILE)
        self.faults_disabled = False
        self.stored = [Rule(IN_FILE, "delay", 5, "file", worked=True)]

    def teardown(self) -> None:
        self.api.close()

    # ---- the model

    def find(self, name: str) -> Rule | None:
        return next((one for one in self.stored if one.name == name), None)

    def in_force(self, one: Rule) -> bool:
        return one.enabled and not (self.faults_disabled and one.counts)

    def settle(self) -> None:
        """By origin, then as they came; who is in force now has counters from now on."""
        self.stored.sort(key=lambda one: ("file", "api", "test").index(one.origin))
        for one in self.stored:
            one.worked = one.worked or (one.counts and self.in_force(one))

    def put(self, new: Rule) -> None:
        """In the place of its namesake, whose counters it keeps if it says the same."""
        old = self.find(new.name)
        if old is None:
            self.stored.append(new)
            return
        if old.written == new.written:
            new.worked, new.hits = old.worked, old.hits
        self.stored[self.stored.index(old)] = new

    def taken(self, names: list[str], origin: str, again: bool) -> bool:
        """Whether one of these may not be put there."""
        found = [old for name in names if (old := self.find(name)) is not None]
        return any(not again or old.origin != origin for old in found)

    # ---- requests

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return trio.run(lambda: self.api(method, path, body, **more))

    def expect(self, answer: Any, status: int, code: str = "") -> None:
        found = answer.code if answer.status >= 400 else ""
        assert (answer.status, found) == (status, code), answer.body

    @rule(name=FREE, kind=KINDS, size=SIZES, origin=ORIGINS, again=st.booleans(), yaml=st.booleans())
    def a_rule_is_put(self, name: str, kind: str, size: int, origin: str, again: bool, yaml: bool) -> None:
        """Added, or put in the place of another one."""
        self.put_one(Rule(name, kind, size, origin), again, YAML if yaml else "application/json")

    @precondition(lambda self: len(self.stored) > 1)
    @rule(which=st.integers(0, 1), size=SIZES, off=st.booleans())
    def a_rule_that_is_there_is_put_again(self, which: int, size: int, off: bool) -> None:
        """It is on afterwards, if somebody has turned it off, too."""
        one = self.stored[1:][which % len(self.stored[1:])]
        if off:
            self.a_rule_is_switched(one.name, False)
        self.put_one(Rule(one.name, one.kind, size, one.origin), True)

    def put_one(self, new: Rule, again: bool, media_type: str = "application/json") -> None:
        """The request, and what is to come of it."""
        path = f"/api/rules/{percent(new.name)}?origin={new.origin}" + ("&ttl=1000s" if new.origin == "test" else "")
        answer = self.ask("PUT" if again else "POST", path, json.dumps(new.written), kind=media_type)  # JSON is YAML
        if self.taken([new.name], new.origin, again):
            self.expect(answer, 409, "rule_in_use")
            return
        self.expect(answer, 200 if again else 201)
        self.put(new)
        self.settle()
        assert answer.json["name"] == new.name

    @rule(name=FREE, mistake=st.sampled_from(list(MISTAKES)), again=st.booleans())
    def a_rule_has_a_mistake(self, name: str, mistake: str, again: bool) -> None:
        """Whatever is there of that name, the mistake is told."""
        body, kind, status, code = MISTAKES[mistake]
        name = IN_FILE if mistake == "in the file" else name
        query = "?origin=test" if mistake == "no end, though of a test" else ""
        answer = self.ask("PUT" if again else "POST", f"/api/rules/{percent(name)}{query}", body, kind=kind)
        self.expect(answer, status, code)

    @rule(
        given=st.lists(st.tuples(FREE, KINDS, SIZES), max_size=2, unique_by=lambda one: one[0]),
        origin=ORIGINS, again=st.booleans(), whole=st.booleans(),
    )  # fmt: skip
    def a_document_is_put(self, given: list[tuple[str, str, int]], origin: str, again: bool, whole: bool) -> None:
        """Its rules are added, or, `whole`, they are all that the API has: all or none."""
        origin = "api" if whole else origin
        new = [Rule(*one, origin) for one in given]
        body = {"rules": [{"name": one.name, **one.written} for one in new]}
        ttl = "&ttl=1000s" if origin == "test" else ""
        path = "/api/rules" if whole else f"/api/rules?origin={origin}&replace={str(again).lower()}{ttl}"
        answer = self.ask("PUT" if whole else "POST", path, body)
        names = [one.name for one in new]
        others = {one.name for one in self.stored if one.origin != "api"}
        if whole and others & set(names):
            self.expect(answer, 422, "invalid_document")
            return
        if not whole and self.taken(names, origin, again):
            self.expect(answer, 409, "rule_in_use")
            return
        self.expect(answer, 200 if whole else 201)
        for one in new:
            self.put(one)
        if whole:
            self.stored = [one for one in self.stored if one.origin != "api"] + new
        self.settle()

    @rule(origin=ORIGINS)
    def all_of_an_origin_are_removed(self, origin: str) -> None:
        """Those of the file stay."""
        self.expect(self.ask("DELETE", f"/api/rules?origin={origin}"), 200)
        self.stored = [one for one in self.stored if one.origin != origin]

    @rule(name=NAMES)
    def a_rule_is_removed(self, name: str) -> None:
        one, answer = self.find(name), self.ask("DELETE", f"/api/rules/{percent(name)}")
        if one is None:
            self.expect(answer, 404, "no_such_rule")
        elif one.origin == "file":
            self.expect(answer, 409, "rule_in_use")
        else:
            self.expect(answer, 200)
            self.stored.remove(one)

    @rule(name=NAMES, on=st.booleans())
    def a_rule_is_switched(self, name: str, on: bool) -> None:
        """On or off, wherever it comes from."""
        one = self.find(name)
        answer = self.ask("POST", f"/api/rules/{percent(name)}/{'enable' if on else 'disable'}")
        if one is None:
            self.expect(answer, 404, "no_such_rule")
            return
        self.expect(answer, 200)
        one.enabled = on
        self.settle()
        assert answer.json["in_force"] == self.in_force(one)

    @rule(on=st.booleans())
    def faults_are_switched(self, on: bool) -> None:
        """Disabled or enabled."""
        answer = self.ask("POST", f"/api/faults/{'disable' if on else 'enable'}")
        self.expect(answer, 200)
        self.faults_disabled = answer.json["disabled"]
        assert self.faults_disabled == on
        self.settle()

    @precondition(lambda self: any(one.counts and self.in_force(one) for one in self.stored))
    @rule(which=st.integers(0, 9), hits=st.integers(1, 3))
    def traffic_comes(self, which: int, hits: int) -> None:
        """A rule in force fires."""
        working = [one for one in self.stored if one.counts and self.in_force(one)]
        one = working[which % len(working)]
        for _ in range(hits):
            self.api.running(one.name).count(fired=True)
        one.hits += hits

    @rule()
    def all_counters_are_reset(self) -> None:
        """The answer says of how many rules."""
        answer = self.ask("POST", "/api/reset")
        self.expect(answer, 200)
        assert answer.json == {"reset": sum(one.worked for one in self.stored)}
        for one in self.stored:
            one.hits = 0

    @rule(name=NAMES, what=st.sampled_from(("reset", "resume", "wait?timeout=0&hits=")), hits=st.integers(1, 3))
    def a_rule_that_counts_is_asked(self, name: str, what: str, hits: int) -> None:
        """To begin anew, to let go what it holds, or how far it is; others refuse."""
        one = self.find(name)
        answer = self.ask("POST", f"/api/rules/{percent(name)}/{what}" + (str(hits) if "wait" in what else ""))
        if one is None:
            self.expect(answer, 404, "no_such_rule")
            return
        if not one.counts:
            self.expect(answer, 409, "not_counted")
            return
        self.expect(answer, 200)
        if what == "reset":
            one.hits = 0
        elif what == "resume":
            assert answer.json == {"resumed": 0}
        else:
            assert answer.json["reached"] == (one.hits >= hits)

    # ---- what always holds

    @invariant()
    def the_list_is_the_models(self) -> None:
        answer = self.ask("GET", "/api/rules")
        self.expect(answer, 200)
        shown = answer.json
        assert shown["faults_disabled"] == self.faults_disabled
        found = [
            (one["name"], one["origin"], one["enabled"], one["in_force"], one["matched"], one["fired"])
            for one in shown["rules"]
        ]
        assert found == [
            (one.name, one.origin, one.enabled, self.in_force(one), *([one.hits] * 2 if one.counts else [None] * 2))
            for one in self.stored
        ]
        for one, listed in zip(self.stored, shown["rules"], strict=True):
            assert {"name": one.name, **one.written}.items() <= listed["rule"].items()

    @invariant()
    def traffic_is_ruled_by_those_in_force(self) -> None:
        working = [one.name for one in self.stored if one.counts and self.in_force(one)]
        assert [running.name for running in self.api.proxy.rules.live] == working


@pytest.mark.timeout(3600 if EVERYTHING else 300)
def test_the_api_does_what_its_model_does_after_any_sequence_of_requests(make_api: Callable[..., Any]) -> None:
    """See the module."""
    run_state_machine_as_test(
        lambda: ApiMachine(make_api),
        settings=settings(
            max_examples=1000 if EVERYTHING else 15, stateful_step_count=50 if EVERYTHING else 40, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
