"""Held frames that keep memory from others, with sessions, a clock and connections that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.rules.exchange import Facts
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.runtime import timeouts
from kproxy.runtime.io.side import ANSWERED, PAUSED, PEER_BLOCKED
from kproxy.runtime.protocols import ConnectionPhase
from kproxy.runtime.timeouts import MEMORY_INTERVAL, MemoryWatch, progress
from kproxy.session.commands import BROKER, CLIENT, Wake
from kproxy.session.held_memory import BROKER_PATIENCE, PATIENCE, HeldMemory
from kproxy.session.plan import ConnectionSettings
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

METADATA, DESCRIBE_GROUPS = 3, 15
RENAME = ConnectionSettings(NameMaps(topics=NameMap.of({"a*": "b*"})), advertise=False)
GROUPS = ConnectionSettings(NameMaps(groups=NameMap.of({"a*": "b*"})), advertise=False)
KIB = 1024
LIMIT = 256 * KIB
"""As 256 MiB, divided by a thousand; then frames below 8 KiB are small."""


class StubConnection:
    """Connection without sockets. What its session sends waits in `out` of a side that does not read."""

    def __init__(self, world: World, talk: Dialogue) -> None:
        self.world, self.talk = world, talk
        self.client, self.broker = (
            SimpleNamespace(which=which, out=None, pending=0, written=0, got=0, muted=0, sock=object(), shaper=None)
            for which in (CLIENT, BROKER)
        )
        self.turn: object = None
        self.phase, self.closed, self.cause = ConnectionPhase.OPEN, False, ""

    def end(self, cause: str, message: str, reset: bool = False) -> None:
        assert reset
        self.closed, self.cause = True, cause
        self.talk.session.end(self.world.now)
        for command in self.talk.session.commands:
            assert isinstance(command, Wake)
            self.world.wake(command.sessions)


class World:
    """Reactor and server of a watch, with a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *memories: HeldMemory) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Callable[[], object]]] = []
        self.errors: list[str] = []
        self.reactor: Any = self
        monkeypatch.setattr("kproxy.runtime.timeouts.monotonic", lambda: self.now)
        for memory in memories:
            MemoryWatch(memory, self)

    @property
    def log(self) -> Any:
        return SimpleNamespace(error=lambda text, **fields: self.errors.append(text))

    def call_at(self, when: float, call: Callable[[], object]) -> None:
        self.calls.append((when, call))

    def soon(self, call: Callable[[], object]) -> None:
        self.call_at(self.now, call)

    def wake(self, sessions: Any) -> None:
        for session in sessions:
            session.granted(self.now)
            session.owner.talk.now = self.now
            session.owner.talk.obey()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.calls and min(when for when, _ in self.calls) <= end:
            due = min(self.calls, key=lambda call: call[0])
            self.calls.remove(due)
            self.now = max(self.now, due[0])
            due[1]()
        self.now = end

    def talk(self, network: str, shared: ClusterState, bound: ConnectionSettings = RENAME) -> Dialogue:
        made = Dialogue(bound=bound, shared=shared, facts=Facts("main", "main", network), now=self.now)
        made.session.owner = StubConnection(self, made)
        return made


def shared_memory() -> ClusterState:
    return ClusterState(requests=HeldMemory(LIMIT), responses=HeldMemory(LIMIT), buffer_threshold=100)


def metadata_request(size: int) -> bytes:
    frame = request(METADATA, 9, 1, topics=[{"name": "t" * 100} for _ in range(size // 104 - 1)])
    assert size // 2 < len(frame) <= size
    return frame


def announced(size: int) -> bytes:
    """30 bytes of a Metadata request of that size."""
    return size.to_bytes(4, "big") + metadata_request(KIB)[4:30]


def groups_response(size: int) -> bytes:
    member = {"member_id": "m", "client_id": "c", "client_host": "h", "member_metadata": bytes(size)}
    group = {"error_code": 0, "group_id": "b", "protocol_type": "x", "members": [member | {"member_assignment": b""}]}
    return response(DESCRIBE_GROUPS, 0, 1, groups=[group])


def cause_of(talk: Dialogue) -> str:
    owner = talk.session.owner
    return "" if owner is None else str(owner.cause)


@pytest.mark.parametrize("fails", ["evict", "progress"])
def test_memory_watch_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """An eviction, or a measurement, raises once; the waiting frame gets its memory all the same."""
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    before, failures = getattr(timeouts, fails), []

    def fail_once(hold: Any) -> Any:
        if not failures:
            failures.append(hold)
            raise RuntimeError("once")
        return before(hold)

    monkeypatch.setattr(timeouts, fails, fail_once)
    for _ in range(20):
        world.talk("10.0.0.1", shared).client(announced(100 * KIB))
    long = metadata_request(60 * KIB)
    victim = world.talk("10.0.0.2", shared).client(long[:500])
    for _ in range(20):
        try:
            world.pass_time(0.1)
        except RuntimeError:  # as logged by the reactor
            assert fails == "progress"
    assert failures and victim.read[CLIENT]
    assert world.errors == ["a held frame cannot be evicted"] * (fails == "evict")


def test_announced_frames_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 connections announce long frames that never come."""
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    greedy = [world.talk("10.0.0.1", shared).client(announced(100 * KIB)) for _ in range(20)]
    small, long = metadata_request(4 * KIB), metadata_request(60 * KIB)

    for network in ("10.0.0.1", "10.0.0.2"):  # a small frame never waits
        victim = world.talk(network, shared).client(small[:500])
        assert victim.read[CLIENT]
        assert victim.client(small[500:]).to_broker != b""
    victim = world.talk("10.0.0.2", shared).client(long[:500])
    assert not victim.read[CLIENT]
    world.pass_time(PATIENCE + 0.3)
    assert victim.read[CLIENT]
    assert victim.client(long[500:]).to_broker != b""
    assert sum(one.session.owner.closed for one in greedy) <= 2


def test_broker_delays_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker announces responses that take all memory of its cluster, and sends nothing."""
    bad, good = shared_memory(), shared_memory()
    world = World(monkeypatch, bad.responses, good.responses)
    said = groups_response(100 * KIB)
    for _ in range(5):
        talk = world.talk("10.0.0.1", bad, GROUPS).client(request(DESCRIBE_GROUPS, 0, 1, groups=["a"]))
        talk.broker((220 * KIB).to_bytes(4, "big") + said[4:200])
    assert bad.responses.used == 220 * KIB + 4

    victim = world.talk("10.0.0.1", good, GROUPS).client(request(DESCRIBE_GROUPS, 0, 1, groups=["a"]))
    assert victim.broker(said[:500]).read[BROKER]
    assert victim.broker(said[500:]).to_client != b""


def test_unread_responses_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks for eight long responses and reads none; another client waits for less than a second."""
    shared = shared_memory()
    world = World(monkeypatch, shared.responses)
    said, asked = groups_response(90 * KIB), request(DESCRIBE_GROUPS, 0, 1, groups=["a"])
    lazy = [world.talk("10.0.0.1", shared, GROUPS).client(asked) for _ in range(8)]
    for talk in lazy:
        talk.session.sent = lambda token, now: None  # the kernel takes nothing
        talk.broker(said[:500])
        if talk.read[BROKER]:
            talk.broker(said[500:])
            talk.session.owner.client.out, talk.session.owner.client.pending = [said], len(said)
    assert shared.responses.used == 2 * len(said)
    victim = world.talk("10.0.0.2", shared, GROUPS).client(asked).broker(said[:500])
    assert not victim.read[BROKER]

    world.pass_time(PATIENCE + 0.3)

    assert victim.read[BROKER]
    assert victim.broker(said[500:]).to_client != b""
    assert {cause_of(talk) for talk in lazy} == {"", "held_evicted"}


def test_client_that_reads_keeps_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_memory()
    world = World(monkeypatch, shared.responses)
    said, asked = groups_response(120 * KIB), request(DESCRIBE_GROUPS, 0, 1, groups=["a"])
    reader = world.talk("10.0.0.1", shared, GROUPS).client(asked)
    reader.session.sent = lambda token, now: None  # the kernel takes some at a time
    side = reader.session.owner.client
    reader.broker(said[:500]).broker(said[500:])
    side.out, side.pending = [said], len(said)
    waiting = world.talk("10.0.0.1", shared, GROUPS).client(asked).broker(said[:500])
    assert not waiting.read[BROKER]
    for _ in range(20):
        world.pass_time(MEMORY_INTERVAL)
        side.pending -= 2 * KIB
        side.written += 2 * KIB
    assert cause_of(reader) == ""

    world.pass_time(2 * PATIENCE + 0.3)
    assert cause_of(reader) == "held_evicted"
    assert waiting.read[BROKER]


@pytest.mark.parametrize("slow", [CLIENT, BROKER])
def test_patience_is_longer_with_brokers(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """The broker does not read: only clients of its cluster wait."""
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    holder = world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    if slow == BROKER:
        holder.session.owner.broker.out = [b""]
        holder.session.owner.client.muted = PEER_BLOCKED
    waiting = world.talk("10.0.0.1", shared).client(announced(100 * KIB))
    world.pass_time(BROKER_PATIENCE - 0.5)
    assert (cause_of(holder) == "") is (slow == BROKER)
    world.pass_time(1.0)
    assert cause_of(holder) == "held_evicted"
    assert waiting.session.requests.reserved is not None


@pytest.mark.parametrize("why", ["turn", "paused", "dial", "rule", "shaped"])
def test_frame_that_kproxy_holds_up_is_not_slow(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    talk = world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    connection, lane = talk.session.owner, talk.session.requests
    hold = lane.reserved
    assert hold is not None
    assert progress(hold) == (200 * KIB + 4 - 30, 0, PATIENCE)
    match why:
        case "turn":
            connection.turn = object()
        case "paused":
            connection.client.muted = PAUSED
        case "dial":
            connection.broker.out, connection.broker.sock = [b""], None
        case "rule":
            lane.blocked = "held"
        case _:
            connection.broker.out = [b""]
            connection.broker.shaper = SimpleNamespace(waiting=object())
    assert progress(hold) is None


@pytest.mark.parametrize("why", ["unread answers", "many requests"])
def test_frame_of_a_client_that_stops_its_reading_is_slow(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The client does not read, or pipelines more requests than allowed, and so kproxy does not read it."""
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    holder = world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    if why == "unread answers":
        holder.session.owner.client.muted = ANSWERED
    else:
        holder.session.full()
        holder.obey()
        holder.session.owner.client.muted = PAUSED
    waiting = world.talk("10.0.0.1", shared).client(announced(100 * KIB))
    world.pass_time(2 * PATIENCE + 0.3)
    assert cause_of(holder) == "held_evicted"
    assert waiting.session.requests.reserved is not None


def test_unread_response_gives_way_despite_further_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes wait at each look, since the client sends requests that kproxy answers."""
    shared = shared_memory()
    world = World(monkeypatch, shared.responses)
    said, asked = groups_response(120 * KIB), request(DESCRIBE_GROUPS, 0, 1, groups=["a"])
    lazy = world.talk("10.0.0.1", shared, GROUPS).client(asked)
    side = lazy.session.owner.client
    lazy.session.sent = lambda token, now: None  # the kernel takes nothing
    lazy.broker(said[:500]).broker(said[500:])
    side.out, side.pending = [said], len(said)
    waiting = world.talk("10.0.0.1", shared, GROUPS).client(asked).broker(said[:500])
    assert not waiting.read[BROKER]
    for _ in range(20):
        world.pass_time(MEMORY_INTERVAL)
        side.pending += 100
    assert cause_of(lazy) == "held_evicted"
    assert waiting.read[BROKER]


def test_connection_that_closes_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    talk = world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    connection, hold = talk.session.owner, talk.session.requests.reserved
    assert hold is not None
    connection.phase = ConnectionPhase.CLOSING
    assert progress(hold) == (hold.size, 0, PATIENCE)
    connection.closed = True
    assert progress(hold) is None


@pytest.mark.parametrize("end", ["close", "stall"])
def test_session_that_passes_nothing_frees_its_memory(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Its connection is still open, as its client does not read; another session had waited for memory too."""
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    holder, leaver, waiting = (world.talk("10.0.0.1", shared).client(announced(200 * KIB)) for _ in range(3))
    for talk in (leaver, holder):
        if end == "close":
            talk.session.close("rule", "closed")
        else:
            talk.session.stall()
        for command in talk.session.commands:
            if isinstance(command, Wake):
                world.wake(command.sessions)
    assert waiting.session.requests.reserved is not None
    assert shared.requests.used == waiting.session.requests.reserved.size
    for talk in (holder, leaver, waiting):
        talk.session.end(world.now)
    assert shared.requests.used == 0
    assert not shared.requests.waiting


def test_watch_rests_when_no_frame_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_memory()
    world = World(monkeypatch, shared.requests)
    world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    assert world.calls == []
    waiting = world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    world.talk("10.0.0.1", shared).client(announced(200 * KIB))
    assert len(world.calls) == 1
    world.pass_time(PATIENCE + 0.3)
    assert waiting.session.requests.reserved is not None
    world.pass_time(PATIENCE + 0.3)
    world.pass_time(1.0)
    assert world.calls == []
