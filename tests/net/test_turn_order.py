"""In which order long work goes on, and how much of it is under way at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from kproxy.net.capacity import Capacity, HalfOpen
from kproxy.net.loop.turn_order import LEVELS, Order
from kproxy.rules.document.address import network_of


@dataclass(eq=False)
class Work:
    """So many slices from one address. `done`: how many it has had."""

    address: str
    needs: int
    level: int = -1
    slices: int = 0
    done: int = 0
    dead: bool = False


def run(order: Order[Work], slices: int) -> list[Work]:
    """Go on for so many slices; those that have ended, in order."""
    ended = []
    for _ in range(slices):
        work = order.next()
        if work is None:
            break
        work.done += 1
        if work.done == work.needs:
            work.dead = True
            order.leave(work)
            ended.append(work)
        else:
            order.add(work)
    return ended


def under_way(works: list[Work]) -> list[int]:
    """How many have worked for longer than all levels below allow, by level."""
    floors = [sum(one.slices for one in LEVELS[:level]) for level in range(len(LEVELS))]
    return [sum(1 for work in works if not work.dead and work.done > floor) for floor in floors]


@pytest.mark.parametrize("addresses", [1, 1000])
def test_few_are_in_the_middle_of_long_work(addresses: int) -> None:
    """A thousand long frames from one address or from as many: what is kept of them is bounded."""
    order: Order[Work] = Order()
    works = [Work(f"a{number % addresses}", 400) for number in range(1000)]
    for work in works:
        order.add(work)
    for _ in range(100):
        run(order, 37)
        for level, found in enumerate(under_way(works)):
            assert found <= sum(one.places for one in LEVELS[level:])
        if addresses == 1:
            assert under_way(works)[1] <= sum(one.share for one in LEVELS[1:])
    run(order, 1000 * 400)
    assert all(work.dead for work in works)
    assert order.taken == [0] * len(LEVELS)
    assert not any(order.by_network)


def test_short_work_of_another_address_does_not_wait_for_long_work() -> None:
    """A thousand frames of seconds from one address; the first slices of another one's go before nearly all of that."""
    order: Order[Work] = Order()
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
    order: Order[Work] = Order()
    for _ in range(1000):
        order.add(Work("balancer", 10_000))
    run(order, 10_000)
    short = Work("balancer", 1)
    order.add(short)
    run(order, 2 * len(LEVELS))
    assert short.dead


def test_longer_work_of_another_address_goes_on_as_well() -> None:
    """It is at the head of the line for a place on the next level."""
    order: Order[Work] = Order()
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
    order: Order[Work] = Order()
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
    order: Order[Work] = Order()
    works = [Work(f"a{chance.randrange(20)}", chance.choice((1, 5, 30, 200))) for _ in range(600)]
    for work in works:
        order.add(work)
        if chance.random() < 0.3:
            victim = chance.choice(works)
            if victim.level != -1 or not victim.dead:
                victim.dead = True
                order.leave(victim)
        run(order, chance.randrange(20))
    run(order, 100_000)
    assert order.next() is None
    assert all(work.dead for work in works)
    assert order.taken == [0] * len(LEVELS)
    assert not any(order.by_network)
    assert not any(queue.stopped for queue in order.doors)


def test_all_who_wait_are_found_at_the_end() -> None:
    """Those whose address has all its places, too."""
    order: Order[Work] = Order()
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
