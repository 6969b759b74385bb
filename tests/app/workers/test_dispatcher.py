"""Who gets the next client, told from workers that are only numbers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kproxy.app.config.document import Config
from kproxy.app.workers import dispatcher as module
from kproxy.app.workers.dispatcher import MAX_CROWDING, Dispatcher
from kproxy.app.workers.fd_passing import HandedClient
from kproxy.app.workers.pool_worker import Ledger
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.upstreams.dialler import Topology


class Queue:
    """A queue with room for so many."""

    def __init__(self) -> None:
        self.room = 1000
        self.got: list[tuple[HandedClient, socket.socket]] = []

    def put(self, handed: HandedClient, sock: socket.socket) -> bool:
        if len(self.got) >= self.room:
            return False
        self.got.append((handed, sock))
        return True

    def take_back(self) -> list[tuple[HandedClient, socket.socket]]:
        back, self.got = self.got, []
        return back


class PoolWorker:
    """A worker."""

    def __init__(self, index: int) -> None:
        self.index, self.queue, self.ledger = index, Queue(), Ledger(by_address=True)
        self.ready, self.silent, self.behind = True, False, False


class WorkerPool:
    """All of them."""

    on_room: Callable[[Any], object]
    on_returned: Callable[[Any], object]

    def __init__(self, count: int) -> None:
        self.workers = [PoolWorker(index) for index in range(count)]


class Hall:
    """A dispatcher before `count` workers; `limits` are the config's."""

    def __init__(self, count: int, log: Any, **limits: int) -> None:
        self.pool = WorkerPool(count)
        config = Config.model_validate({
            "clusters": {"c": {"bootstrap": ["b:1"]}}, "limits": limits,
            "listeners": [{"name": "main", "bind": "127.0.0.1:1", "cluster": "c"}],
        })  # fmt: skip
        self.topology, self.counts = Topology(), ConnectionCounts()
        self.dispatcher = Dispatcher(config, self.pool, {"c": self.topology}, self.counts, log)
        self.sockets: list[socket.socket] = []

    def arrive(self, host: str = "a", node: int | None = None) -> socket.socket:
        sock = socket.socket()
        self.sockets.append(sock)
        self.dispatcher.arrived("main", node, sock, (host, 1))
        return sock

    def got(self) -> list[int]:
        return [len(worker.queue.got) for worker in self.pool.workers]


@pytest.fixture
def hall(quiet_log: Any) -> Iterator[Callable[..., Hall]]:
    """Makes one, and closes its sockets in the end."""
    made: list[Hall] = []

    def make(count: int, **limits: int) -> Hall:
        made.append(Hall(count, quiet_log, **limits))
        return made[-1]

    yield make
    for one in made:
        for sock in one.sockets:
            sock.close()


def test_the_one_with_the_fewest_gets_the_next(hall: Callable[..., Hall]) -> None:
    """Among equals they take turns, so that who comes and goes at once is spread, too."""
    three = hall(3)
    for _ in range(7):
        three.arrive()
    assert three.got() == [2, 3, 2]
    three.pool.workers[0].ledger.report(2, 0, {}, 1.0)
    three.arrive()
    three.arrive()
    assert three.got() == [4, 3, 2]

    taking_turns = hall(3)
    for number in range(6):
        taking_turns.arrive()
        for worker in taking_turns.pool.workers:
            worker.ledger.report(len(worker.queue.got), 0, {}, number)
    assert taking_turns.got() == [2, 2, 2]


def test_a_client_comes_with_the_place_of_its_node(hall: Callable[..., Hall]) -> None:
    """As far as it is known; the worker may not have heard of it."""
    one = hall(1)
    one.topology.learn({4: ("b4", 9092)})
    for node in (4, 5, None):
        one.arrive(node=node)

    visitors = [handed for handed, _ in one.pool.workers[0].queue.got]
    assert [(handed.node, handed.broker) for handed in visitors] == [(4, ("b4", 9092)), (5, None), (None, None)]


def test_who_does_not_answer_comes_last(hall: Callable[..., Hall]) -> None:
    """And is taken all the same when there is nobody else; who is not ready is never taken."""
    two = hall(2)
    two.pool.workers[0].silent = True
    two.arrive()
    two.arrive()
    assert two.got() == [0, 2]
    two.pool.workers[1].ready = False
    two.arrive()
    assert two.got() == [1, 2]


def test_clients_wait_when_nobody_can_take_them(
    hall: Callable[..., Hall], monkeypatch: pytest.MonkeyPatch, logged: list[dict[str, Any]]
) -> None:
    """In order, and not without a bound; they count, and those that still wait at the end are refused."""
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    two = hall(2)
    for worker in two.pool.workers:
        worker.ready = False
    sockets = [two.arrive(host) for host in "abcd"]
    assert (two.dispatcher.connections, dict(two.counts.refused)) == (3, {"no_worker": 1})
    assert sockets[3].fileno() == -1

    two.pool.workers[1].ready, two.pool.workers[1].queue.room = True, 1
    two.pool.on_room(two.pool.workers[1])
    two.arrive("e")
    assert [handed.client[0] for handed, _ in two.pool.workers[1].queue.got] == ["a"]
    assert [handed.client[0] for handed, _ in two.dispatcher.waiting] == ["b", "c", "e"]
    two.dispatcher.drain()
    two.arrive("f")
    assert dict(two.counts.refused) == {"no_worker": 1, "shutdown": 4}
    assert logged[0]["reason"] == "no worker can take it, and 3 connections wait for one"


def test_what_one_has_not_taken_goes_to_others(hall: Callable[..., Hall]) -> None:
    """When it dies or stands still."""
    two = hall(2)
    for _ in range(4):
        two.arrive()
    two.pool.workers[0].ready = False
    two.pool.on_returned(two.pool.workers[0])

    assert two.got() == [0, 4]
    assert [worker.ledger.connections for worker in two.pool.workers] == [0, 4]


def test_dispatcher_of_a_full_pool_lets_workers_decide(hall: Callable[..., Hall]) -> None:
    """A client beyond the limit is handed over with a mark; only so many may be on their way."""
    two = hall(2, max_connections=2)
    for _ in range(2 + MAX_CROWDING + 3):
        two.arrive()
    handed = [one for worker in two.pool.workers for one, _ in worker.queue.got]
    assert sorted(one.full for one in handed) == [False] * 2 + [True] * MAX_CROWDING
    assert dict(two.counts.refused) == {"max_connections": 3}


def test_limits_hold_for_all_together(hall: Callable[..., Hall]) -> None:
    """Those on their way and those that wait are counted."""
    two = hall(2, max_connections=5, max_connections_per_address=2)
    for host in ("a", "a", "a", "b"):
        two.arrive(host)
    assert dict(two.counts.refused) == {"max_connections_per_address": 1}
    for worker in two.pool.workers:
        worker.ready = False
    two.arrive("b")
    two.arrive("b")
    two.arrive("c")
    two.arrive("d")
    assert dict(two.counts.refused) == {"max_connections_per_address": 2, "max_connections": 1}
