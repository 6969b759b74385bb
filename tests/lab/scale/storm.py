"""Reconnections on a false clock: after a pod or a broker goes, while connections reach their age, and in a rollout.

Clients are numbers, and pods have one core each, which makes connections one after the other. What a connection costs
is measured (the bench's row "connect, ApiVersions, close"); ages and their pace are `kproxy.runtime.timeouts` itself.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

from kproxy.runtime.protocols import ConnectionPhase
from kproxy.runtime.timeouts import MaxAges

FIRST_BACKOFF, LONGEST_BACKOFF, SPREAD = 0.05, 1.0, 0.2
"""Seconds, and the part of them by chance: reconnect.backoff.ms and .max.ms of Kafka's Java client."""
SETUP = 10.0
"""Seconds after which a client gives up a connection that is not made: socket.connection.setup.timeout.ms."""


@dataclass(frozen=True)
class Storm:
    """Outcome of a storm: seconds until all are back, connections in the busiest second of a pod, attempts of a client
    at most."""

    seconds: float
    busiest: int
    attempts: int


def storm(clients: int, pods: int, cost: float, seed: int = 1) -> Storm:
    """Let so many clients come to so many pods at once. `cost`: CPU seconds of a connection."""
    chance = random.Random(seed)
    free = [0.0] * pods
    seconds = Counter[tuple[int, int]]()
    line = [(chance.uniform(0, FIRST_BACKOFF), number, 1) for number in range(clients)]
    heapq.heapify(line)
    last, most = 0.0, 1
    while line:
        at, number, attempt = heapq.heappop(line)
        pod = chance.randrange(pods)
        done = max(free[pod], at) + cost
        most = max(most, attempt)
        if done - at > SETUP:
            wait = min(FIRST_BACKOFF * 2**attempt, LONGEST_BACKOFF) * chance.uniform(1 - SPREAD, 1 + SPREAD)
            heapq.heappush(line, (at + SETUP + wait, number, attempt + 1))
            continue
        free[pod] = done
        seconds[pod, int(done)] += 1
        last = max(last, done)
    return Storm(round(last, 2), max(seconds.values()), most)


class Aging:
    """Connection as far as its age is concerned."""

    def __init__(self, since: float) -> None:
        self.listener = SimpleNamespace(name="main")
        self.since, self.drain_at = since, inf
        self.phase, self.leaving, self.turn = ConnectionPhase.OPEN, None, None


@dataclass(frozen=True)
class Spreading:
    """Outcome of ages after a pod came back empty: its share of the mean after one and two ages, and the connections
    that were made anew in the busiest second."""

    share_after_one: float
    share_after_two: float
    busiest: float


def spreading(connections: int, pods: int, age: float, jitter: float, step: float = 10.0, seed: int = 1) -> Spreading:
    """Let connections that began together on all pods but one reach their ages; each then comes to any pod."""
    state = random.getstate()
    random.seed(seed)
    try:
        limits = SimpleNamespace(max_connection_age=age, max_connection_age_jitter=jitter)
        listener = SimpleNamespace(name="main", max_connection_age=None, max_connection_age_jitter=None)
        config: Any = SimpleNamespace(limits=limits, listeners=[listener], workers=1)
        ages = [MaxAges(config) for _ in range(pods)]
        held: list[set[Any]] = [set() for _ in range(pods)]
        for number in range(connections):
            connection: Any = Aging(0.0)
            pod = number % (pods - 1)
            ages[pod].began(connection)
            held[pod].add(connection)
        busiest, shares, now = 0, [], 0.0
        for until in (age * (1 + jitter) + 120, 2 * age * (1 + jitter) + 240):
            while now < until:
                now += step
                moved = 0
                for pod in range(pods):
                    for connection in ages[pod].take(held[pod], now, step):
                        held[pod].discard(connection)
                        new: Any = Aging(now)
                        other = random.randrange(pods)
                        ages[other].began(new)
                        held[other].add(new)
                        moved += 1
                busiest = max(busiest, moved)
            shares.append(round(len(held[-1]) / (connections / pods), 2))
    finally:
        random.setstate(state)
    return Spreading(shares[0], shares[1], round(busiest / step, 1))


@dataclass(frozen=True)
class Rollout:
    """Outcome of a rollout: connections that a client makes anew on average and at most, minutes in all."""

    mean: float
    most: int
    minutes: float


def rollout(clients: int, pods: int, seconds: float, *, stay: bool, seed: int = 1) -> Rollout:
    """Start pods anew one after the other. `stay`: clients come back to the same pod, as with a port of each broker."""
    chance = random.Random(seed)
    at = [number % pods for number in range(clients)]
    made = [0] * clients
    for pod in range(pods):
        for number in range(clients):
            if at[number] == pod:
                made[number] += 1
                if not stay:
                    at[number] = (pod + chance.randrange(1, pods)) % pods
    return Rollout(round(sum(made) / clients, 2), max(made), round(pods * seconds / 60, 1))
