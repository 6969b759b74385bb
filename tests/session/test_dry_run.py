"""Rules with `mode: dry_run` fire for exactly those requests that the same rule would act on in force."""

from __future__ import annotations

import os
from json import dumps
from random import Random
from typing import Any

import pytest

from kproxy.protocol import decode_request
from kproxy.protocol.records import Record, encode_batch
from kproxy.rules.kinds.base.rule import Effect
from kproxy.rules.rule_set import ActiveRule
from kproxy.session.cluster import CORRELATION
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.live.evaluation import Evaluation
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session_state import SessionPhase
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.session.test_engine_fuzz import APIS
from tests.support.random_peers import Asked, Broker, Manners, random_traffic
from tests.support.random_rules import acts_on, live_kinds, loads, random_rule

TIMES = 10 if os.environ.get("KPROXY_TEST_ALL") else 1
PRODUCE, FETCH, METADATA, HEARTBEAT, LIST_GROUPS = 0, 1, 3, 12, 16
ON_CONNECT = ("refuse", "allow_from", "bandwidth", "slice")
"""Kinds that look at no frame; tests below are about them."""


class Acting:
    """Ids of the exchanges for which rules act, by the name of the rule."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, set[int]] = {}
        act = Evaluation.act

        def noted(evaluation: Evaluation, running: ActiveRule) -> None:
            self.found.setdefault(running.name, set()).add(evaluation.exchange.correlation_id)
            act(evaluation, running)

        monkeypatch.setattr(Evaluation, "act", noted)


class Peer:
    """A session with a broker that has a response for each request that reaches it."""

    def __init__(self, rules: list[dict[str, Any]], answers: dict[int, bytes]) -> None:
        self.talk, self.answers = Dialogue(dumps({"rules": rules}), now=50.0), answers
        self.answered = 0

    @property
    def over(self) -> bool:
        return self.talk.closed is not None or self.talk.session.phase is SessionPhase.STALLED

    def ask(self, frame: bytes, seconds: float) -> None:
        self.talk.client(frame)
        self.go_on(seconds)

    def go_on(self, seconds: float) -> None:
        for _ in range(3):
            self.answer()
            self.talk.later(seconds / 3)
        self.answer()

    def answer(self) -> None:
        if self.over:
            return
        came = frames(self.talk.to_broker)
        while self.answered < len(came) and not self.over and self.talk.read[BROKER]:
            frame = came[self.answered]
            self.answered += 1
            correlation = int.from_bytes(frame[4:8], "big", signed=True)
            answer = self.answers.get(correlation)
            if correlation == CORRELATION:  # a question of kproxy's own
                answer = response(METADATA, decode_request(frame).version, correlation)
            if answer:
                self.talk.broker(answer)


def prepared(traffic: list[Asked], seed: int) -> dict[int, bytes]:
    """Return the responses of a random broker by correlation id."""
    broker, found = Broker(Random(seed), Manners(error=0.2)), {}
    for one in traffic:
        broker.take(one.frame)
        found[one.correlation] = broker.answers.pop() if broker.answers else b""
    return found


def compare(rule: dict[str, Any], seed: int, acting: Acting) -> tuple[int, int]:
    """Play the same traffic with a rule in force and in a dry run; return how many requests it matched and acted on."""
    random = Random(seed)
    able = acts_on(rule["kind"], tuple(dict.fromkeys(APIS)))
    traffic = random_traffic(random, [one for one in able if one != "SaslHandshake"] or ["Heartbeat"], 25)
    traffic = [one for one in traffic if not continues_session(one.frame)]
    answers = prepared(traffic, seed)
    rules = [{**rule, "mode": mode} for mode in ("enforce", "dry_run")]
    enforce, observe = (Peer([one], answers) for one in rules)
    acting.found.clear()
    for one in traffic:
        seconds = random.choice((0.0, 0.003, 0.3))
        for peer in (enforce, observe):
            peer.ask(one.frame, seconds)
        if enforce.over:
            break
    if not enforce.over:
        for peer in (enforce, observe) * len(traffic):  # a frame that waits lets one behind it go on
            peer.go_on(3e6)
    (acts,), (dry,) = enforce.talk.rules.live, observe.talk.rules.live
    expected = acting.found.get(rule["name"], set())
    if rule["kind"] == "blackhole":  # it acts when the client connects
        expected = set(range(acts.applied))
    assert observe.talk.closed is None, (seed, rule)
    assert dry.applied == 0, (seed, rule)
    assert (dry.matched, dry.fired) == (acts.matched, len(expected)), (seed, rule, sorted(expected))
    assert dry.problem == acts.problem, (seed, rule)
    return acts.matched, len(expected)


def continues_session(frame: bytes) -> bool:
    """Return True for a request of a session that kproxy has not seen begin: rules in force have it begin again."""
    body = decode_request(frame[4:], trailing=True).body
    begins = body.get("session_epoch", -1) in (-1, 0) and not body.get("share_session_epoch")
    return bool(body.get("session_id")) or not begins


def usable(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the rule without settings that differ in a dry run, in which no frame is held."""
    when = {name: value for name, value in (rule.get("when") or {}).items() if name != "hold"}
    made = {name: value for name, value in rule.items() if name not in ("mode", "when")}
    if made["kind"] == "intercept":  # else requests that come during the hold are never evaluated
        made["on_timeout"] = "pass"
    return {**made, "when": when} if when else made


@pytest.mark.parametrize("kind", [kind for kind in live_kinds() if kind not in ON_CONNECT])
def test_dry_run_fires_where_the_rule_would_act(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random selectors, triggers and parameters over random traffic that the kind can be about."""
    acting, totals = Acting(monkeypatch), [0, 0]
    for seed in range(12 * TIMES):
        rule = usable(random_rule(kind, Random(seed), list(APIS)))
        if loads(dumps({"rules": [rule]})):
            for number, count in enumerate(compare(rule, seed, acting)):
                totals[number] += count

    assert totals[0] or kind == "set"  # its example is about one API, see the last test


RECORDS = [Record(offset=0, timestamp=0, key=None, value=b"x" * 50)]
BATCHES = {name: encode_batch(RECORDS, codec=codec) for name, codec in (("none", 0), ("gzip", 1))}


def write(number: int, codec: str = "gzip", acks: int = -1, size: int = 0) -> bytes:
    """Return a Produce request to one topic."""
    records = BATCHES[codec] if not size else bytes(size)
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
    return request(PRODUCE, 9, number, acks=acks, topic_data=data)


def test_dry_run_of_require_counts_breaches_only() -> None:
    """Lawful requests match and do not fire."""
    talk = Dialogue("rules: [{name: r, kind: require, mode: dry_run, acks: all, compression: gzip}]")
    for number, (codec, acks) in enumerate([("gzip", -1), ("gzip", 1), ("none", -1), ("gzip", -1), ("none", 0)], 1):
        talk.client(write(number, codec, acks))
        if acks:
            talk.broker(response(PRODUCE, 9, number))

    (running,) = talk.rules.live
    assert (running.matched, running.fired, running.applied) == (5, 3, 0)
    assert len(talk.requests()) == 5


def test_dry_run_of_quota_keeps_its_bucket() -> None:
    """A request fires if it overdraws the bucket, which fills again with time; no client waits."""
    talk = Dialogue("rules: [{name: q, kind: quota, mode: dry_run, produce: 1kB/s}]", now=10.0)
    (running,) = talk.rules.live
    fired = []
    for number, pause in enumerate((0.0, 0.0, 0.0, 5.0, 0.0), 1):
        talk.later(pause).client(write(number, size=600)).broker(response(PRODUCE, 9, number))
        fired.append(running.fired)

    assert fired == [0, 1, 2, 2, 3]
    assert talk.read[CLIENT]
    assert [one.body["throttle_time_ms"] for one in talk.responses(*[(PRODUCE, 9)] * 5)] == [0] * 5


def test_dry_run_of_quota_passes_requests_below_it_unread() -> None:
    """A request that a template knows, and that leaves no debt, matches and does not fire."""
    talk = Dialogue("rules: [{name: q, kind: quota, mode: dry_run, produce: 1MB/s}]", now=10.0)
    for number in range(1, 20):
        talk.client(write(number)).broker(response(PRODUCE, 9, number))

    assert [(one.matched, one.fired) for one in talk.rules.live] == [(19, 0)]


@pytest.mark.parametrize(("rule", "fired"), [("quota, connections: 1/s", [0, 1, 2]), ("refuse", [1, 2, 3])])
def test_dry_run_of_a_connection_rule_fires_where_it_acts(rule: str, fired: list[int]) -> None:
    """The second connection in a second would wait; `refuse` would refuse each."""
    first = Dialogue(f"rules: [{{name: r, mode: dry_run, kind: {rule}}}]", now=1.0)
    (running,) = first.rules.live
    counts = [running.fired]
    for _ in range(2):
        talk = Dialogue(plan=Plan(ConnectionSettings(), [running]), now=1.0)
        counts.append(running.fired)
        assert (talk.closed, talk.read[CLIENT]) == (None, True)

    assert counts == fired
    assert running.applied == 0


def test_dry_run_lets_a_request_pass_that_it_cannot_read() -> None:
    """A rule in force rejects it."""
    rule = "{name: r, kind: deny, match: {api: Metadata, topic: secret}, mode: MODE}"
    broken = request(METADATA, 12, 1, topics=[{"name": "a"}])[:-3]
    broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
    enforce, observe = (Dialogue(f"rules: [{rule.replace('MODE', mode)}]") for mode in ("enforce", "dry_run"))
    enforce.client(broken)
    observe.client(broken)

    assert enforce.closed is not None
    assert (observe.closed, observe.to_broker) == (None, broken)


def test_dry_run_counts_an_effect_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that forbids access would have closed the connection, others would have done nothing."""

    def raising(effect: Effect, exchange: Any, entities: Any, now: float) -> Any:
        raise RuntimeError("no")

    for kind, fired in (("deny", 1), ("error, error: 29", 0)):
        talk = Dialogue(f"rules: [{{name: r, mode: dry_run, match: {{api: ListGroups}}, kind: {kind}}}]")
        (running,) = talk.rules.live
        monkeypatch.setattr(type(running.effect), "on_request", raising)
        monkeypatch.setattr(type(running.effect), "always_acts", False)
        talk.client(request(LIST_GROUPS, 4, 1))
        assert (running.matched, running.fired, running.problems) == (1, fired, 1)
        assert talk.closed is None


def test_dry_run_of_a_response_rule_tells_the_observer_late() -> None:
    """The rule is in the exchange's list if the response would have been changed, and only then."""
    rule = "{name: s, kind: set, mode: dry_run, match: {api: Heartbeat}, fields: {error_code: 27}}"
    talk, told = Dialogue(f"rules: [{rule}]"), []

    class Observer:
        def acted(self, correlation_id: int, names: Any, **_: Any) -> None:
            told.append((correlation_id, *names))

        def waited(self, *_: Any, **__: Any) -> None: ...
        def failed(self, *_: Any) -> None: ...

    talk.session.observer = Observer()
    for number, code in ((1, 27), (2, 0)):
        talk.client(request(HEARTBEAT, 4, number)).broker(response(HEARTBEAT, 4, number, error_code=code))

    assert told == [(2, "s")]
    assert [(one.matched, one.fired) for one in talk.rules.live] == [(2, 1)]
    assert [one.body["error_code"] for one in talk.responses(*[(HEARTBEAT, 4)] * 2)] == [27, 0]
