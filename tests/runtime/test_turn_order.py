"""Order of suspended work, and bounds of the work that is unfinished at once."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kproxy.rules.values.address import network_of
from kproxy.runtime.capacity import Capacity, HalfOpen
from kproxy.runtime.io.fair_queue import BUSY_TURN, CREDIT, LEVELS, REGAIN, Admission


@dataclass(eq=False)
class Work:
    """So many slices from one address. `done`: how many it has had."""

    address: str
    needs: int
    level: int = -1
    slices: int = 0
    done: int = 0
    dead: bool = False


def run(order: Admission, slices: int) -> list[Any]:
    """Go on for so many slices; those that have ended, in order."""
    ended = []
    for _ in range(slices):
        work: Any = order.next()
        if work is None:
            break
        work.done += 1
        if work.done == work.needs:
            work.dead = True
            order.release(work)
            ended.append(work)
        else:
            order.add(work)
    return ended


def has_places(order: Admission) -> bool:
    return any(places.total or places.taken for places in order.places)


def under_way(works: list[Work]) -> list[int]:
    """How many have worked for longer than all levels below allow, by level."""
    floors = [sum(one.slices for one in LEVELS[:level]) for level in range(len(LEVELS))]
    return [sum(1 for work in works if not work.dead and work.done > floor) for floor in floors]


@pytest.mark.parametrize("addresses", [1, 1000])
def test_few_are_in_the_middle_of_long_work(addresses: int) -> None:
    """A thousand long frames from one address or from as many: what is kept of them is bounded."""
    order: Admission = Admission()
    works = [Work(f"a{number % addresses}", 400) for number in range(1000)]
    for work in works:
        order.add(work)
    for _ in range(100):
        run(order, 37)
        for level, found in enumerate(under_way(works)):
            assert found <= sum(one.networks + one.more for one in LEVELS[level:])
        if addresses == 1:
            assert under_way(works)[1] <= sum(one.share for one in LEVELS[1:])
    run(order, 1000 * 400)
    assert all(work.dead for work in works)
    assert not has_places(order)


def test_short_work_of_another_address_does_not_wait_for_long_work() -> None:
    """A thousand frames of seconds from one address; the first slices of another one's go before nearly all of that."""
    order: Admission = Admission()
    for _ in range(1000):
        order.add(Work("long", 10_000))
    run(order, 5000)
    short = [Work("short", 4) for _ in range(3)]
    for work in short:
        order.add(work)
    run(order, 100)
    assert all(work.dead for work in short)


def test_what_needs_no_more_than_a_slice_never_waits_for_places() -> None:
    """Not even behind a thousand of the same address: many clients come from one balancer."""
    order: Admission = Admission()
    for _ in range(1000):
        order.add(Work("balancer", 10_000))
    run(order, 10_000)
    short = Work("balancer", 1)
    order.add(short)
    run(order, 2 * len(LEVELS))
    assert short.dead


def test_longer_work_of_another_address_goes_on_as_well() -> None:
    """It is at the head of the line for a place on the next level."""
    order: Admission = Admission()
    for _ in range(1000):
        order.add(Work("long", 300))
    run(order, 5000)
    other = Work("other", 50)
    order.add(other)
    run(order, 3000)
    assert other.dead


@pytest.mark.parametrize("slices", [80, 500], ids=["medium", "long"])
def test_order_long_work_leaves_places_to_other_networks(slices: int) -> None:
    """One network has work for millions of turns, in all places that it may have."""
    order: Admission = Admission()
    for _ in range(1000):
        order.add(Work("long", 100_000))
    run(order, 5000)
    other = Work("other", slices)
    order.add(other)
    run(order, 10 * slices)
    assert other.dead


def test_ends_in_the_middle_free_their_places() -> None:
    """Random work, of which some ends while it waits or has just gone on: all the rest is done, no place is lost."""
    chance = random.Random(7)
    order: Admission = Admission()
    works = [Work(f"a{chance.randrange(20)}", chance.choice((1, 5, 30, 200))) for _ in range(600)]
    for work in works:
        order.add(work)
        if chance.random() < 0.3:
            victim = chance.choice(works)
            if victim.level != -1 or not victim.dead:
                victim.dead = True
                order.release(victim)
        run(order, chance.randrange(20))
    run(order, 100_000)
    assert order.next() is None
    assert all(work.dead for work in works)
    assert not has_places(order)
    assert not any(places.lines or places.without or places.below for places in order.places)


class Contest:
    """One slice per step, and a clock that a slice advances by 5 ms. Hostile networks keep their work up."""

    def __init__(self, networks: int) -> None:
        self.order: Admission = Admission(lambda: self.steps * 0.005)
        self.steps = 0
        self.chance = random.Random(networks)
        self.hostile = {f"hostile {number}": Counter[int]() for number in range(networks)}
        self.pauses: Counter[str] = Counter()

    def attack(self, network: str, needs: list[int], many: int, pause: int = 0) -> None:
        """Let the network have `many` works, each with one of these numbers of slices, and pauses in between."""
        live = self.hostile[network]
        if not live.total() and pause:
            if self.pauses[network] > self.steps:
                return
            self.pauses[network] = self.steps + pause
        while live.total() < many:
            self.order.add(Work(network, slices := self.chance.choice(needs)))
            live[slices] += 1

    def step(self) -> None:
        self.steps += 1
        for work in run(self.order, 1):
            if work.address in self.hostile:
                self.hostile[work.address][work.needs] -= 1

    def waits(self, needs: int) -> int:
        """Return the slices of other work between the arrival and the end of a work of another network."""
        work, began = Work(f"idle {self.steps}", needs), self.steps
        self.order.add(work)
        while not work.dead:
            self.step()
        return self.steps - began - needs


@pytest.mark.parametrize("needs", [2, 12, 20])
@pytest.mark.parametrize("networks", [1, 4, 16, 36])
def test_order_busy_networks_delay_no_idle_one(networks: int, needs: int) -> None:
    """Each hostile network always has 30 works, of up to 5 s. The bound is that of the module for no other idle one."""
    contest = Contest(networks)
    waits = []
    for number in range(10):
        for _ in range(100 * networks if not number else 500):
            for network in contest.hostile:
                contest.attack(network, [1, 5, 20, 100, 1000], 30)
            contest.step()
        waits.append(contest.waits(needs))
    assert median(waits) <= 1 + needs / 3, waits  # a network whose works all wait for places regains credit
    assert max(waits) <= 200, waits


@pytest.mark.parametrize("needs", [2, 12, 20])
def test_order_networks_that_regain_credit_delay_by_theirs(needs: int) -> None:
    """Half of 16 hostile networks are busy. The others pause after each frame of 0.1 s, so they have credit again."""
    contest = Contest(16)
    waits = []
    for _ in range(15):
        for _ in range(contest.chance.randrange(2000, 4000)):
            for number, network in enumerate(contest.hostile):
                if number % 2:
                    contest.attack(network, [20, 1000], 30)
                else:
                    contest.attack(network, [20], 1, pause=1280)
            contest.step()
        waits.append(contest.waits(needs))
    assert max(waits) <= 1 + needs / 3 + 8 * needs * 4 / 3, waits
    assert max(waits) <= 200


@pytest.mark.parametrize("needs", [100, 300])
def test_order_first_place_goes_to_the_network_with_fewest_slices(needs: int) -> None:
    """16 hostile networks wait for places with frames of 5 s. A frame of 0.5 to 1.5 s waits for one of these only."""
    contest = Contest(16)
    waits = []
    for number in range(5):
        for _ in range(6000 if number else 20_000):
            for network in contest.hostile:
                contest.attack(network, [1000], 3)
            contest.step()
        waits.append(contest.waits(needs))
    assert max(waits) <= 2 * 1000 + 5 * needs, waits


def test_order_network_without_credit_does_not_starve() -> None:
    """New networks with full credit come at every slice; a busy one has a slice in four."""
    order: Admission = Admission(lambda: 0.0)
    busy = Work("busy", 500)
    order.add(busy)
    run(order, 100)
    for number in range(1000):
        order.add(Work(f"new {number}", 20))
        run(order, 1)
    assert 100 + 1000 // BUSY_TURN - 10 <= busy.done <= 100 + 1000 // BUSY_TURN + 10


def test_order_forgets_networks_that_have_full_credit() -> None:
    """20,000 networks come, each for a few slices: records remain for those of the last 12.8 s only."""
    contest = Contest(0)
    for number in range(20_000):
        contest.order.add(Work(f"n{number}", 3))
        for _ in range(3):
            contest.step()
    assert len(contest.order.networks) <= 2 * CREDIT * REGAIN / 0.005 / 3 + 2


def test_order_first_place_is_not_taken_by_others_further_places() -> None:
    """Each of as many networks as a level admits has a place at once, whatever places others have."""
    for number, level in enumerate(LEVELS[1:3], 1):
        order: Admission = Admission(lambda: 0.0)
        floor = sum(one.slices for one in LEVELS[:number])
        for name in range(3):
            for _ in range(50):
                order.add(Work(f"first {name}", 10_000))
        run(order, 20_000)
        others = [Work(f"other {name}", 10_000) for name in range(level.networks - 3)]
        for work in others:
            order.add(work)
        run(order, 20_000)
        assert all(work.done > floor for work in others), level


def test_scale_page_states_the_bounds_of_unfinished_work() -> None:
    """Places, places of one network, and networks that have a place for sure, by level."""
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| frames that need more than 10 ms")]
    ((_, _, default, _, network, *_),) = rows
    levels, ends = LEVELS[1:], [round(sum(one.slices for one in LEVELS[:end]) * 0.3) for end in (2, 3)]
    listed = [int(number) for number in re.findall(r"\d+", default.partition(":")[0])]
    assert listed == [one.networks + one.more for one in levels] + [*ends, 200]
    assert re.findall(r"\d+", network) == [str(one.share) for one in levels] + [str(one.networks) for one in levels]
    total = sum((one.networks + one.more) * size for one, size in zip(levels, [*ends, 200], strict=True))
    assert f"{total / 1000:.1f} GB" in default


def test_all_who_wait_are_found_at_the_end() -> None:
    """Those whose address has all its places, too."""
    order: Admission = Admission()
    works = [Work(f"a{number % 3}", 5000) for number in range(200)]
    for work in works:
        order.add(work)
    run(order, 2000)
    assert Counter(map(id, order.all())) == Counter(map(id, works))


def test_an_ipv6_network_is_one_address() -> None:
    """Whoever has one has 2^64 of them."""
    assert network_of("2001:db8:1:2::7") == network_of("2001:db8:1:2:ffff::1%eth0") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::7") != network_of("2001:db8:1:2::7")
    assert network_of("10.1.2.3") == "10.1.2.3"
    assert network_of("no:address") == "no:address"


def test_handshakes_of_an_ipv6_network_are_counted_together() -> None:
    pending = HalfOpen(Capacity(0, 100, 100))
    for number in range(25):
        assert pending.refusal(f"2001:db8::{number:x}") is None
        pending.begin(f"2001:db8::{number:x}")
    assert pending.refusal("2001:db8::ffff") == (
        "handshakes", "2001:db8::/64 has 25 handshakes under way, no more are allowed",
    )  # fmt: skip
    assert pending.refusal("2001:db8:0:1::") is None
    for number in range(25):
        pending.end(f"2001:db8::{number:x}")
    assert pending.total == 0
    assert not pending.by_address
