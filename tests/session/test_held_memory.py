"""Shares of the memory for held frames: turns of networks, the area for small frames, eviction."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kproxy.session.held_memory import NETWORK_SHARE, PATIENCE, HeldMemory, Hold, Movement
from tests.support.memory_lane import MemoryLane

MIB = 1 << 20
LIMIT = 256 * MIB
TICK = PATIENCE / 2


def progress(hold: Hold) -> Movement | None:
    return Movement(hold.lane.missing, -hold.lane.missing, PATIENCE) if hold.lane.blocked != "rule" else None


class Clock:
    """Time and the watch of one budget: `look` ends the connections of the lanes that give way."""

    def __init__(self, memory: HeldMemory) -> None:
        self.memory, self.now = memory, 0.0
        self.evicted: list[MemoryLane] = []
        self.granted: list[MemoryLane] = []

    def look(self, count: int = 1) -> None:
        for _ in range(count):
            for hold in self.memory.evictions(self.now, progress):
                if hold is None:
                    self.granted += self.memory.grant()
                else:
                    self.evicted.append(hold.lane)
                    self.granted += self.memory.release(hold)
            self.now += TICK


def lanes_of(network: str, count: int) -> list[MemoryLane]:
    return [MemoryLane(network) for _ in range(count)]


# ---- shares


def test_small_frame_is_granted_while_long_ones_hold_all() -> None:
    memory = HeldMemory(LIMIT)
    greedy = lanes_of("a", 20)
    for lane in greedy:
        lane.ask(memory, 100 * MIB)
    assert sum(lane.reserved is not None for lane in greedy) == 2

    assert MemoryLane("a").ask(memory, 300_000)
    assert MemoryLane("b").ask(memory, 300_000)


def test_small_frame_of_another_network_has_room_at_once() -> None:
    """A network fills its part of the area for small frames, and its part of the other one."""
    memory = HeldMemory(LIMIT)
    while MemoryLane("a").ask(memory, MIB - 1):
        pass

    assert memory.used > LIMIT * 0.9
    assert MemoryLane("b").ask(memory, MIB - 1)


def test_one_network_alone_uses_most_of_the_budget() -> None:
    memory = HeldMemory(LIMIT)
    assert all(lane.ask(memory, 100 * MIB) for lane in lanes_of("a", 2))
    assert memory.used >= LIMIT * 3 // 4


def test_frame_as_long_as_its_area_is_granted_alone() -> None:
    memory = HeldMemory(LIMIT)
    assert MemoryLane().ask(memory, memory.largest)
    assert not MemoryLane().ask(memory, MIB)


def test_networks_take_turns() -> None:
    """A network with a thousand waiting frames delays the frame of another one by one of its own."""
    memory = HeldMemory(LIMIT)
    first = MemoryLane("z")
    assert first.ask(memory, memory.largest)
    many, one = lanes_of("a", 1000), MemoryLane("b")
    for lane in (*many, one):
        assert not lane.ask(memory, 100 * MIB)

    granted = memory.release(first.reserved)

    assert granted == [many[0], one]


def test_short_frame_passes_long_ones_of_its_network() -> None:
    """By fewer bytes than the long frame has, so this one has its turn all the same."""
    memory = HeldMemory(LIMIT)
    first, long, short = lanes_of("a", 3)
    assert first.ask(memory, 200 * MIB)
    assert not long.ask(memory, 100 * MIB)
    assert short.ask(memory, 2 * MIB)

    passed = 2 * MIB
    while long.reserved is None:
        assert memory.release(short.reserved) == []
        short = MemoryLane("a")
        if not short.ask(memory, 9 * MIB):
            break
        passed += 9 * MIB
    assert passed <= 100 * MIB
    assert memory.release(first.reserved)[0] is long


def test_network_at_its_cap_does_not_hold_up_others() -> None:
    memory = HeldMemory(LIMIT)
    for lane in lanes_of("a", 20):
        lane.ask(memory, 100 * MIB)
    assert MemoryLane("b").ask(memory, 10 * MIB)


def test_ended_connections_leave_nothing_in_the_queues() -> None:
    memory = HeldMemory(LIMIT)
    first = MemoryLane("a")
    assert first.ask(memory, memory.largest)
    for _ in range(50):
        lanes = [MemoryLane(str(number)) for number in range(20)] + lanes_of("a", 20)
        for lane in lanes:
            assert not lane.ask(memory, 2 * MIB)
        for lane in lanes:
            assert memory.forget(lane) == []
    area = memory.general
    assert (len(area.shares), len(area.turns), len(area.capped), area.queued) == (1, 0, 0, 0)
    assert not area.shares["a"].line
    assert not memory.waiting


def test_cancel_of_many_waiting_frames_is_linear() -> None:
    """Comparisons of tickets are counted; a line that is gone through for each end would take millions."""
    memory = HeldMemory(LIMIT)
    assert MemoryLane("a").ask(memory, memory.largest)
    lanes = lanes_of("a", 4000)
    for lane in lanes:
        lane.ask(memory, 2 * MIB)
    area = memory.general
    share, rebuilt = area.shares["a"], 0
    for lane in lanes:
        before = share.line
        memory.forget(lane)
        rebuilt += len(before) if share.line is not before else 0
    assert rebuilt <= 4 * len(lanes)


def test_higher_limit_grants_waiting_frames() -> None:
    memory = HeldMemory(64 * MIB)
    first, second = lanes_of("a", 2)
    assert first.ask(memory, 50 * MIB)
    assert not second.ask(memory, 50 * MIB)
    assert memory.use_limit(LIMIT) == [second]


# ---- reservations that give way


def test_silent_holder_gives_way_to_its_own_network() -> None:
    memory = HeldMemory(LIMIT)
    silent = lanes_of("a", 2)
    for lane in silent:
        assert lane.ask(memory, 100 * MIB)
    clock, victim = Clock(memory), MemoryLane("a")
    assert not victim.ask(memory, 100 * MIB)

    clock.look(4)

    assert victim.reserved is not None
    assert len(clock.evicted) == 1


def test_holder_keeps_its_memory_while_nobody_waits() -> None:
    memory = HeldMemory(LIMIT)
    for lane in lanes_of("a", 2):
        assert lane.ask(memory, 100 * MIB)
    clock = Clock(memory)
    clock.look(100)
    assert clock.evicted == []


def test_holder_that_progresses_keeps_its_memory() -> None:
    """Its pace is enough, and its network has no more than its share."""
    memory = HeldMemory(LIMIT)
    holder, other, waiting = MemoryLane("a"), MemoryLane("b"), MemoryLane("b")
    assert holder.ask(memory, 100 * MIB)
    assert other.ask(memory, 100 * MIB)
    assert not waiting.ask(memory, 100 * MIB)
    clock = Clock(memory)
    for _ in range(20):
        for lane in (holder, other):
            lane.missing -= 2 * MIB
        clock.look()
    assert clock.evicted == []


def test_memory_above_the_fair_share_is_taken_back() -> None:
    """Frames of a network that progress hold all memory; another network needs no more than its share."""
    memory = HeldMemory(LIMIT)
    holders = lanes_of("a", 2)
    for lane in holders:
        assert lane.ask(memory, 100 * MIB)
    victim, clock = MemoryLane("b"), Clock(memory)
    assert not victim.ask(memory, 50 * MIB)
    for _ in range(4):
        for number, lane in enumerate(holders):
            lane.missing -= (2 + number) * MIB
        clock.look()

    assert victim.reserved is not None
    assert clock.evicted == [holders[0]], "the slowest one"


@pytest.mark.parametrize("shares", [[[70], [70], [70]], [[110], [15] * 6]])
def test_long_frames_of_several_networks_give_way(shares: list[list[int]]) -> None:
    """Each frame progresses, and has at most half of the area. A network with one frame does not protect the others."""
    memory = HeldMemory(LIMIT)
    holders = []
    for number, sizes in enumerate(shares):
        lanes = lanes_of(str(number), len(sizes))
        assert all(lane.ask(memory, size * MIB) for lane, size in zip(lanes, sizes, strict=True))
        holders += lanes
    victim, clock = MemoryLane("b"), Clock(memory)
    assert not victim.ask(memory, 25 * MIB)
    for _ in range(4):
        for lane in holders:
            lane.missing -= 2 * MIB
        clock.look()
    assert victim.reserved is not None
    assert {lane.network for lane in clock.evicted} <= {"0", "1", "2"} if len(shares) == 3 else {"1"}
    assert len(clock.evicted) <= 2


def test_memory_held_by_a_rule_gives_way_above_the_share_only() -> None:
    memory = HeldMemory(LIMIT)
    holders = lanes_of("a", 2)
    for lane in holders:
        assert lane.ask(memory, 100 * MIB)
        lane.blocked = "rule"
    clock, same, other = Clock(memory), MemoryLane("a"), MemoryLane("b")
    assert not same.ask(memory, 100 * MIB)
    clock.look(20)
    assert clock.evicted == []

    assert not other.ask(memory, 100 * MIB, clock.now)
    clock.look(4)
    assert other.reserved is not None
    assert len(clock.evicted) == 1


def test_slow_holder_of_another_network_stays_if_only_the_capped_wait() -> None:
    memory = HeldMemory(LIMIT)
    slow = MemoryLane("b")
    assert slow.ask(memory, 10 * MIB)
    holders, clock = lanes_of("a", 2), Clock(memory)
    for lane in holders:
        assert lane.ask(memory, 100 * MIB)
    assert not MemoryLane("a").ask(memory, 12 * MIB)
    assert "a" in memory.general.capped
    for _ in range(8):
        for lane in holders:
            lane.missing -= 2 * MIB
        clock.look()
    assert clock.evicted == []


def test_old_measurement_does_not_count() -> None:
    """A frame that had time while nobody waited is measured from when others wait."""
    memory = HeldMemory(LIMIT)
    holder, other = MemoryLane("a"), MemoryLane("a")
    assert holder.ask(memory, 200 * MIB)
    clock = Clock(memory)
    assert not other.ask(memory, 100 * MIB)
    clock.look()
    memory.forget(other)
    clock.now += 1000.0
    holder.missing -= MIB
    assert not other.ask(memory, 100 * MIB, clock.now)
    clock.look(2)
    assert clock.evicted == []


def test_waiting_frame_within_its_share_passes_a_longer_one() -> None:
    """The longest frame has its turn first and waits for all memory; a frame of another network waits `PATIENCE`."""
    memory = HeldMemory(LIMIT)
    holder, long, short = MemoryLane("a"), MemoryLane("b"), MemoryLane("c")
    assert holder.ask(memory, 60 * MIB)
    assert not long.ask(memory, memory.largest)
    assert not short.ask(memory, 40 * MIB)
    clock = Clock(memory)
    for _ in range(4):
        holder.missing -= MIB
        clock.look()
    assert short.reserved is not None
    assert long.reserved is None
    assert clock.evicted == []


# ---- any sequence of events

NETWORKS = ("a", "b", "c", "d")
SIZES = st.one_of(st.integers(1, MIB - 1), st.integers(MIB, 224 * MIB))


class MemoryMachine(RuleBasedStateMachine):
    """Lanes of several networks that reserve, move, return and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = HeldMemory(LIMIT)
        self.clock = Clock(self.memory)
        self.lanes: list[MemoryLane] = []

    def of(self, number: int) -> MemoryLane | None:
        return self.lanes[number % len(self.lanes)] if self.lanes else None

    @rule(network=st.sampled_from(NETWORKS), size=SIZES)
    def reserve(self, network: str, size: int) -> None:
        lane = MemoryLane(network)
        self.lanes.append(lane)
        assert lane.ask(self.memory, size, self.clock.now) == (lane.reserved is not None)

    @rule(number=st.integers(0, 1000), part=st.integers(1, 4))
    def move(self, number: int, part: int) -> None:
        lane = self.of(number)
        if lane is not None and lane.reserved is not None:
            lane.missing -= lane.missing // part

    @rule(number=st.integers(0, 1000))
    def end(self, number: int) -> None:
        lane = self.of(number)
        if lane is None:
            return
        self.lanes.remove(lane)
        self.memory.forget(lane)
        if lane.reserved is not None:
            self.memory.release(lane.reserved)

    @precondition(lambda self: self.memory.waiting)
    @rule()
    def look(self) -> None:
        self.clock.look()
        self.leave()

    def leave(self) -> None:
        self.lanes = [lane for lane in self.lanes if lane not in self.clock.evicted]

    @rule(limit=st.sampled_from((LIMIT, LIMIT // 2)))
    def change_limit(self, limit: int) -> None:
        self.memory.use_limit(limit)

    @invariant()
    def counts_agree(self) -> None:
        memory = self.memory
        held = [lane.reserved for lane in self.lanes if lane.reserved is not None]
        assert memory.used == sum(hold.size for hold in held)
        assert set(memory.waiting) == {lane for lane in self.lanes if lane.reserved is None}
        for area in (memory.small, memory.general):
            used = Counter[str]()
            for hold in held:
                if hold.share.area is area:
                    used[hold.share.network] += hold.size
            assert used == {name: share.used for name, share in area.shares.items() if share.used}
            assert area.queued == sum(ticket.share.area is area for ticket in memory.waiting.values())
            assert not set(area.turns) & set(area.capped)
            lines = {name for name, share in area.shares.items() if share.head() is not None}
            assert lines == set(area.turns) | set(area.capped)

    @invariant()
    def limits_hold(self) -> None:
        """An area whose limit was lowered grants nothing until it is below."""
        memory = self.memory
        assert memory.used <= LIMIT
        for area in (memory.small, memory.general):
            for share in area.shares.values():
                most = LIMIT * 7 / 8 if area is memory.general else LIMIT / 8
                assert len(share.holds) < 2 or share.used <= most * NETWORK_SHARE

    @invariant()
    def nothing_that_fits_waits(self) -> None:
        """The frame whose turn it is waits for memory that others have."""
        for area in (self.memory.small, self.memory.general):
            assert area.next() is None

    def teardown(self) -> None:
        """If no holder moves, every frame that waits is granted after a bounded number of looks, or evicted later."""
        waited = len(self.lanes)
        for _ in range(4 * waited + 4):
            if not self.memory.waiting:
                break
            self.clock.look()
            self.leave()
        assert not self.memory.waiting
        while self.lanes:
            self.end(0)
        self.counts_agree()
        assert self.memory.used == 0
        assert not self.memory.small.shares
        assert not self.memory.general.shares


def test_memory_is_right_after_any_sequence_of_events() -> None:
    run_state_machine_as_test(MemoryMachine)
