"""A session against a model: whatever is said, however it is cut and whatever has to wait, the right bytes come out.

Strategy. A conversation is a list of exchanges, each with what the client sends, what the broker must get, what the
broker answers and what the client must get; the model makes the far side's frame from a message's values, with mapped
names and addresses, by encoding it once more. A world plays several conversations at once whose sessions share their
held memory: a random one of the things that can happen next happens, until nothing can. Then everything must have
arrived, in order, and nothing be left over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any
from uuid import UUID

import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.framing import framed
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.cluster import CORRELATION
from kproxy.session.commands import BROKER, CLIENT, CloseBoth, Dial, EnsureNodes, Pause, Resume, Send, Wake
from kproxy.session.held_memory import HeldMemory
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.versions import unsupported
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import defaults, request, response

PRODUCE, FETCH, METADATA, COORDINATOR, HEARTBEAT, HANDSHAKE, VERSIONS, AUTHENTICATE = 0, 1, 3, 10, 12, 17, 18, 36
NAMES = {"orders": "prod.orders", "clicks-eu": "prod.clicks-eu", "other": "other"}
RENAME = NameMap.of({"orders": "prod.orders", "clicks-*": "prod.clicks-*"})
REGEX, MATCHED = "orders|other", {"prod.orders", "other"}
HOSTS = ("b", "broker-0.internal.example.com", "10.0.0.1")
BOUNDS = [
    ConnectionSettings(advertise=False),
    ConnectionSettings(),
    ConnectionSettings(hide_unknown_apis=False),
    ConnectionSettings(names=NameMaps(topics=RENAME)),
    ConnectionSettings(names=NameMaps(topics=RENAME), advertise=False),
]
CUTS = (1, 2, 3, 4, 5, 8, 13, 14, 15, 16, 17, 60, 300, 1000, 5000, 65536, 262144)


def given_address(node: int) -> tuple[str, int]:
    """Where the world's driver says that a node is."""
    return f"proxy-{node}", 30000 + node


@dataclass
class Exchange:
    """`answer` None: the broker gives none. `forwarded` None: kproxy answers itself. `lockstep`: the client waits."""

    asked: bytes
    forwarded: Any
    answer: bytes | None
    heard: bytes | None
    streams: bool = False
    lockstep: bool = False


class Author:
    """Writes a conversation under a bound."""

    def __init__(self, random: Random, bound: ConnectionSettings) -> None:
        self.random, self.bound = random, bound
        self.renames = bound.names is not None
        self.correlation = random.choice((0, 1, 5000, 2**31 - 400))

    def name(self, topic: str, side: int) -> str:
        return NAMES[topic] if self.renames and side == BROKER else topic

    def address(self, node: int, host: str, side: int) -> dict[str, Any]:
        given = given_address(node) if self.bound.advertise and side == CLIENT else (host, 9092)
        return {"node_id": node, "host": given[0], "port": given[1]}

    def nodes(self, most: int = 3) -> list[tuple[int, str]]:
        return [(node, self.random.choice(HOSTS)) for node in range(self.random.randrange(most + 1))]

    def endpoints(self, nodes: list[tuple[int, str]], side: int) -> dict[str, Any]:
        return {"node_endpoints": [self.address(*node, side) | {"rack": None} for node in nodes]}

    def records(self, most: int) -> bytes:
        return self.random.randbytes(self.random.choice((0, 10, 200, self.random.randrange(most))))

    def both(self, key: int, version: int, values: Callable[[int], dict[str, Any]], say: Callable[..., bytes]) -> Any:
        """The frame as the client and as the broker sees it."""
        return tuple(say(key, version, self.correlation, **values(side)) for side in (CLIENT, BROKER))

    def exchange(self, key: int, version: int, asks: Any = None, answers: Any = None, **more: Any) -> Exchange:
        nothing: Callable[[int], dict[str, Any]] = lambda side: {}  # noqa: E731
        asked, forwarded = self.both(key, version, asks or nothing, request)
        heard, answer = self.both(key, version, answers or nothing, response)
        return Exchange(asked, forwarded, answer, heard, **more)

    def produce(self) -> Exchange:
        version, acks, records = self.random.randrange(14), self.random.choice((0, 1, -1)), self.records(3000)
        if not self.random.randrange(20):
            records = self.random.randbytes(self.random.choice((70_000, 300_000)))
        topics, nodes = self.random.sample(list(NAMES), 2), self.nodes(2)
        part = defaults(PRODUCE, version, "response")

        def of(topic: str, side: int) -> dict[str, Any]:
            return {"topic_id": UUID(int=5)} if version > 12 else {"name": self.name(topic, side)}

        def asks(side: int) -> dict[str, Any]:
            data = [{"index": 0, "records": records}]
            return {"acks": acks, "topic_data": [of(topic, side) | {"partition_data": data} for topic in topics]}

        def answers(side: int) -> dict[str, Any]:
            said = {"responses": [of(topic, side) | {"partition_responses": []} for topic in topics]}
            return said | (self.endpoints(nodes, side) if "node_endpoints" in part else {})

        found = self.exchange(PRODUCE, version, asks, answers)
        if acks == 0:
            found.heard = None
            found.answer = found.answer if not self.random.randrange(3) else None
        return found

    def fetch(self) -> Exchange:
        version, records = self.random.randrange(4, 19), self.records(5000)
        if not self.random.randrange(4):
            records = self.random.randbytes(self.random.choice((20_000, 70_000, 600_000)))
        topic, nodes = self.random.choice(list(NAMES)), self.nodes()
        part = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "aborted_transactions": None}
        part |= {"last_stable_offset": 9, "records": records}
        part |= {"log_start_offset": 0} if version >= 5 else {}
        part |= {"preferred_read_replica": -1} if version >= 11 else {}

        def answers(side: int) -> dict[str, Any]:
            by = {"topic_id": UUID(int=5)} if version > 12 else {"topic": self.name(topic, side)}
            said = {"responses": [by | {"partitions": [part]}]}
            return said | (self.endpoints(nodes, side) if version >= 16 and nodes else {})

        return self.exchange(FETCH, version, None, answers, streams=version >= 16 and self.bound.advertise)

    def metadata(self) -> Exchange:
        version, nodes = self.random.randrange(14), self.nodes(12)
        topics = self.random.sample(list(NAMES), 2)

        def asks(side: int) -> dict[str, Any]:
            return {"topics": [{"name": self.name(topic, side)} for topic in topics]}

        def answers(side: int) -> dict[str, Any]:
            said = [{"error_code": 0, "name": self.name(topic, side), "partitions": []} for topic in topics]
            said = [one | ({"is_internal": False} if version else {}) for one in said]
            rack = {"rack": "r"} if version else {}
            return {"brokers": [self.address(*node, side) | rack for node in nodes], "topics": said}

        return self.exchange(METADATA, version, asks, answers)

    def coordinator(self) -> Exchange:
        version, node = self.random.randrange(7), (self.random.randrange(9), self.random.choice(HOSTS))

        def answers(side: int) -> dict[str, Any]:
            found = {"error_code": 0, "error_message": None} | self.address(*node, side)
            if not version:
                del found["error_message"]
            return {"coordinators": [{"key": "g"} | found]} if version >= 4 else found

        return self.exchange(COORDINATOR, version, None, answers)

    def heartbeat(self) -> Exchange:
        group = "g" * self.random.choice((1, 100, 3000))
        return self.exchange(HEARTBEAT, 4, lambda side: {"group_id": group})

    def pattern(self) -> Exchange:
        """A regular expression, for which kproxy may have to ask what topics there are."""
        values = {"group_id": "g", "member_id": f"m{self.correlation}", "subscribed_topic_regex": REGEX}
        found = self.exchange(68, 1, lambda side: values)
        if self.renames:
            found.forwarded = self.is_translated
        return found

    def is_translated(self, frame: bytes) -> bool:
        """What the broker gets names what it calls the topics that match."""
        pattern = decode_request(frame[4:]).body["subscribed_topic_regex"]
        return {name for name in NAMES.values() if re2.fullmatch(pattern, name)} == MATCHED

    def versions(self) -> Exchange:
        listed = [(18, 4), (55, 2), (999, 1), (12, 4)]
        hidden = {False: {}, True: {999: -1 if self.bound.hide_unknown_apis else 1}}[self.bound.advertise]

        def answers(side: int) -> dict[str, Any]:
            tops = [(key, min(top, hidden.get(key, top)) if side == CLIENT else top) for key, top in listed]
            entries = [{"api_key": key, "min_version": 0, "max_version": top} for key, top in tops if top >= 0]
            return {"api_keys": entries}

        return self.exchange(VERSIONS, self.random.randrange(5), None, answers)

    def future_versions(self) -> Exchange:
        head = VERSIONS.to_bytes(2, "big") + b"\x00\x63" + self.correlation.to_bytes(4, "big") + b"\xff\xff\x00"
        asked = framed(head + self.random.randbytes(self.random.choice((0, 3, 2000))))
        return Exchange(asked, None, None, unsupported(self.correlation))

    def unknown(self) -> Exchange:
        if self.bound.advertise and self.bound.hide_unknown_apis:
            return self.heartbeat()
        correlation = self.correlation.to_bytes(4, "big")
        asked = framed(b"\x03\xe7\x00\x00" + correlation + b"\xff\xff" + self.records(900))
        said = framed(correlation + self.records(900))
        return Exchange(asked, asked, said, said)

    def login(self) -> Iterator[Exchange]:
        """Nothing, or SASL in frames, or raw tokens behind a handshake v0."""
        way = self.random.randrange(3)
        if way == 1:
            yield self.exchange(HANDSHAKE, 1, lambda side: {"mechanism": "PLAIN"})
            self.correlation += 1
            yield self.exchange(AUTHENTICATE, 2, lambda side: {"auth_bytes": b"\0u\0p"})
            self.correlation += 1
        elif way == 2:
            mechanism, rounds = self.random.choice((("PLAIN", 1), ("SCRAM-SHA-256", 2), ("GSSAPI", 3)))
            yield self.exchange(HANDSHAKE, 0, lambda side: {"mechanism": mechanism}, lockstep=True)
            for _ in range(rounds):
                token, said = (framed(b"\x60" + self.records(100)) for _ in range(2))
                yield Exchange(token, token, said, said, lockstep=True)
            self.correlation += 1
            if mechanism == "GSSAPI":  # which has no fixed number of tokens: only the last answer ends them
                yield self.exchange(HEARTBEAT, 4, lockstep=True)
                self.correlation += 1

    def write(self, exchanges: int) -> Iterator[Exchange]:
        yield from self.login()
        usual = [self.produce, self.fetch, self.metadata, self.coordinator, self.heartbeat, self.pattern, self.unknown]
        for _ in range(exchanges):
            yield self.random.choice((*usual, *usual, self.versions, self.future_versions))()
            self.correlation += 1


class Talk:
    """One connection of the world: client, driver and broker in one."""

    def __init__(self, world: World, exchanges: list[Exchange]) -> None:
        self.world, self.random = world, world.random
        self.session = Session(world.plan, world.shared)
        self.session.owner = self
        self.unsaid = deque(exchanges)  # by the client
        self.unheard = deque(one for one in exchanges if one.forwarded is not None)  # by the broker
        self.waiting = deque(one for one in exchanges if one.heard is not None)  # for its answer to reach the client
        self.to_send = {CLIENT: bytearray(), BROKER: bytearray()}  # written by that side, not read by the session yet
        self.out = {CLIENT: bytearray(), BROKER: bytearray()}  # got by that side, not a whole frame yet
        self.paused = {CLIENT: False, BROKER: False}
        self.nodes: EnsureNodes | None = None
        self.tokens: list[int] = []
        self.dialled = self.over = False
        self.closed: CloseBoth | None = None

    # ---- what can happen

    def happenings(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if self.unsaid and (not self.unsaid[0].lockstep or self.all_heard):
            found.append(self.say)
        for side in (CLIENT, BROKER):
            if self.to_send[side] and not self.paused[side] and not self.closed:
                found += [self.read_client if side == CLIENT else self.read_broker] * 3
        if self.nodes is not None:
            found.append(self.answer_nodes)
        if self.tokens:
            found.append(self.written)
        elif self.closed and not self.over:
            found.append(self.end)
        return found

    @property
    def all_heard(self) -> bool:
        """The client has the answers to all that it has said."""
        return not self.to_send[CLIENT] and sum(one.heard is not None for one in self.unsaid) == len(self.waiting)

    def say(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 10))):
            if self.unsaid and (not self.unsaid[0].lockstep or self.all_heard):
                self.to_send[CLIENT] += self.unsaid.popleft().asked

    def read_client(self) -> None:
        self.read(CLIENT)

    def read_broker(self) -> None:
        self.read(BROKER)

    def read(self, side: int) -> None:
        waiting = self.to_send[side]
        buf = waiting[: self.random.choice(CUTS)]
        n = len(buf)
        del waiting[:n]
        buf += (b"\x00\xff beyond" * 50)[: self.random.choice((0, 9, 500))]
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        with memoryview(buf) as view:
            go = take(view, n, self.world.now)
            assert 0 <= go <= len(buf)
            self.got(1 - side, bytes(view[:go]))
        buf[:] = b"\xee" * len(buf)
        self.obey()

    def answer_nodes(self) -> None:
        asked, self.nodes = self.nodes, None
        assert asked is not None
        self.session.nodes_ready({node: given_address(node) for node in asked.nodes}, self.world.now)
        self.obey()

    def end(self) -> None:
        """All that was queued is written, or lost."""
        self.over = True
        self.session.end(self.world.now)
        self.session.commands[:] = [one for one in self.session.commands if isinstance(one, Wake)]
        self.obey()

    def written(self) -> None:
        self.session.sent(self.tokens.pop(0), self.world.now)
        self.obey()

    # ---- the driver

    def obey(self) -> None:
        commands = self.session.commands
        while commands:
            command = commands.pop(0)
            assert self.closed is None or isinstance(command, Wake), f"{command} after the end"
            match command:
                case Send(side, data, token):
                    assert side == CLIENT or self.dialled
                    self.got(side, bytes(data))
                    if token:
                        self.tokens.append(token)
                case Dial():
                    assert not self.dialled
                    self.dialled = True
                case Pause(side):
                    assert not self.paused[side]
                    self.paused[side] = True
                case Resume(side):
                    assert self.paused[side]
                    self.paused[side] = False
                case EnsureNodes():
                    assert self.nodes is None
                    self.nodes = command
                case Wake(sessions):
                    self.world.woken += sessions
                case CloseBoth():
                    self.closed = command

    # ---- what comes out

    def got(self, side: int, data: bytes) -> None:
        out = self.out[side]
        out += data
        while len(out) >= 4 and len(out) >= (end := 4 + int.from_bytes(out[:4], "big")):
            frame = bytes(out[:end])
            del out[:end]
            if side == CLIENT:
                self.client_hears(frame)
            else:
                self.broker_hears(frame)

    def broker_hears(self, frame: bytes) -> None:
        if frame[8:12] == CORRELATION.to_bytes(4, "big", signed=True):
            topic = {"error_code": 0, "topic_id": UUID(int=1), "is_internal": False, "partitions": []}
            topics = [topic | {"name": NAMES[name]} for name in NAMES]
            self.to_send[BROKER] += response(METADATA, 10, CORRELATION, topics=topics)
            return
        assert self.unheard, f"nobody said {frame[:80]!r}"
        expected = self.unheard.popleft()
        if callable(expected.forwarded):
            assert expected.forwarded(frame)
        else:
            assert frame == expected.forwarded
        if expected.answer is not None:
            self.to_send[BROKER] += expected.answer

    def client_hears(self, frame: bytes) -> None:
        assert self.waiting, f"nobody answered {frame[:80]!r}"
        expected = self.waiting.popleft()
        if frame != expected.heard:
            assert expected.streams, "a changed frame that is not streamed is exact"
            assert expected.answer is not None and len(frame) == len(expected.answer)
            self.check_streamed(frame, expected)

    def check_streamed(self, frame: bytes, expected: Exchange) -> None:
        """Its length was out before its end was seen: addresses are those given, or none; a filler makes it even."""
        assert expected.heard is not None
        version = decode_request(expected.asked[4:]).version
        got, wanted = (decode_response(one[4:], FETCH, version).body for one in (frame, expected.heard))
        assert got.pop("_tagged_fields")
        ours, theirs = got.pop("node_endpoints"), wanted.pop("node_endpoints")
        assert ours in ([], theirs)
        assert got == wanted


class World:
    """Conversations that share their held memory, and a die."""

    def __init__(self, random: Random, bound: ConnectionSettings, talks: int, exchanges: int) -> None:
        self.random, self.now = random, 0.0
        self.plan = Plan(bound)
        written = [list(Author(random, bound).write(exchanges)) for _ in range(talks)]
        parts = (part for one in chain(*written) for part in (one.asked, one.answer or b""))
        longest = max(map(len, parts), default=0)
        largest = max(longest, 10_000) + random.choice((0, 1, 5000, 1 << 20))
        limit = largest * 8 // 7 + 1  # an eighth is for small frames
        self.shared = ClusterState(
            requests=HeldMemory(limit),
            responses=HeldMemory(limit),
            buffer_threshold=random.choice((100, 3000, 65536)),
            max_in_flight=random.choice((1, 2, 5, 1000)),
        )
        self.woken: deque[Session] = deque()
        self.talks = [Talk(self, one) for one in written]

    def play(self, steps: int = 1 << 30) -> None:
        """Let things happen until nothing can, or so many have."""
        while steps:
            steps -= 1
            self.now += 0.01
            found = [one for talk in self.talks for one in talk.happenings()]
            if self.woken:
                found.append(self.wake)
            if not found:
                return
            self.random.choice(found)()
            assert self.shared.requests.used <= self.shared.requests.limit
            assert self.shared.responses.used <= self.shared.responses.limit

    def wake(self) -> None:
        session = self.woken.popleft()
        session.granted(self.now)
        session.owner.obey()

    def check_memory(self) -> None:
        assert self.shared.requests.used == self.shared.responses.used == 0
        assert not self.shared.requests.waiting and not self.shared.responses.waiting


worlds = st.builds(
    lambda seed, bound, talks, exchanges: (Random(seed), bound, talks, exchanges),
    st.integers(0, 2**32),
    st.sampled_from(BOUNDS),
    st.integers(1, 4),
    st.integers(0, 25),
)


@given(worlds)
@settings(max_examples=100, deadline=None)
def test_everything_arrives_once_in_order_and_nothing_stays(worlds: Any) -> None:
    """Both sides get what the model says; then the sessions are idle, read both sides and hold no memory."""
    random, bound, talks, exchanges = worlds
    world = World(random, bound, talks, exchanges)

    world.play()

    for talk in world.talks:
        assert talk.closed is None, talk.closed
        assert not talk.unsaid and not talk.unheard and not talk.waiting
        assert not talk.to_send[CLIENT] and not talk.to_send[BROKER]
        assert not talk.out[CLIENT] and not talk.out[BROKER]
        assert talk.session.idle and talk.session.waiting_since is None
        assert not talk.paused[CLIENT] and not talk.paused[BROKER]
    world.check_memory()


@given(worlds, st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_a_drain_at_any_moment_answers_what_was_taken_and_ends(worlds: Any, steps: int) -> None:
    """Whatever is held, streamed or waited for: requests that were forwarded are answered, and the session closes."""
    random, bound, talks, exchanges = worlds
    world = World(random, bound, talks, exchanges)
    world.play(steps)

    for talk in world.talks:
        talk.session.drain(world.now)
        talk.obey()
    world.play()

    for talk in world.talks:
        assert talk.closed is not None and talk.closed.cause == "drained"
        assert not talk.out[CLIENT] and not talk.out[BROKER]
        assert not talk.session.inflight.fifo
    world.check_memory()


@given(worlds, st.integers(0, 400), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_connections_that_end_at_any_moment_disturb_no_other(worlds: Any, steps: int, ends: int) -> None:
    """Their memory comes back, those who waited for it go on, and a late word from the driver does no harm."""
    random, bound, talks, exchanges = worlds
    world = World(random, bound, talks, exchanges)
    world.play(steps)

    gone, world.talks = world.talks[:ends], world.talks[ends:]
    for talk in gone:
        talk.end()
        for token in talk.tokens:
            talk.session.sent(token, world.now)
        talk.session.granted(world.now)
    world.play()

    assert all(talk.closed is None and not talk.waiting for talk in world.talks)
    world.check_memory()
