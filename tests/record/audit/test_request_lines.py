"""Lines of request events are the same whether they are made by templates or all read, to the last byte."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from json import dumps
from random import Random
from typing import Any
from uuid import UUID

import pytest
import structlog

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.record.audit.audit_sink import AuditSink, RequestLines
from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.event_sink import EventGate, OutletCounters, Unblocked
from kproxy.record.audit.recorder import PutGapEvent, Recorder
from kproxy.record.events.column import EventData
from kproxy.record.fanout import Fanout
from kproxy.record.observer.number_template import NumberTemplate, TemplateFamily
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.templated_lines import MOST_LINES, FrameLineTemplate
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.audit.exchanges import FakeWho, wall
from tests.record.observer.test_summary_templates import fetch, heartbeat, produce
from tests.record.observer.watching import BROKER, CLIENT, Talk, random_talk
from tests.support.random_peers import Manners
from tests.support.tapped_session import Tapped

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
SEEDS = 400 if EVERYTHING else 25
PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT = 0, 1, 8, 12
SEVEN = UUID(int=7)


class Lines:
    """An `Outlet` that keeps what it is given. `templated`: how many lines came of templates."""

    name = "files"
    blocked = False

    def __init__(self) -> None:
        self.counters = OutletCounters()
        self.lines: list[bytes] = []

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Unblocked) -> None:
        pass

    def add(
        self, line: bytes, number: int, day: str, type_name: str, data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        assert isinstance(data["connection"], int)
        self.lines.append(line)

    def missing(self, number: int, reason: str) -> None:
        raise AssertionError(reason)

    def close(self, timeout: float) -> bool:
        return True


class Audited:
    """A connection whose exchanges are all recorded; where `fast`, by templates, and lines wait for each other."""

    def __init__(self, fast: bool) -> None:
        self.who = FakeWho(topics={str(SEVEN): "seven"}, renamed={"topic-1": "its other name"})
        self.outlet, self.now, self.templated = Lines(), 100.0, 0
        self.later: list[Callable[[], None]] = []
        self.gate = EventGate(
            Recorder("instance/boot/0", [self.outlet]), lambda: None, self.later.append if fast else None
        )
        self.sink = AuditSink(AuditConfig(dir="audit", level="requests"), self.gate, wall)
        fanout = Fanout(structlog.get_logger())
        fanout.add(self.sink)
        self.request_lines = self.sink.request_lines_for(self.who)
        write = self.request_lines.write
        request_lines = Spy(self, write) if fast else None
        summary = self.sink.summary_for(self.who)
        self.observer = ConnectionObserver(
            self.who, fanout.depth, fanout.take, summary=summary, request_lines=request_lines
        )
        self.fanout = fanout
        self.buffer = bytearray(1 << 18)

    def hear(self, side: int, data: bytes) -> None:
        """Bytes pass in a buffer that is used again."""
        self.buffer[: len(data)] = data
        (self.observer.to_client if side == BROKER else self.observer.from_client)(self.buffer, len(data), self.now)
        self.buffer[: len(data) + 100] = b"\xa5" * (len(data) + 100)
        del self.buffer[1 << 18 :]
        if len(data) % 7 == 0 and self.later:
            self.later.pop()()

    def end(self) -> list[bytes]:
        self.observer.end(self.now)
        self.gate.time_is_over()
        assert self.fanout.failures == 0
        return self.outlet.lines


class Spy:
    """The connection's request_lines, which counts."""

    def __init__(self, audited: Audited, write: Callable[..., None]) -> None:
        self.audited, self.real_write = audited, write
        self.learn = audited.request_lines.learn

    @property
    def standing(self) -> object:
        return self.audited.request_lines.standing

    def write(self, exchanges: Sequence[Any], now: float) -> None:
        self.audited.templated += len(exchanges)
        self.real_write(exchanges, now)


def compare(talk: Talk, random: Random, cuts: bool = False, events: bool = True) -> tuple[int, int]:
    """Play a conversation to both; how many lines came of templates, and how many there are."""
    fast, slow = Audited(fast=True), Audited(fast=False)
    told: list[int] = []
    for side, data in talk:
        later, cut = random.choice((0.0, 0.000_4, 0.013_7, 1.9, 70.0)), random.randrange(1, 60)
        size = cut if cuts and random.random() < 0.3 else len(data)
        told = [*told, *ids(data)][-10:] if side == CLIENT else told
        happens = [change(random, told) for _ in range(events and random.random() < 0.05)]
        for audited in (fast, slow):
            audited.now += later
            for what in happens:
                what(audited)
            for at in range(0, len(data), size):
                audited.hear(side, data[at : at + size])
    fast_lines, slow_lines = fast.end(), slow.end()
    for one, other in zip(fast_lines, slow_lines, strict=False):
        assert one == other
    assert len(fast_lines) == len(slow_lines)
    assert vars(fast.outlet.counters) == vars(slow.outlet.counters)
    for name in ("requests", "responses", "unanswered", "unread", "request_bytes", "response_bytes", "room"):
        assert getattr(fast.observer, name) == getattr(slow.observer, name), name
    assert fast.sink.accounts[3].client_id == slow.sink.accounts[3].client_id
    assert slow.templated == 0
    return fast.templated, len(fast_lines)


def ids(data: bytes) -> list[int]:
    """Correlation ids of whole requests."""
    found = []
    while len(data) >= 12:
        found.append(int.from_bytes(data[8:12], "big", signed=True))
        data = data[4 + max(int.from_bytes(data[:4], "big", signed=True), 0) :]
    return found


def change(random: Random, told: list[int]) -> Callable[[Audited], None]:
    """Something that is told of an open exchange, or that changes on the connection."""
    correlation, number = random.choice(told or [1]), random.randrange(100)

    def principal(audited: Audited) -> None:
        audited.who.principal, audited.who.standing = f"User:%d{number}", object()

    def names(audited: Audited) -> None:
        audited.who.renamed, audited.who.standing = {"topic-0": f"renamed {number}"}, object()

    kinds: list[Callable[[Audited], None]] = [
        principal,
        names,
        lambda audited: audited.observer.waited(correlation, number / 1000, response=False, by_rule=True),
        lambda audited: audited.observer.waited(correlation, number / 1000, response=True, by_rule=False),
        lambda audited: audited.observer.acted(correlation, ["a rule"], answered=number > 50),
        lambda audited: audited.observer.failed(correlation, [6]),
        lambda audited: audited.observer.refocus(audited.fanout.depth),
    ]
    return random.choice(kinds)


def commit(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    parts = [{"partition_index": 0, "committed_offset": random.choice((-1, correlation * 7)), "committed_metadata": ""}]
    asked = {"group_id": "group", "member_id": "member", "topics": [{"name": "topic-1", "partitions": parts}]}
    done = [{"partition_index": 0, "error_code": random.choice((0, 0, 0, 22))}]
    answer = {"topics": [{"name": "topic-1", "partitions": done}]}
    return request(OFFSET_COMMIT, version, correlation, **asked), response(
        OFFSET_COMMIT, version, correlation, **answer
    )


def read(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    """A Fetch as consumers send it, and what comes of it."""
    named = {"topic_id": SEVEN} if version >= 13 else {"topic": "topic-1"}
    asked: dict[str, Any] = {"partition": 2, "fetch_offset": random.choice((5, 1 << 61, (1 << 63) - 1, -1))}
    base = random.choice((0, 99, (1 << 62) - 1, (1 << 63) - 1))
    sizes = [random.choice((5, 50, 500)) for _ in range(random.choice((1, 1, 2)))]
    batch = encode_batch(
        [Record(base + at, 0, b"k", b"v" * size) for at, size in enumerate(sizes)],
        base_offset=base,
        producer=random.choice((Producer(), Producer(5, 1, correlation), Producer(6, 1, 3))),
    )
    empty = {"partition_index": 1, "high_watermark": correlation, "records": random.choice((None, b""))}
    part = {"partition_index": 2, "high_watermark": correlation, "last_stable_offset": correlation, "records": batch}
    answer: dict[str, Any] = {"responses": [named | {"partitions": random.choice(([empty, part], [part], [part]))}]}
    if version >= 5:
        part["log_start_offset"] = random.choice((-1, 3, 4))
    body: dict[str, Any] = {"topics": [named | {"partitions": [asked]}]}
    if version >= 7:
        body |= {"session_id": 9, "session_epoch": correlation}
    return request(FETCH, version, correlation, **body), response(FETCH, version, correlation, **answer)


def written(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    """A Produce of an idempotent producer."""
    named = {"topic_id": SEVEN} if version >= 13 else {"name": "topic-1"}
    records = [Record(at, 0, None, b"v" * random.choice((8, 90))) for at in range(random.choice((1, 2, 200)))]
    batch = encode_batch(records, producer=Producer(77, 0, correlation))
    part = {"index": 4, "records": batch}
    done: dict[str, Any] = {"index": 4, "base_offset": random.choice((correlation, (1 << 63) - 1, -1))}
    if version >= 5:
        done["log_start_offset"] = correlation // 2
    body = {"acks": random.choice((-1, 1)), "timeout_ms": 30000, "topic_data": [named | {"partition_data": [part]}]}
    answer = {"responses": [named | {"partition_responses": [done]}]}
    return request(PRODUCE, version, correlation, "100 % ü", **body), response(PRODUCE, version, correlation, **answer)


KINDS: list[tuple[Callable[..., tuple[bytes, bytes]], tuple[int, ...]]] = [
    (produce, (3, 8, 9, 12, 13)),
    (fetch, (4, 6, 11, 12, 13, 17)),
    (heartbeat, (0, 1, 4)),
    (commit, (2, 7, 8, 9)),
    (read, (4, 5, 11, 12, 13, 17)),
    (written, (3, 5, 8, 9, 12, 13)),
]


def conversation(random: Random, count: int, damage: float = 0.0) -> Talk:
    """Exchanges of a few kinds in one version each, some of them many at a time; `damage`: of frames that have a byte
    changed behind their header."""
    chosen = [(make, random.choice(versions)) for make, versions in random.sample(KINDS, random.choice((1, 2, 6)))]
    talk: Talk = []
    while count > 0:
        pairs = []
        for _ in range(min(random.choice((1, 1, 4, 40)), count)):  # below 0 offsets would go back
            make, version = random.choice(chosen)
            pairs.append(make(random, version, count % 900 + 10))
            count -= 1
        for side in (0, 1):
            frames = [damaged(random, pair[side]) if random.random() < damage else pair[side] for pair in pairs]
            talk.append((CLIENT if side == 0 else BROKER, b"".join(frames)))
    return [one for one in talk if one[1]]


def damaged(random: Random, frame: bytes) -> bytes:
    if len(frame) < 16:
        return frame
    at = random.randrange(12, len(frame))
    return frame[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, frame[at] ^ 1))]) + frame[at + 1 :]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_lines(seed: int) -> None:
    """Conversations about few things are recorded to the same bytes, most of them by templates."""
    random = Random(seed)
    compare(conversation(random, 150), random)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_lines_cut_anywhere(seed: int) -> None:
    """Frames that come in pieces are recorded as those that come whole."""
    random = Random(seed)
    compare(conversation(random, 100), random, cuts=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_lines_of_damaged_frames(seed: int) -> None:
    """A frame that differs from others in one byte is told as its bytes are."""
    random = Random(seed)
    compare(conversation(random, 150, damage=0.3), random)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_lines_of_any_traffic(seed: int) -> None:
    """Random exchanges of all APIs are recorded to the same bytes."""
    random = Random(seed)
    manners = Manners()
    compare(random_talk(random, ["Produce", "Fetch", "OffsetCommit", "Metadata"], 60, manners, 0.1), random)


class Steady(Random):
    """Chances of which always the first one comes."""

    def choice(self, options: Sequence[Any]) -> Any:  # type: ignore[override]  # as it is called here
        return options[0]


@pytest.mark.parametrize(("make", "version"), [(make, version) for make, versions in KINDS[2:] for version in versions])
@pytest.mark.parametrize("together", [1, 5])
def test_what_comes_again_is_recorded_by_templates(
    make: Callable[..., tuple[bytes, bytes]], version: int, together: int
) -> None:
    """Producers, consumers and members of groups are recorded by templates from their second exchange on."""
    talk: Talk = []
    for first in range(10, 110, together):
        pairs = [make(Steady(), version, number) for number in range(first, first + together)]
        talk += [(CLIENT, b"".join(asked for asked, _ in pairs)), (BROKER, b"".join(answered for _, answered in pairs))]
    assert compare(talk, Random(1), events=False) == (100 - together, 100)


def test_what_is_learnt_is_bounded() -> None:
    """A client that makes up names for ever does not have more than so many lines kept."""
    audited = Audited(fast=True)
    kept = 0
    for number in range(1500):
        client = f"client {number // 2}"
        audited.hear(CLIENT, request(HEARTBEAT, 4, number, client))
        audited.hear(BROKER, response(HEARTBEAT, 4, number))
        audited.observer.recorded.get(HEARTBEAT << 16 | 4, TemplateFamily()).learner.misses = 0
        families = audited.observer.recorded.values()
        kept = max(kept, sum(len(form.known) for family in families for form in family.forms))
    assert audited.templated > 600
    assert 100 < kept <= MOST_LINES


def test_templates_go_with_their_connection() -> None:
    """Without a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        audited = Audited(fast=True)
        for number in range(20):
            audited.hear(CLIENT, request(HEARTBEAT, 4, number))
            audited.hear(BROKER, response(HEARTBEAT, 4, number))
        assert audited.templated > 10
        audited.observer.end(audited.now)
        del audited.observer

        assert not [one for one in gc.get_objects() if isinstance(one, FrameLineTemplate | NumberTemplate)]
    finally:
        gc.enable()


RULES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "renamed": [{"name": "renamed", "kind": "rename_topic", "topics": {"topic-1": "another"}}],
    "failing": [
        {"name": "failing", "kind": "error", "match": {"api": "Produce"}, "when": {"nth": 4},
         "error": "NOT_LEADER_OR_FOLLOWER"},
    ],
    "altered": [
        {"name": "altered", "kind": "error", "match": {"api": "Produce"}, "when": {"every": 5}, "at": "response",
         "error": "REQUEST_TIMED_OUT"},
    ],
    "slow": [{"name": "slow", "kind": "delay", "match": {"api": "Fetch"}, "when": {"every": 3}, "delay": "20ms"}],
}  # fmt: skip


def through_proxy(rules: list[dict[str, Any]], fast: bool, random: Random) -> tuple[int, list[bytes]]:
    """Play producers, consumers and a group's member through a session with rules and taps; the audit's lines."""
    outlet = Lines()
    gate = EventGate(Recorder("instance/boot/0", [outlet]), lambda: None)
    sink = AuditSink(AuditConfig(dir="audit", level="requests"), gate, wall)
    templated = 0

    def request_lines_for(who: Any) -> Any:
        request_lines, write = sink.request_lines_for(who), RequestLines.write

        class Counting:
            standing = property(lambda self: request_lines.standing)
            learn = staticmethod(request_lines.learn)

            def write(self, exchanges: Sequence[Any], now: float) -> None:
                nonlocal templated
                templated += len(exchanges)
                write(request_lines, exchanges, now)

        return Counting()

    talk = Tapped(
        dumps({"rules": rules}), chances=random, first=[sink], request_lines_for=request_lines_for if fast else None
    )
    answered = 0
    for number in range(10, 100):
        make, versions = KINDS[random.choice((2, 3, 4, 5))]
        asked, answer = make(Steady(), versions[len(versions) // 2], number)
        answer = answer.replace(b"topic-1", b"another") if "topics" in str(rules) else answer
        talk.client(asked).later(0.05)
        if number in ids(talk.to_broker[answered:]):
            talk.broker(answer)
        answered = len(talk.to_broker)
        talk.later(0.1)
    talk.end()
    assert talk.fanout.failures == 0
    return templated, outlet.lines


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_lines_of_what_rules_do(rules: list[dict[str, Any]], seed: int) -> None:
    """Behind a session with rules the lines are those of an audit that reads everything, and most are templates'."""
    (templated, fast), (none, slow) = (through_proxy(rules, one, Random(seed)) for one in (True, False))
    assert fast == slow
    assert len(fast) > 80
    assert none == 0
    assert templated > 40
