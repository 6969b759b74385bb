"""How a side reads the records of TLS: those that wait are read together; a lone one is seldom followed by a look."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme

from kproxy.runtime.io.scheduler import BUFFER
from kproxy.runtime.io.tls import MOST_RECORDS, MOST_SKIPPED, RECORD, TlsSide


class Pair:
    """A side and the socket of its peer, whose handshake is done. `looks` counts reads that brought nothing."""

    def __init__(self) -> None:
        authority = trustme.CA()
        here, there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.issue_cert("localhost").configure_cert(here)
        authority.configure_trust(there)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sock = here.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        self.peer = there.wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
        for _ in range(4):
            for end in (self.peer, self.sock):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        self.looks, self.turns = 0, list[object]()
        owner = SimpleNamespace(reactor=SimpleNamespace(soon=self.turns.append), frozen=False)
        self.side = TlsSide(cast("Any", owner), 0, cast("Any", None), cast("Any", None), [])
        self.side.open(self.sock)
        self.side.sock = self.sock
        self.real, self.side.tls_recv = self.side.tls_recv, self.recv

    def recv(self, view: memoryview) -> int:
        try:
            return cast("int", self.real(view))
        except ssl.SSLWantReadError:
            self.looks += 1
            raise

    def read(self) -> int:
        return self.side.read_records(BUFFER)

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


@pytest.fixture
def pair() -> Any:
    made = Pair()
    yield made
    made.close()


@pytest.mark.parametrize("sizes", [[100] * 40, [RECORD, 5], [RECORD, RECORD, 1, 1], [1]])
def test_records_that_wait_are_read_together(pair: Pair, sizes: list[int]) -> None:
    for size in sizes:
        pair.peer.send(bytes(size))
    assert pair.read() == sum(sizes)
    with pytest.raises(BlockingIOError):
        pair.read()


def test_records_are_read_together_again_soon_after_lone_ones(pair: Pair) -> None:
    """However long one record came at a time: of a client that begins to send more, at most so many reads bring one."""
    for _ in range(10 * MOST_SKIPPED):
        pair.peer.send(b"lone")
        assert pair.read() == 4
    sent = 4 * MOST_RECORDS
    for _ in range(MOST_RECORDS):
        pair.peer.send(b"many")
    reads = [pair.read()]
    while sum(reads) < sent:
        reads.append(pair.read())
    assert len(reads) <= MOST_SKIPPED + 1
    for _ in range(MOST_RECORDS):
        pair.peer.send(b"many")
    assert pair.read() == sent


def test_many_records_of_one_byte_keep_nobody_waiting(pair: Pair) -> None:
    """A read ends after some, however little is in them; the next one goes on."""
    many = 4 * MOST_RECORDS
    for _ in range(many):
        pair.peer.send(b"1")
    reads = []
    while sum(reads) < many:
        reads.append(pair.read())
    assert max(reads) <= MOST_RECORDS


def test_behind_lone_records_nobody_looks_for_more(pair: Pair) -> None:
    """A look that finds nothing costs a system call and an exception: lone exchanges pay for one in sixteen."""
    rounds = 20 * (MOST_SKIPPED + 1)
    for _ in range(rounds):
        pair.peer.send(b"lone")
        assert pair.read() == 4
    assert pair.looks <= rounds // (MOST_SKIPPED + 1) + 5


def test_the_end_behind_records_is_told_after_them(pair: Pair) -> None:
    pair.peer.send(b"last")
    with suppress(ssl.SSLWantReadError):
        pair.peer.unwrap()
    assert pair.read() == 4
    assert pair.turns, "nobody would read the end, which OpenSSL has taken from the socket already"
    assert pair.read() == 0
