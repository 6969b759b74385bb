"""Requests that begin like one before: each is asked about once, wherever it is cut and whatever happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.protocol.framing import framed
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source
from kproxy.session.frame import RequestView
from kproxy.session.live import engine, selection
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session_state import NOWHERE
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.support.frames import fetch, produce

PRODUCE, HANDSHAKE, AUTHENTICATE = 0, 17, 36
RULES: dict[str, dict[str, Any]] = {
    "drop": {"kind": "drop", "what": "request", "connection": "continue"},
    "delay": {"kind": "delay", "delay": "10ms", "at": "request"},
    "corrupt": {"kind": "corrupt", "at": "request"},
    "error": {"kind": "error", "error": 29, "at": "request"},
    "observed": {"kind": "delay", "delay": "10ms", "mode": "dry_run"},
    "quota": {"kind": "quota", "per": ["client_id"], "produce": "300B/s", "requests": "30/s"},
}


def write(number: int, topic: str = "orders", acks: int = 1) -> bytes:
    data = {"name": topic, "partition_data": [{"index": 0, "records": b"r" * 50}]}
    return request(PRODUCE, 9, number, acks=acks, topic_data=[data])


def text(*rules: dict[str, Any]) -> str:
    return json.dumps({"rules": [{"name": f"rule {number}"} | rule for number, rule in enumerate(rules)]})


class Hearer:
    """Observer that remembers, for each exchange in turn, the rules that fired, and if kproxy has answered."""

    def __init__(self) -> None:
        self.exchanges: dict[tuple[int, int], tuple[tuple[str, ...], bool]] = {}

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        before, said = self.exchanges.get((correlation_id, older), ((), False))
        self.exchanges[correlation_id, older] = (*before, *names), said or answered

    def waited(self, *arguments: Any, **more: Any) -> None: ...

    def failed(self, *arguments: Any, **more: Any) -> None: ...

    def throttled(self, *arguments: Any, **more: Any) -> None: ...


def spoken(rules: str, parts: list[bytes]) -> list[Any]:
    """What comes of it when the client writes these, and time passes after each."""
    talk = Dialogue(rules)
    hearer = talk.session.observer = Hearer()
    for part in parts:
        talk.client(part)
        talk.later(0.05)
    counts = [(one.matched, one.fired, one.applied) for one in talk.rules.live]
    return [talk.to_broker, talk.to_client, counts, talk.closed, hearer.exchanges]


@pytest.mark.parametrize("match", [{"api": "Produce"}, {"client_id": "tester"}, {"topic": "orders"}, None])
@pytest.mark.parametrize("kind", RULES)
def test_a_trigger_is_asked_once_wherever_the_request_is_cut(kind: str, match: dict[str, Any] | None) -> None:
    """A rule that needs the header only decides before the request's topic is here, as it stands in the beginning that
    is compared: the decision holds when the rest comes."""
    rules = text(RULES[kind] | {"when": {"every": 3}} | ({} if match is None else {"match": match}))
    whole = [write(number) for number in range(1, 8)]
    with patch.object(selection, "beginning", lambda *arguments: None):
        expected = spoken(rules, whole)
    assert expected[2][0][:2] == (7, 2)
    assert spoken(rules, whole) == expected
    for cut in range(1, 60):
        assert spoken(rules, [*whole[:2], whole[2][:cut], whole[2][cut:], *whole[3:]]) == expected, cut


@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("others", [(), ("error",), ("observed",)])
def test_a_quota_passes_what_it_does_not_reach_by_its_beginning(others: tuple[str, ...], acks: int) -> None:
    """Counted and told as when each is evaluated; only those are that come to something: the first request of the
    connection, and those beyond the limit."""
    rules = [{"kind": "quota", "produce": "1kB/s", "requests": "100/s"}, *(RULES[one] for one in others)]
    for rule in rules[1:]:
        rule["when"] = {"every": 7}
    whole, evaluated = [*(write(number, acks=acks) for number in range(1, 31)), *[b""] * 60], 0
    request_of = engine.Engine.request

    def counting(self: engine.Engine, *arguments: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return request_of(self, *arguments)

    with patch.object(selection, "beginning", lambda *arguments: None):
        expected = spoken(text(*rules), whole)
    with patch.object(engine.Engine, "request", counting):
        assert spoken(text(*rules), whole) == expected
    matched, _, applied = expected[2][0]
    ends = "error" in others and not acks  # of which a client without answers learns by the end of its connection
    assert matched == len(expected[4]) == (7 if ends else 30)
    assert ends or 0 < applied < 15
    assert evaluated <= 1 + applied + (matched // 7 if "error" in others else 0)


def test_a_held_request_is_released_as_itself() -> None:
    """The rest of it comes while it is held."""
    rules = text(RULES["delay"] | {"delay": "1s", "match": {"api": "Produce"}, "when": {"every": 3}})
    talk = Dialogue(rules).client(write(1)).client(write(2))
    third = write(3)
    for byte in third:
        talk.client(bytes((byte,)))
    talk.later(2).client(write(4))
    assert talk.to_broker == b"".join(map(write, range(1, 5)))
    assert [(one.matched, one.fired, one.applied) for one in talk.rules.live] == [(4, 1, 1)]


@pytest.mark.parametrize("cut", [0, 5, 30, 45])
def test_rules_that_are_exchanged_in_between_are_asked_about_what_follows(cut: int) -> None:
    """What was concluded under the rules before holds for nothing under the new ones, which know the same rule."""
    every = {"name": "third", **RULES["drop"], "match": {"api": "Produce"}, "when": {"every": 3}}
    store = RuleStore(1)
    store.replace_files([Source("a.yaml", text(every))], 0.0)
    bound = store.rule_set.bind(NOWHERE)
    talk = Dialogue(plan=Plan(ConnectionSettings(advertise=False), bound.live))
    third = bound.live[0]
    for number in (1, 2):
        talk.client(write(number))
    frame = write(3)
    talk.client(frame[:cut]) if cut else None
    other = {"name": "all", **RULES["drop"], "match": {"topic": "orders"}}
    store.replace_files([Source("a.yaml", text(every, other))], 0.0)
    live = store.rule_set.bind(NOWHERE).live
    assert live[0] is third
    talk.session.use(Plan(ConnectionSettings(advertise=False), live), 0.0)
    talk.client(frame[cut:])
    for number in (4, 5, 6):
        talk.client(write(number))
    assert [int.from_bytes(one[4:8], "big") for one in frames(talk.to_broker)] == [1, 2]
    assert (third.matched, third.fired, third.applied) == (6, 2, 2)
    assert live[1].applied == 2


def authenticated(talk: Dialogue, number: int, name: str) -> None:
    """The client says who it is; the broker believes it."""
    talk.client(request(HANDSHAKE, 1, number, mechanism="PLAIN"))
    talk.broker(response(HANDSHAKE, 1, number, mechanisms=["PLAIN"]))
    talk.client(request(AUTHENTICATE, 2, number + 1, auth_bytes=f"\0{name}\0secret".encode()))
    talk.broker(response(AUTHENTICATE, 2, number + 1))


@pytest.mark.parametrize("kind", ["delay", "quota"])
@pytest.mark.parametrize("first", ["alice", "bob"])
def test_whoever_authenticates_anew_is_asked_about_anew(kind: str, first: str) -> None:
    """Requests begin as before, and the rule is about one of the two."""
    rule = {"kind": "quota", "requests": "1000/s"} if kind == "quota" else RULES["delay"] | {"when": {"every": 2}}
    talk = Dialogue(text(rule | {"match": {"principal": "alice", "api": "Produce"}}))
    second = "bob" if first == "alice" else "alice"
    running = talk.rules.live[0]
    counts = []
    for number, name in ((10, first), (20, second), (30, first)):
        authenticated(talk, number, name)
        before = running.matched
        for each in range(2, 7):
            talk.client(write(number + each))
            talk.later(0.05)
            talk.broker(response(PRODUCE, 9, number + each))
        counts.append(running.matched - before)
    assert counts == ([5, 0, 5] if first == "alice" else [0, 5, 0])


@pytest.mark.parametrize("count_scope", ["rule", "connection", "client"])
def test_triggers_of_two_rules_are_asked_in_turn(count_scope: str) -> None:
    """Each counts all requests that it matches, though the other's turn comes in between, with acks and without."""
    rules = text(
        RULES["delay"] | {"match": {"topic": "or*"}, "when": {"every": 2, "count_scope": count_scope}},
        RULES["drop"] | {"match": {"client_id": "tester"}, "when": {"every": 3, "count_scope": count_scope}},
        RULES["observed"] | {"when": {"nth": [4, 5], "count_scope": count_scope}},
    )
    parts = [write(number, acks=number % 2) for number in range(1, 20)]
    with patch.object(selection, "beginning", lambda *arguments: None):
        expected = spoken(rules, parts)
    assert spoken(rules, parts) == expected
    assert spoken(rules, [b"".join(parts)]) == spoken(rules, [b"".join(parts)[:700], b"".join(parts)[700:]])
    assert [matched for matched, _, _ in expected[2]] == [19, 19, 13]


@pytest.mark.parametrize("early", [True, False])
def test_a_trigger_that_was_asked_for_somebody_else_is_over_with_the_request(early: bool) -> None:
    """A request came in part while the client was one that the rule is about, and the rest when it was another: no rule
    is about it, what was asked holds for nothing behind it, and other rules come into force."""
    talk = Dialogue(text(RULES["error"] | {"match": {"principal": "alice", "api": "Produce"}, "when": {"every": 3}}))
    authenticated(talk, 10, "alice")
    talk.client(request(HANDSHAKE, 1, 20, mechanism="PLAIN"))
    talk.broker(response(HANDSHAKE, 1, 20, mechanisms=["PLAIN"]))
    talk.client(request(AUTHENTICATE, 2, 21, auth_bytes=b"\0bob\0secret"))
    for number in (22, 23):
        talk.client(write(number))
    third = write(24)
    forbids = Dialogue(text({"kind": "deny", "match": {"topic": "orders"}})).session.plan
    talk.client(third[:-40]).broker(response(AUTHENTICATE, 2, 21))
    if early:
        talk.session.use(forbids, talk.now)
    talk.client(third[-40:])
    assert talk.session.identity.principal == "bob"
    assert talk.to_broker.endswith(third)
    if not early:
        talk.session.use(forbids, talk.now)
    talk.client(write(25))
    assert talk.to_broker.endswith(third)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize(
    "rules",
    [
        [{"kind": "error", "error": 29}],
        [{"kind": "error", "error": 6, "match": {"topic": "or*", "partition": [1, 3]}}],
        [{"kind": "error", "error": 6, "match": {"topic": "orders"}, "when": {"every": 2}},
         {"kind": "error", "error": 87, "message": "no", "match": {"partition": 1}},
         {"kind": "quota", "requests": "2/s", "match": {"client_id": "tester"}}],
        [{"kind": "error", "error": 6, "match": {"topic": "or*"}, "when": {"probability": 0.6}},
         {"kind": "error", "error": 87, "when": {"every": 2}}],
        [{"kind": "delay", "delay": "10ms", "mode": "dry_run", "when": {"every": 3}},
         {"kind": "error", "error": 6, "match": {"topic": "orders"}, "when": {"probability": 0.9}},
         {"kind": "delay", "delay": "5ms", "at": "request", "when": {"every": 4}}],
        [{"kind": "delay", "delay": "10ms", "at": "request", "when": {"every": 3}}, {"kind": "error", "error": 6}],
        [{"kind": "error", "error": 6, "mode": "dry_run"}, {"kind": "error", "error": 29, "when": {"first": 9}},
         {"kind": "error", "error": 87, "at": "response"}],
        [{"kind": "error", "error": 3, "match": {"topic": "orders", "acks": -1}},
         {"kind": "drop", "what": "request", "connection": "continue", "match": {"topic": "other"},
          "when": {"every": 2}}],
    ],
)  # fmt: skip
def test_answers_made_before_are_those_that_would_be_made(version: int, rules: list[dict[str, Any]]) -> None:
    """Topics, numbers of partitions and acks take turns, so that each begins like one before it in part only."""
    kinds = [("orders", (1,)), ("orders", (2,)), ("other", (1,)), ("orders", (1, 3)), ("orders", ()), ("orde", (257,))]
    turns = kinds[:3] * 4 + kinds * 4 + kinds[:1] * 20
    parts = [
        produce(
            number,
            *((topic, partition) for partition in partitions),
            version=version,
            acks=(-1, 1)[number // 3 % 2],
            records=b"r" * (40 + number),
        )
        for number, (topic, partitions) in enumerate(turns)
    ]
    written = text(*rules)
    with patch.object(selection, "beginning", lambda *arguments: None):
        expected = spoken(written, parts)
    assert expected[1]
    assert spoken(written, parts) == expected
    assert spoken(written, [b"".join(parts)])[2] == spoken(written, [b"".join(parts)[:900], b"".join(parts)[900:]])[2]


def test_error_rule_second_request_is_answered_without_decoding() -> None:
    """The first request fills the cache of the connection."""
    talk = Dialogue(text({"kind": "error", "error": 29, "match": {"topic": "orders"}}))
    with patch.object(engine, "decode_request", wraps=decode_request) as decode:
        for number in range(10):
            talk.client(write(number))
    assert decode.call_count == 1
    assert len({frame[4:] for frame in frames(talk.to_client)}) == 1
    assert [int.from_bytes(frame[:4], "big") for frame in frames(talk.to_client)] == list(range(10))


def test_head_cache_with_many_client_ids_is_bounded() -> None:
    """The number of client ids and partitions does not matter. Templates and answers have a common limit."""
    talk = Dialogue(text({"kind": "error", "error": 29, "match": {"topic": "orders"}}))
    for client in range(2 * selection.MOST):
        for index in range(3):
            data = [{"name": "orders", "partition_data": [{"index": index, "records": b"r"}]}]
            talk.client(request(0, 9, index, f"client-{client}", acks=1, topic_data=data))
    rules = talk.session.requests.rules
    assert rules is not None
    assert 0 < len(rules.heads) <= selection.MOST
    assert {type(one) for one in rules.heads.values()} == {selection.FrameTemplate, selection.Selection}


ACCESS = [
    [{"kind": "deny", "match": {"topic": "secret*"}}],
    [{"kind": "read_only", "match": {"topic": "secret*"}}, {"kind": "deny", "match": {"topic": "*.secret"}}],
    [{"kind": "deny", "match": {"topic": "secret*"}}, {"kind": "quota", "per": ["client_id"], "produce": "1MB/s"}],
    [{"kind": "deny", "match": {"topic": "secret*"}}, {"kind": "delay", "delay": "1ms", "when": {"every": 2}}],
]
VERSIONS = [(PRODUCE, version) for version in range(3, 13)] + [(1, version) for version in range(4, 13)]
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def about(key: int, version: int, correlation: int, topic: str, random: Random) -> bytes:
    """Return a Produce or Fetch about one topic, with one to three partitions."""
    parts = [(topic, index) for index in range(random.choice((1, 1, 1, 2, 3)))]
    if key == PRODUCE:
        return produce(correlation, *parts, version=version, records=b"r" * random.choice((0, 5, 70, 300)))
    return fetch(correlation, *parts, version=version)


def damaged(frame: bytes, random: Random) -> bytes:
    """Return the frame with a cut end, changed bytes, bytes put in, or bytes behind it; the size in front is right."""
    content = bytearray(frame[4:])
    at = random.randrange(8, len(content))
    match random.randrange(5):
        case 0:
            del content[at:]
        case 1:
            content[at:at] = bytes(random.choice(EDGES) for _ in range(random.choice((1, 2, 4))))
        case 2:
            content += random.randbytes(random.choice((1, 3, 40)))
        case _:
            for _ in range(random.choice((1, 1, 2, 4))):
                content[random.randrange(8, len(content))] = random.choice((*EDGES, random.randrange(256)))
    return framed(bytes(content))


def is_good(frame: bytes) -> bool:
    """Return True if the frame is a request of the table."""
    try:
        decode_request(frame[4:], trailing=True)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("rules", ACCESS)
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_malformed_request_with_a_known_beginning_names_no_other(
    key: int, version: int, rules: list[dict[str, Any]]
) -> None:
    """The templates change nothing for a good frame. A malformed one passes only if it begins like a good one that
    passed, up to the number of partitions: no other topic than an allowed one is in it."""
    random, written, passed = Random(f"{key} {version} {rules}"), text(*rules), 0
    for _ in range(40):
        known = [about(key, version, number, random.choice(("orders", "open")), random) for number in range(1, 4)]
        tried = damaged(
            about(key, version, 4, random.choice(("orders", "open", "secret.a", "a.secret")), random), random
        )
        after = about(key, version, 5, "orders", random)
        chunk = random.choice((0, 0, 30, 60))
        parts = [*known, *([tried[:chunk], tried[chunk:]] if 0 < chunk < len(tried) else [tried]), after]
        with patch.object(selection, "beginning", lambda *arguments: None):
            expected = spoken(written, parts)
        found = spoken(written, parts)
        if found == expected:
            continue
        assert not is_good(tried)
        assert b"secret" not in tried
        assert expected[3] is not None, "without templates it is refused"
        assert expected[3].cause == "decode"
        sent = b"".join(known)
        assert expected[0] == sent
        assert found[0] == sent + tried + after
        heads = {beginning_of(frame) for frame in known}
        assert beginning_of(tried) in heads
        passed += 1
    assert passed <= 20, "most differences are refused as without templates"


def beginning_of(frame: bytes) -> bytes | None:
    """Return the bytes of a request that its template compares."""
    talk = Dialogue(text(*ACCESS[0]))
    talk.client(frame[:4])
    step = talk.session.plan[int.from_bytes(frame[4:8], "big")]
    return selection.beginning(RequestView.of(step, frame, 0.0))
