"""The watch over a broker's ports sees whoever connects, and tells those who may from those who may not."""

from __future__ import annotations

import errno
import os
import socket
import threading

import pytest

from kproxy.testing.process import free_ports
from tests.support.connection_watch import ConnectionWatch
from tests.support.processes import connections_to, sockets_of


def test_a_connection_of_somebody_else_is_seen() -> None:
    """A connection to a watched port is a stranger's unless its process was allowed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        nobody, us = ConnectionWatch({port}, []), ConnectionWatch({port}, [os.getpid()])
        nobody.look()
        before = nobody.strangers.copy()
        with socket.create_connection(("127.0.0.1", port)):
            nobody.look()
            us.look()

    assert before == set()
    assert (nobody.strangers, nobody.seen) == ({port}, 0)
    assert (us.strangers, us.seen) == (set(), 1)


def test_the_thread_looks_by_itself() -> None:
    """Between entering and leaving, a watch sees a connection without being asked."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        ConnectionWatch({server.getsockname()[1]}, []) as watch,
    ):
        while not watch.strangers:
            assert connections_to(set(watch.ports))

    assert watch.strangers == set(watch.ports)


def test_the_thread_goes_on_when_descriptors_were_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test beside it in the same process may use up all descriptors for a moment: the looks of that moment are
    left out."""
    failures = iter([OSError(errno.EMFILE, "Too many open files")] * 2)
    looked = threading.Event()

    def look(_: ConnectionWatch) -> None:
        if error := next(failures, None):
            raise error
        looked.set()

    monkeypatch.setattr(ConnectionWatch, "look", look)
    with ConnectionWatch([], []):
        assert looked.wait(60)


def test_free_ports_can_be_bound_and_lie_below_the_ephemeral_range() -> None:
    """Ports are different, can be bound, and are none that the kernel gives to outgoing connections."""
    ports = free_ports(20)

    assert len(set(ports)) == 20
    assert all(1024 < port < 32768 for port in ports)
    for port in ports:
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.fileno() >= 0


def test_a_process_that_is_gone_has_no_sockets() -> None:
    """Asking for the sockets of a process that does not exist gives none, not an error."""
    with socket.socket() as ours:
        assert os.fstat(ours.fileno()).st_ino in sockets_of(os.getpid())
    assert sockets_of(2**22 + 1) == set()
