"""A session between two peers that may say anything, in any pieces, at any time.

- nothing is raised; what cannot go on is closed with a cause, and nothing follows a Close
- without rules every byte that passes is the byte that came, in order: what either side got is the beginning of what
  the other said, and of what is not closed or waited for nothing stays behind but a header that is not whole
- with renames and addresses: answers leave in the order of their requests, each once
- no view of the driver's buffer is kept, and nothing beyond what was read is looked at (the dialogue sees to that)
- a bystander waits at most 50 ms: no work is longer than that without a place where others may run
- held memory stays within its limit, and all of it comes back at the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import NAMESPACES, PrefixLayer
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.held_memory import HeldMemory
from kproxy.session.plan import ConnectionSettings
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.lab.fuzz.feed import FedRandom, Feed
from tests.support.pace import within
from tests.support.random_peers import Broker, Manners, random_traffic
from tests.support.stretches import Stopwatch, Watch, large

RENAME = NameMap.of({"a": "prod.a", "topic-*": "t-*", "x*": "x-much-longer-than-it-was-*"}, {"prod.a": "b"})
TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"tenant.")], space) for space in NAMESPACES))
PASSIVE = ConnectionSettings(advertise=False)
BOUNDS: tuple[ConnectionSettings | str, ...] = (
    PASSIVE, ConnectionSettings(),
    ConnectionSettings(names=NameMaps(topics=RENAME)),
    ConnectionSettings(names=NameMaps(topics=RENAME), advertise=False),
    ConnectionSettings(names=TENANT), ConnectionSettings(names=TENANT, advertise=False),
    "rules: [{name: d, kind: deny, match: {topic: 'topic-*'}}, {name: g, kind: deny, match: {group: 'a*'}}]",
    "rules: [{name: r, kind: read_only, match: {topic: ['/.*e.*/', x*]}}]",
)  # fmt: skip
"""What is fixed when a connection opens, or rules that hold from frame to frame."""
APIS = sorted(schema.names())
CUTS = (0, 1, 2, 3, 5, 8, 13, 15, 16, 60, 300)
HELD = 1 << 16
SASL = (17, 36)
VERSIONS = b"\0\x12"
KNOWN = schema.load(18).versions
WATCH: Callable[[], Watch] = Stopwatch
LONGEST = 0.050
"""Measure of a stretch, and its limit in seconds. Tests count lines instead."""
TRIES = 4
"""A stretch is as long as the shortest of so many attempts: caches are cold at first, and others use the machine."""
MANY = 2000
"""Elements of a large message: so many go into a frame that is taken here."""


class Talk:
    """The session, and what both sides have said."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.bound = feed.pick(BOUNDS)
        self.shared = ClusterState(
            requests=HeldMemory(HELD), responses=HeldMemory(HELD), max_frame_bytes=1 << 16,
            buffer_threshold=feed.pick((100, 200, 3000)), max_in_flight=feed.pick((1, 3, 1000)),
        )  # fmt: skip
        if isinstance(self.bound, str):
            self.talk = Dialogue(self.bound, shared=self.shared)
        else:
            self.talk = Dialogue(bound=self.bound, shared=self.shared)
        self.talk.nodes = lambda node: None if node % 3 == 0 else ("proxy", 30000)
        self.said = {CLIENT: b"", BROKER: b""}
        self.ended = False
        self.broker = Broker(FedRandom(feed.piece()), Manners(junk=0.1, trailing=0.1))
        self.taken = 0
        self.longest = 0.0

    def say(self, side: int, data: bytes) -> None:
        cut = self.feed.pick(CUTS)
        for at in range(0, len(data), cut or len(data) or 1):
            if self.talk.closed is not None or not self.talk.read[side]:
                return
            part = data[at : at + (cut or len(data))]
            self.said[side] += part
            watch = WATCH()
            with watch:
                (self.talk.client if side == CLIENT else self.talk.broker)(part)
            self.longest = max(self.longest, watch.longest)
            assert self.shared.requests.used <= HELD and self.shared.responses.used <= HELD

    def step(self) -> None:
        """One thing that happens."""
        feed = self.feed
        match feed.below(8):
            case 0:
                self.say(CLIENT, feed.piece())
            case 1:
                self.say(BROKER, feed.piece())
            case 2:
                self.say(CLIENT, framed(feed.piece()))
            case 3:
                self.say(BROKER, framed(feed.piece()))
            case 4:
                made = random_traffic(FedRandom(feed.piece()), [feed.pick(APIS) for _ in range(2)], 2)
                self.say(CLIENT, b"".join(one.frame for one in made))
            case 5:
                self.broker.take(self.talk.to_broker[self.taken :])
                self.taken = len(self.talk.to_broker)
                said = b"".join(self.broker.answers)
                self.broker.answers.clear()
                self.say(BROKER, said)
            case 6:
                self.talk.later(feed.pick((0.01, 1.0, 1000.0)))
            case _:
                how = feed.below(20)
                if how < 17:
                    self.end(how)
                else:
                    api = schema.load(feed.pick([schema.names()[one] for one in APIS]))
                    self.say(CLIENT, large(api.key, api.versions.last, "request", MANY, deep=how == 18)[: 1 << 15])

    def end(self, how: int) -> None:
        session, now = self.talk.session, self.talk.now
        if self.talk.closed is None and how < 3:
            self.ended = True
            if how == 2:
                session.drain(now)
            else:
                session.eof(how, now)
            self.talk.obey()


def check(data: bytes) -> None:
    """One input."""
    for _ in range(TRIES):
        longest = conversation(data)
        if longest <= LONGEST or (WATCH is Stopwatch and within(longest, LONGEST)):
            return
    raise AssertionError(f"expected at most {LONGEST} seconds or lines between two yield points, got {longest}")


def conversation(data: bytes) -> float:
    """Let both sides speak. Return the longest stretch of work between two yield points."""
    feed = Feed(data)
    one = Talk(feed)
    steps = 0
    while feed and one.talk.closed is None and steps < 60:
        one.step()
        steps += 1
    if one.bound is PASSIVE:
        passed(one)
    ordered(one)
    one.talk.session.end(one.talk.now)
    assert one.shared.requests.used == one.shared.responses.used == 0
    assert not one.shared.requests.waiting and not one.shared.responses.waiting
    return one.longest


def passed(one: Talk) -> None:
    """Nothing changes: what came out of each side is how the other began."""
    talk = one.talk
    asked = frames(one.said[CLIENT])
    ours = [frame for frame in asked if frame[:2] == VERSIONS and int.from_bytes(frame[2:4], "big") not in KNOWN]
    if ours:  # kproxy answers an ApiVersions request of a version that it does not know
        return
    assert one.said[CLIENT].startswith(talk.to_broker)
    if any(frame[:2] == b"\0\0" for frame in asked):  # what a broker says to acks=0 is dropped
        return
    capped = {frame[4:8] for frame in asked if frame[:2] == VERSIONS}  # by what kproxy knows of Produce
    if not capped:
        assert one.said[BROKER].startswith(talk.to_client)
        return
    *whole, last = frames(talk.to_client) or [b""]
    for number, (said, got) in enumerate(zip(frames(one.said[BROKER]), [*whole, last], strict=False)):
        same = said.startswith(got) if number == len(whole) else said == got
        assert same or got[:4] in capped


def ordered(one: Talk) -> None:
    """The correlation ids that the client got are those that it sent, in order, each once."""
    asked = [frame for frame in frames(one.said[CLIENT]) if len(frame) >= 8]
    if one.talk.session.logins.raw is not None or any(int.from_bytes(frame[:2], "big") in SASL for frame in asked):
        return  # bare tokens have no ids
    got = iter([frame[:4] for frame in frames(one.talk.to_client) if len(frame) >= 4])
    sent = iter(asked)
    for number in got:
        assert any(frame[4:8] == number for frame in sent), f"{number.hex()} was not asked for, or is late"


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: good conversations under every bound."""
    asked = (request(18, 3, 1)[4:], request(3, 9, 2, topics=[{"name": "a"}])[4:], request(0, 9, 3, acks=1)[4:])
    said = (response(18, 3, 1)[4:], response(3, 9, 2)[4:], response(0, 9, 3)[4:])
    for bound in range(len(BOUNDS)):
        begin = bytes((bound, bound % 3, bound % 3, 0))
        pairs = zip(asked, said, strict=True)
        yield begin + b"".join(b"\2" + bytes((len(a),)) + a + b"\0\3" + bytes((len(b),)) + b + b"\4" for a, b in pairs)
        for api in range(0, len(APIS), 17):
            yield begin + bytes((4, 4, 1, 2, 3, 4, api, (api + 5) % len(APIS), 0, 5, 3, 4, 2, 9, 9, api, api, 7, 5, 0))


WORDS = [b"\0\x12\0\x03\0\0\0\x01", b"\0\x03\0\x09", b"\0\x11\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"]
