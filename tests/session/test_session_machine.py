"""A session as a state machine: any sequence of what clients, brokers, users and clocks do, with shortest examples.

After each step:

- what the broker got is a sequence of whole frames and perhaps the beginning of one more; each is the next of the
  client's requests or a question of kproxy's own. A request that is passed over is one that a rule has acted on, or one
  that kproxy answers itself
- what the client got is a sequence of whole answers, and perhaps the beginning of one more, in the order of the
  requests, none twice, none to a request that wants none
- a request that no rule acted on, and its answer, are the bytes that came (promise 1), under a connection's renames the
  same but for the names; rules in dry-run mode, or are about other clients, act on nothing
- what was read has gone on, unless the lane says what it waits for
- the connection is closed only where a side ended or was wrong, a drain was asked for, a rule has acted, or the next
  request cannot be read while a rule is in force that may forbid it; a wrong frame always closes it
- a Fetch that begins a session with ids that nobody has named leaves without one, if a rule selects topics by name
- held memory keeps to its limit; no rule counts more applied than fired, or more fired than matched

At the end, when all has been read, answered, written and let go: every answer that is due has come, the FIFO is empty,
no memory is held or waited for and no mark is left; then the connection ends, and rules hold nothing of it.

Nothing may raise at any time. The dialogue scribbles over what it has fed, and lets nothing follow a Close.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from json import dumps
from random import Random
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

from kproxy.base.errors import DocumentError
from kproxy.protocol import Message, decode_request, decode_response
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.rules.document.store import RuleStore
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Source
from kproxy.session.cluster import CORRELATION, all_topics_request, named_topics_request
from kproxy.session.commands import BROKER, CLIENT, Wake
from kproxy.session.held_memory import HeldMemory, Hold
from kproxy.session.partition_session import CLOSING, OPENING
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.versions import unsupported
from kproxy.session.session_state import NOWHERE, SessionPhase
from kproxy.session.shared import ClusterState
from tests.support.chaos_session import Driver, port_of
from tests.support.memory_lane import MemoryLane
from tests.support.random_peers import Asked, Broker, Manners, asked
from tests.support.random_rules import frame_kinds, live_kinds, random_rule

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
APIS = (
    "Heartbeat", "Produce", "Fetch", "Metadata", "ApiVersions", "JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch",
    "FindCoordinator", "ListOffsets", "CreateTopics", "DeleteTopics", "InitProducerId", "AddPartitionsToTxn", "EndTxn",
    "ShareFetch", "ConsumerGroupHeartbeat", "DescribeTopicPartitions", "DescribeCluster",
)  # fmt: skip
PRODUCE, FETCH, VERSIONS, REGEX_HEARTBEAT, UNKNOWN = 0, 1, 18, 68, 999
FUTURE = 99
"""A version that no table has."""
IDS_SINCE = 13
"""The version of Fetch that gives topics by their ids."""
IN_SESSIONS = (1, 78, 79)
"""Fetch, ShareFetch, ShareAcknowledge: what a rule took out of one request may come back in a later one."""
NO_NAMES = frozenset(schema.names()[name] for name in ("Heartbeat", "InitProducerId", "EndTxn", "ApiVersions"))
"""Neither topics nor brokers are in their answers."""
UP = "up."
BOUNDS = {
    "passive": ConnectionSettings(advertise=False),
    "advertising": ConnectionSettings(),
    "renaming": ConnectionSettings(names=NameMaps(topics=NameMap.of({"name-*": f"{UP}name-*"})), advertise=False),
}
WHOLE = ("delay", "disconnect", "drop", "trailing_bytes", "unknown_tag")
"""Kinds that do something to frames, and leave whole those that they send."""
BREAKING = ("set", "python", *(kind for kind in frame_kinds() if kind not in WHOLE))
"""Kinds whose purpose is to break what is stated here."""
KINDS = [kind for kind in live_kinds() if kind not in BREAKING]
FIXED: dict[str, dict[str, Any]] = {
    "rename": {"kind": "rename_topic", "topics": {"name-1": "another"}},
    "others": {"kind": "error", "match": {"client_id": "nobody"}, "error": 3, "at": "request"},
    "watch": {"kind": "delay", "mode": "dry_run", "delay": "1s"},
    "watch topic": {"kind": "error", "mode": "dry_run", "match": {"topic": "name-*"}, "error": 3, "at": "request"},
    "fail": {"kind": "error", "match": {"topic": "name-0"}, "error": 3, "at": "request"},
    "fail later": {"kind": "error", "match": {"api": ["Produce", "Heartbeat"]}, "error": 3, "at": "response"},
    "slow": {"kind": "delay", "match": {"api": ["Heartbeat", "Metadata"]}, "delay": "20ms"},
    "slow answers": {"kind": "delay", "match": {"api": "Produce"}, "delay": "20ms", "at": "response"},
    "hold": {"kind": "delay", "match": {"api": "Metadata"}, "delay": "1ms", "when": {"hold": True}},
    "quota": {"kind": "quota", "requests": "5/s", "produce": "1kB/s"},
    "slow third": {"kind": "delay", "match": {"api": "Produce"}, "delay": "20ms", "when": {"every": 3}},
    "lose second": {
        "kind": "drop",
        "match": {"api": ["Produce", "EndTxn"]},
        "what": "request",
        "connection": "continue",
        "when": {"every": 2},
    },
    "lose answer": {"kind": "drop", "match": {"api": "Heartbeat"}, "what": "response", "connection": "continue"},
    "lose request": {"kind": "drop", "match": {"api": "EndTxn"}, "what": "request", "connection": "continue"},
    "close": {"kind": "disconnect", "match": {"api": "InitProducerId"}, "when": {"nth": 2}, "at": "response"},
}
REQUESTS = st.lists(st.sampled_from((*APIS, "future", "unknown")), min_size=1, max_size=4)
CUTS = st.sampled_from((0, 1, 4, 8, 13, 14, 15, 60, 300))
"""Bytes at a time, 0: all that there are."""
SEEDS = st.integers(0, 1 << 16)
WRONG = ("unasked", "again", "too soon", "no size", "short", "tls")
WRONG_CAUSES = ("correlation", "frame_size", "not_kafka")


class Answerer(Broker):
    """Answers all that it gets. `replies` are those that clients may see, by correlation id; `quiet` are requests
    without one."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, Manners())
        self.replies: dict[int, bytes] = {}
        self.quiet: list[int] = []

    def request(self, frame: bytes) -> None:
        key, correlation = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[4:8], "big", signed=True)
        before = len(self.answers)
        if key == UNKNOWN:
            self.answers.append(framed(frame[4:8] + self.random.randbytes(self.random.choice((0, 5, 300)))))
        else:
            super().request(frame)
        assert not self.lost, f"no request that a broker can read: {frame!r}"
        if len(self.answers) > before:
            self.replies[correlation] = self.answers[-1]
        else:
            self.quiet.append(correlation)

    def answer(self, message: Message) -> Message:
        said = super().answer(message)
        if message.api.key == VERSIONS:  # nothing that kproxy would have to cap
            said.body["api_keys"] = [{"api_key": VERSIONS, "min_version": 0, "max_version": 0}]
        return said


class Spoken(Driver):
    """A driver that obeys a Wake, too."""

    woken = 0

    def obey(self) -> None:
        super().obey()
        while self.woken < len(self.log):
            command = self.log[self.woken]
            self.woken += 1
            if isinstance(command, Wake) and self.session in command.sessions:
                self.session.granted(self.now)
                super().obey()


class SessionMachine(RuleBasedStateMachine):
    """See the module. `acted_on` are requests that a rule which enforces has fired for, `dropped` those of them that
    may have no answer because of it, `ours` those that kproxy has answered itself."""

    @initialize(
        bound=st.sampled_from(list(BOUNDS)), lazy=st.booleans(), most=st.sampled_from((1000, 2)),
        buffer_threshold=st.sampled_from((65536, 200)), seed=SEEDS, patience=st.sampled_from((1, 5, 20, 1000)),
        names=REQUESTS,
    )  # fmt: skip
    def begins(
        self, bound: str, lazy: bool, most: int, buffer_threshold: int, seed: int, patience: int, names: list[str]
    ) -> None:
        """`patience`: after so many requests somebody may be wrong, or end."""
        self.bound, self.lazy, self.patience = bound, lazy, patience
        self.shared = ClusterState(
            requests=HeldMemory(1 << 18),
            responses=HeldMemory(1 << 18),
            max_in_flight=most,
            buffer_threshold=buffer_threshold,
        )
        self.store = RuleStore(seed)
        self.rules: dict[str, ActiveRule] = {}  # all that there ever were
        self.hogged: list[tuple[HeldMemory, Hold]] = []
        self.others = 0
        self.random = Random(seed)
        self.connections = 0
        self.connect(0.0)
        self.client_asks(names, seed, 0)

    def connect(self, now: float) -> None:
        self.connections += 1
        live = self.store.rule_set.bind(NOWHERE).live
        self.forbids = self.names_topics = False  # some rule that was in force on this connection
        self.in_force(live)
        self.refused = any(running.rule.connects for running in live)
        plan = Plan(BOUNDS[self.bound], live)
        self.talk = Spoken(plan=plan, shared=self.shared, lazy=self.lazy, number=self.connections, now=now)
        self.session = self.talk.session
        self.session.observer = self.session.owner = self
        self.broker = Answerer(self.random)
        self.asked: list[Asked] = []
        self.place: dict[int, int] = {}  # in `asked`, by correlation id
        self.acted_on: set[int] = set()
        self.ours: set[int] = set()
        self.dropped: set[int] = set()
        self.to_send = (bytearray(), bytearray())  # by side, what it has not written yet
        self.sent = [0, 0]  # by side, bytes that were read of it
        self.ends: tuple[list[int], list[int]] = ([], [])  # by side, where in its stream each frame ends
        self.said: list[int] = []  # correlation ids in the broker's stream
        self.got = [0, 0]  # by side, bytes that were looked at
        self.next = [0, 0]  # by side, the place of the first request of which it has heard nothing yet
        self.heard: list[int] = []
        self.wrong = False
        self.over = False  # a side has ended, or a drain was asked for

    @precondition(lambda self: not self.is_open or self.session.phase is SessionPhase.STALLED)
    @rule()
    def connects_again(self) -> None:
        """Another connection, under the rules that there are now."""
        self.finish()
        self.connect(self.talk.now)

    # ---- what the session tells

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        assert seconds >= 0

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        if any(not self.rules[name].dry_run for name in names):
            self.acted_on.add(correlation_id)
        if any(self.rules[name].rule.kind == "drop" and not self.rules[name].dry_run for name in names):
            self.dropped.add(correlation_id)
        if answered:
            self.ours.add(correlation_id)

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        assert all(codes)

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        assert mute >= 0
        assert rule in self.rules

    def released(self) -> None:
        self.session.released(self.talk.now)
        self.talk.obey()

    # ---- the client

    def ask(self, name: str, random: Random) -> None:
        number = len(self.asked) + 1
        if name == "unknown" and self.bound == "advertising":  # whose answer could name a broker
            name = "future"
        if name == "future":  # of which kproxy does not know how to read the answer, and gives one itself
            one = Asked(head(VERSIONS, FUTURE, number), VERSIONS, FUTURE, number, True)
        elif name == "unknown":
            one = Asked(head(UNKNOWN, 0, number, bytes(random.choice((0, 5, 3000)))), UNKNOWN, 0, number, True)
        else:
            one = asked(random, schema.load(schema.names()[name]), number)
        self.place[number] = len(self.asked)
        self.asked.append(one)
        self.append(CLIENT, one.frame)

    def append(self, side: int, frame: bytes) -> None:
        self.to_send[side].extend(frame)
        self.ends[side].append((self.ends[side] or [0])[-1] + len(frame))

    def write(self, side: int, cut: int = 0) -> bool:
        """The session reads so much of what the side has to say, if it wants to."""
        if not self.is_open or not self.talk.read[side] or side in self.session.ended:
            return False
        data = bytes(self.to_send[side][: cut or None])
        del self.to_send[side][: len(data)]
        self.sent[side] += len(data)
        (self.talk.client if side == CLIENT else self.talk.broker)(data)
        return True

    @property
    def is_open(self) -> bool:
        return self.talk.closed is None

    @property
    def talking(self) -> bool:
        return self.is_open and not self.over

    @property
    def may_end(self) -> bool:
        return self.talking and len(self.asked) >= self.patience

    @precondition(lambda self: self.talking)
    @rule(names=REQUESTS, seed=SEEDS, cut=CUTS)
    def client_asks(self, names: list[str], seed: int, cut: int) -> None:
        """One request, or several at once."""
        random = Random(seed)
        for name in names:
            self.ask(name, random)
        self.write(CLIENT, cut)

    @precondition(lambda self: self.talking and self.asked)
    @rule(back=st.integers(1, 4), times=st.integers(1, 5), cut=CUTS)
    def client_asks_the_same_again(self, back: int, times: int, cut: int) -> None:
        """One of its last requests, but for the correlation id."""
        one = self.asked[-min(back, len(self.asked))]
        for _ in range(times):
            number = len(self.asked) + 1
            frame = one.frame[:8] + number.to_bytes(4, "big") + one.frame[12:]
            self.place[number] = len(self.asked)
            self.asked.append(replace(one, frame=frame, correlation=number))
            self.append(CLIENT, frame)
            self.write(CLIENT, cut)

    @precondition(lambda self: self.talking and not self.wrong)
    @rule(names=REQUESTS, seed=SEEDS, cut=CUTS)
    def client_is_answered(self, names: list[str], seed: int, cut: int) -> None:
        """All that it has asked and asks now, as far as nothing has to wait."""
        random = Random(seed)
        for name in names:
            self.ask(name, random)
        self.write(CLIENT)
        self.broker_gets_requests()
        self.answer(len(self.broker.answers))
        while self.to_send[BROKER] and self.write(BROKER, cut and max(cut, 13)):
            pass

    @precondition(lambda self: self.is_open and self.to_send[CLIENT])
    @rule(cut=CUTS)
    def client_goes_on(self, cut: int) -> None:
        """With what it has begun to write."""
        self.write(CLIENT, cut)

    # ---- the broker

    def answer(self, count: int) -> None:
        for _ in range(min(count, len(self.broker.answers))):
            frame = self.broker.answers.popleft()
            self.append(BROKER, frame)
            self.said.append(correlation_of(frame))

    @precondition(lambda self: self.is_open and not self.wrong and self.broker.answers)
    @rule(count=st.integers(1, 3), cut=CUTS)
    def broker_answers(self, count: int, cut: int) -> None:
        """The oldest requests."""
        self.answer(count)
        self.write(BROKER, cut)

    @precondition(lambda self: self.is_open and self.to_send[BROKER])
    @rule(cut=CUTS)
    def broker_goes_on(self, cut: int) -> None:
        """With what it has begun to write."""
        self.write(BROKER, cut)

    @precondition(lambda self: self.talking and not self.wrong and self.broker.quiet)
    @rule(size=st.sampled_from((0, 70)), cut=CUTS)
    def broker_answers_what_wants_no_answer(self, size: int, cut: int) -> None:
        """An acks=0 Produce, as librdkafka's mock does."""
        number = self.broker.quiet.pop(0)
        frame = framed(number.to_bytes(4, "big") + bytes(size))
        self.append(BROKER, frame)
        self.said.append(number)
        self.write(BROKER, cut)

    @precondition(lambda self: self.may_end and not self.wrong and not self.session.requests.is_new)
    @rule(how=st.sampled_from(WRONG), cut=CUTS)
    def broker_is_wrong(self, how: str, cut: int) -> None:
        """What it says cannot be right, and it says nothing more."""
        answers = self.broker.answers
        frame = framed(b"\x7f\xff\xff\xffabc")
        if how == "again" and self.said and self.said[-1] in self.broker.replies:
            frame = self.broker.replies[self.said[-1]]
        elif how == "too soon" and len(answers) > 1 and correlation_of(answers[0]) != correlation_of(answers[1]):
            frame = answers[1]
        elif how in ("no size", "short", "tls"):
            frame = {"no size": b"\xff" * 8, "short": b"\0\0\0\3abcde", "tls": b"\x16\x03\x03\x01\x00\x02\0\0\0\0"}[how]
        self.wrong = True
        answers.clear()
        self.append(BROKER, frame)
        self.write(BROKER, cut)

    # ---- all else

    @rule(seconds=st.sampled_from((0.001, 0.02, 1.0, 11.0, 1000.0)))
    def time_passes(self, seconds: float) -> None:
        """All that is due is done."""
        self.talk.later(seconds)

    @rule(
        names=st.lists(st.sampled_from(list(FIXED)), unique=True, max_size=3),
        made=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 50)), max_size=2),
        asks=REQUESTS,
        seed=SEEDS,
    )
    def rules_change(self, names: list[str], made: list[tuple[str, int]], asks: list[str], seed: int) -> None:
        """As the app does it, and the client asks more. A set that is refused changes nothing."""
        self.change_rules(names, made)
        if self.talking:
            self.client_asks(asks, seed, 0)

    def change_rules(self, names: list[str], made: list[tuple[str, int]]) -> None:
        rules = [FIXED[name] | {"name": name} for name in names]
        rules += [random_rule(kind, Random(seed), list(APIS), f"{kind} {seed}") for kind, seed in dict.fromkeys(made)]
        try:
            change = self.store.replace_files([Source("a.yaml", dumps({"rules": rules}))], self.talk.now)
        except DocumentError:
            return
        live = self.store.rule_set.bind(NOWHERE).live
        for running in live:
            running.effect.clock = lambda: self.talk.now
            assert self.rules.get(running.name) is running or running.name not in self.rules or not running.matched
            self.rules[running.name] = running
        self.in_force(live)
        self.session.use(Plan(self.session.plan.bound, live), self.talk.now)
        self.talk.obey()
        for running in change.left:
            running.resume()
        self.talk.obey()

    def in_force(self, live: Sequence[ActiveRule]) -> None:
        """These rules hold for the connection from now on; what waits may still obey those before."""
        for running in live:
            self.forbids |= running.rule.family == "access" and not running.dry_run
            self.names_topics |= running.rule.reads_topics and not running.dry_run

    @precondition(lambda self: any(running.held for running in self.rules.values()))
    @rule()
    def held_requests_are_released(self) -> None:
        """By the user."""
        self.release()

    def release(self) -> None:
        for running in self.rules.values():
            running.resume()
        self.talk.obey()

    @precondition(lambda self: self.talk.tokens)
    @rule()
    def kernel_takes_what_was_sent(self) -> None:
        """As far as tokens tell."""
        self.session.sent(self.talk.tokens.popleft(), self.talk.now)
        self.talk.obey()

    @precondition(lambda self: self.talk.wanted)
    @rule()
    def nodes_become_known(self) -> None:
        """Their ports are open."""
        nodes = self.talk.wanted.popleft().nodes
        self.session.nodes_ready({node: port_of(node) for node in nodes}, self.talk.now)
        self.talk.obey()

    @rule(requests=st.booleans(), left=st.sampled_from((0, 100)))
    def other_connections_take_memory(self, requests: bool, left: int) -> None:
        """All but a little of both areas."""
        memory = self.shared.requests if requests else self.shared.responses
        small, general = memory.small, memory.general
        parts = (small.limit - small.used) // memory.below
        rest = general.limit - general.used - left
        for size in (*[rest] * (rest >= memory.below), *[memory.below - 1] * parts):
            if not memory.waiting:
                self.others += 1
                lane = MemoryLane(f"network {self.others}")
                assert lane.ask(memory, size)
                self.hogged.append((memory, lane.reserved))

    @precondition(lambda self: self.hogged)
    @rule()
    def other_connections_give_memory_back(self) -> None:
        """Those who wait for it get it."""
        memory, hold = self.hogged.pop()
        self.session.wake(memory.release(hold))
        self.talk.obey()

    @precondition(lambda self: self.may_end)
    @rule(side=st.sampled_from((CLIENT, BROKER)))
    def side_ends(self, side: int) -> None:
        """When it has written what it had to."""
        self.write(side)
        if self.is_open and not self.to_send[side]:
            self.over = True
            self.session.eof(side, self.talk.now)
            self.talk.obey()

    @precondition(lambda self: self.may_end)
    @rule()
    def drains(self) -> None:
        """kproxy is to stop."""
        self.over = True
        self.session.drain(self.talk.now)
        self.talk.obey()

    # ---- what always holds

    @invariant()
    def broker_gets_requests(self) -> None:
        for frame in self.new_frames(BROKER):
            self.broker.take(frame)
            number = int.from_bytes(frame[8:12], "big", signed=True)
            if number == CORRELATION:
                ids = [one["topic_id"].bytes for one in decode_request(frame[4:]).body["topics"] or ()]
                assert frame == (named_topics_request(ids) if ids else all_topics_request())
                continue
            where = self.place[number]
            assert where >= self.next[BROKER], f"request {number} has come twice, or late"
            self.passed_over(self.next[BROKER], where)
            self.next[BROKER] = where + 1
            self.is_request(frame, self.asked[where])
        rest = self.talk.to_broker[self.got[BROKER] :]
        if rest and self.bound != "renaming":
            self.is_beginning(rest, self.asked[self.next[BROKER] :])
        requests = self.session.requests
        if self.goes_on and not requests.blocked and not rest and self.sent[CLIENT] in self.ends[CLIENT]:
            self.passed_over(self.next[BROKER], self.ends[CLIENT].index(self.sent[CLIENT]) + 1)

    @invariant()
    def client_gets_answers(self) -> None:
        for frame in self.new_frames(CLIENT):
            number = correlation_of(frame)
            where = self.place[number]
            assert where >= self.next[CLIENT], f"answer {number} has come twice, or late"
            assert self.asked[where].due or number in self.acted_on, f"nobody wants answer {number}"
            self.next[CLIENT] = where + 1
            self.heard.append(number)
            self.is_answer(frame, self.asked[where])
        rest = self.talk.to_client[self.got[CLIENT] :]
        if rest and self.bound == "passive":
            self.is_beginning(rest, [one for one in self.asked[self.next[CLIENT] :] if one.due], self.broker.replies)
        responses = self.session.responses
        if self.goes_on and not self.wrong and not responses.blocked and self.sent[BROKER] in self.ends[BROKER]:
            assert not rest
            read = self.said[: self.ends[BROKER].index(self.sent[BROKER]) + 1]
            wanted = [number for number in read if number != CORRELATION and self.asked[self.place[number]].due]
            assert set(wanted) <= {*self.heard, *self.acted_on}

    @invariant()
    def closed_for_a_reason(self) -> None:
        all_read = self.wrong and self.sent[BROKER] == self.ends[BROKER][-1]
        if all_read and not self.session.responses.blocked and self.session.phase is not SessionPhase.STALLED:
            assert self.talk.closed is not None, "what is wrong was taken"
        if self.talk.closed is not None and not self.over:
            cause = self.talk.closed.cause
            assert cause in ((*WRONG_CAUSES,) if self.wrong else ()) + (
                ("rule",) if self.acted_on or self.refused else ()
            ) + (("api_blocked",) if self.forbids and self.is_unread_next else ()), cause

    @invariant()
    def counts_are_right(self) -> None:
        for memory in self.memories:
            assert 0 <= memory.used <= memory.limit
        for running in self.rules.values():
            assert running.applied <= running.fired <= running.matched, running.name
            assert not running.problems, running.problem
            assert not (running.dry_run and running.applied)

    # ---- the parts of that

    @property
    def memories(self) -> tuple[HeldMemory, HeldMemory]:
        return self.shared.requests, self.shared.responses

    @property
    def goes_on(self) -> bool:
        return self.is_open and self.session.phase is not SessionPhase.STALLED

    def new_frames(self, side: int) -> list[bytes]:
        """Whole frames, size included, that have come out there."""
        out = self.talk.out[side]
        found = []
        while len(out) - self.got[side] >= 4:
            size = int.from_bytes(out[self.got[side] : self.got[side] + 4], "big", signed=True)
            assert size >= 4, "no frame"
            if len(out) < self.got[side] + 4 + size:
                break
            found.append(bytes(out[self.got[side] : self.got[side] + 4 + size]))
            self.got[side] += 4 + size
        return found

    @property
    def is_unread_next(self) -> bool:
        """Whether the first request that has neither gone on nor been dealt with is one that kproxy cannot read."""
        dealt = self.acted_on | self.ours
        rest = (one for one in self.asked[self.next[BROKER] :] if one.correlation not in dealt)
        return any(one.key == UNKNOWN or one.version == FUTURE for one in islice(rest, 1))

    def passed_over(self, start: int, stop: int) -> None:
        for one in self.asked[start:stop]:
            assert one.correlation in self.acted_on or one.correlation in self.ours, f"{one.correlation} was lost"

    def is_request(self, frame: bytes, one: Asked) -> None:
        if one.correlation in self.acted_on or (self.acted_on and one.key in IN_SESSIONS):
            return
        if frame == one.frame:
            return
        assert self.bound == "renaming" or one.key == FETCH, f"request {one.correlation} was changed"
        assert one.key != UNKNOWN
        came, went = (decode_request(each[4:], trailing=True) for each in (one.frame, frame))
        if one.key == REGEX_HEARTBEAT:  # which names it means is for the tests of patterns to say
            came.body.pop("subscribed_topic_regex", None)
            went.body.pop("subscribed_topic_regex", None)
        if self.gets_no_session(came):  # its topics are listed anew, and one without partitions asks for nothing
            came.body.update(session_epoch=CLOSING, forgotten_topics_data=[])
            came.body["topics"] = listed_anew(came.body["topics"])
        assert went.header == came.header
        assert (client_named(went.body) if self.bound == "renaming" else went.body) == came.body

    def gets_no_session(self, came: Message) -> bool:
        """Whether a Fetch gives topics by ids, which nobody has named here, while rules go by names (decision 12)."""
        if came.api.key != FETCH or came.version < IDS_SINCE or not self.names_topics:
            return False
        return came.body["session_epoch"] == OPENING and any(topic["topic_id"].int for topic in came.body["topics"])

    def is_answer(self, frame: bytes, one: Asked) -> None:
        number = one.correlation
        if number in self.acted_on:
            return
        if number in self.ours:
            if one.key == VERSIONS:
                assert frame == unsupported(number)
            return
        said = self.broker.replies[number]
        if self.bound == "passive" or one.key in NO_NAMES or one.key == UNKNOWN:
            assert frame == said, f"answer {number} was changed"
        elif self.bound == "renaming":
            decode_response(frame[4:], one.key, one.version, trailing=True)

    def is_beginning(self, rest: bytes, due: list[Asked], replies: dict[int, bytes] | None = None) -> None:
        """Of the frame of one of these: of the first one, unless a rule has acted."""
        for one in due:
            whole = one.frame if replies is None else replies.get(one.correlation, b"")
            if one.correlation in self.acted_on or (self.acted_on and one.key in IN_SESSIONS):
                return
            if whole.startswith(rest):
                return
            if one.correlation not in self.ours:
                break
        raise AssertionError(f"neither a request nor an answer begins with {rest[:40]!r}")

    # ---- the end

    def teardown(self) -> None:
        if hasattr(self, "talk"):
            while self.hogged:
                self.other_connections_give_memory_back()
            self.finish()
            assert self.shared.requests.used == self.shared.responses.used == 0

    def finish(self) -> None:
        """Nothing is left of the connection, however it ends."""
        others = [sum(hold.size for memory, hold in self.hogged if memory is one) for one in self.memories]
        for _ in range(4 * len(self.asked) + 20):
            self.talk.settle()
            self.release()
            for side in (CLIENT, BROKER):
                self.write(side)
            self.broker_gets_requests()
            self.client_gets_answers()
            if not self.wrong:
                self.answer(len(self.broker.answers))
            self.talk.later(1e7)
            self.closed_for_a_reason()
        if self.goes_on:
            assert not self.wrong
            assert not self.to_send[CLIENT] and not self.to_send[BROKER]
            due = {one.correlation for one in self.asked if one.due}
            assert self.over or due - self.dropped <= set(self.heard) <= due | self.acted_on
            assert self.session.idle and not self.session.inflight.fifo
            assert [memory.used for memory in self.memories] == others
            assert not self.session.marks.waiting and self.session.marks.acted == ([], [])
            assert self.talk.read == {CLIENT: True, BROKER: True} or self.over
        self.session.end(self.talk.now)
        assert [memory.used for memory in self.memories] == others
        assert not any(memory.waiting for memory in self.memories)
        assert not any(running.held for running in self.rules.values())
        self.counts_are_right()


def head(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    """A frame with a null client id, size in front."""
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation.to_bytes(4, "big") + b"\xff\xff"
    return framed(header + body)


def correlation_of(answer: bytes) -> int:
    return int.from_bytes(answer[4:8], "big", signed=True)


def client_named(value: Any) -> Any:
    """The same with the client's names."""
    if isinstance(value, dict):
        return {name: client_named(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [client_named(inner) for inner in value]
    return value.removeprefix(UP) if isinstance(value, str) else value


def listed_anew(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the topics of a Fetch with each partition once, in the place of the first and with what the last says, as
    brokers take it; neighbours of one topic are one."""
    partitions = {
        (topic["topic_id"], one["partition"]): (topic, one) for topic in topics for one in topic["partitions"]
    }
    found: list[dict[str, Any]] = []
    for topic, one in partitions.values():
        if not found or found[-1]["topic_id"] != topic["topic_id"]:
            found.append({**topic, "partitions": []})
        found[-1]["partitions"].append(one)
    return found


@pytest.mark.timeout(3600 if EVERYTHING else 300)
def test_a_session_is_right_after_any_sequence_of_steps() -> None:
    """See the module."""
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(
            max_examples=2000 if EVERYTHING else 30, stateful_step_count=60 if EVERYTHING else 40, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
