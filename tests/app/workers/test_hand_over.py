"""Connections on their way to another process."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kproxy.app.workers.fd_passing import Arrivals, HandedClient, HandOver, take
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.io.reactor import Reactor

VISITOR = HandedClient("main", 3, socket.AF_UNIX, ("10.0.0.1", 1234), ("b3", 9092))


@pytest.fixture
def queue() -> Iterator[HandOver]:
    """Closed at the end."""
    made = HandOver()
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What is entered here is closed at the end."""
    with ExitStack() as stack:
        yield stack


def pair(opened: ExitStack) -> tuple[socket.socket, socket.socket]:
    """A client's socket, and the one that is handed over, which is not closed by this test."""
    client, accepted = socket.socketpair()
    opened.enter_context(client)
    return client, accepted


def test_a_connection_arrives_with_all_that_is_known_of_it(queue: HandOver, opened: ExitStack) -> None:
    """It works at the other end, does not block, and is closed at this one."""
    client, accepted = pair(opened)
    assert queue.put(VISITOR, accepted)
    assert accepted.fileno() == -1

    taken = take(queue.far)
    assert taken is not None
    handed, sock = taken
    assert sock is not None
    opened.enter_context(sock)
    client.send(b"hello")
    assert (handed, sock.recv(10), sock.getblocking(), sock.get_inheritable()) == (VISITOR, b"hello", False, False)
    assert take(queue.far) is None


def test_what_is_not_taken_can_be_taken_back(queue: HandOver, opened: ExitStack) -> None:
    """In order, each once; what is closed with the queue ends for its client."""
    clients = []
    for number in range(3):
        client, accepted = pair(opened)
        clients.append(client)
        queue.put(HandedClient("main", number, socket.AF_UNIX, ("a", 1), None), accepted)
    first = take(queue.far)
    assert first is not None and first[1] is not None
    first[1].close()
    back = list(queue.take_back())

    assert [handed.node for handed, _ in back] == [1, 2]
    assert queue.put(*back[0])
    queue.close()
    assert clients[1].recv(1) == b""
    back[1][1].close()


def test_a_full_queue_says_so(queue: HandOver, opened: ExitStack) -> None:
    """The connection stays with who wanted to hand it over."""
    handed = 0
    while True:
        _, accepted = pair(opened)
        if not queue.put(VISITOR, accepted):
            break
        handed += 1

    assert accepted.fileno() >= 0
    accepted.close()
    taken = [sock for _, sock in queue.take_back()]
    for sock in taken:
        sock.close()
    assert len(taken) == handed > 50


def test_arrivals_are_given_to_their_listeners(
    queue: HandOver, opened: ExitStack, quiet_log: Any, logged: list[dict[str, Any]]
) -> None:
    """The place of the node is told first. Without a free descriptor the connection is lost, with a line in the log;
    the end of the queue is the end of arrivals."""
    reactor = Reactor(quiet_log)
    seen: list[Any] = []

    def arrived(node: int | None, sock: socket.socket, address: Any) -> None:
        seen.append((node, address))
        sock.close()

    arrivals = Arrivals(queue.far, reactor, {"main": arrived}, lambda *met: seen.append(met),
                        lambda: seen.append("changed"), LogThrottle(quiet_log))  # fmt: skip
    queue.put(VISITOR, pair(opened)[1])
    reactor.turn(1)
    assert seen == ["changed", ("main", 3, ("b3", 9092)), (3, ("10.0.0.1", 1234))]

    queue.put(VISITOR, pair(opened)[1])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        arrivals.take_all()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert arrivals.taken == 2
    assert [line["event"] for line in logged] == ["a connection is lost, no more files may be open"]
    queue.near.close()
    reactor.turn(1)
    assert arrivals.queue.fileno() == -1
    reactor.close()
