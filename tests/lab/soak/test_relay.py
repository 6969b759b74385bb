"""The bad line of the soak is really bad, and good again afterwards."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kproxy.testing.process import free_port
from tests.lab.soak.relay import HOST, Relay, Relays


@pytest.fixture
def line() -> Iterator[tuple[Relays, int, socket.socket, socket.socket]]:
    """Relays, the port behind them, and both ends of a connection through one."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((HOST, free_port())))
        port = server.getsockname()[1]
        relays = stack.enter_context(Relays([port]))
        near = stack.enter_context(socket.create_connection((HOST, relays.ports[port])))
        far = stack.enter_context(server.accept()[0])
        near.settimeout(60)
        far.settimeout(60)
        near.sendall(b"hello")
        assert far.recv(5) == b"hello"
        yield relays, port, near, far


@pytest.mark.parametrize(("on", "off"), [((Relay.stall, True), (Relay.stall, False)),
                                         ((Relay.lose, 1.0), (Relay.lose, 0.0))],
                         ids=["stall", "silence"])  # fmt: skip
def test_nothing_passes_for_a_while(line: tuple[Relays, int, socket.socket, socket.socket], on: tuple[object, ...],
                                    off: tuple[object, ...]) -> None:  # fmt: skip
    """Then all of it does."""
    relays, port, near, far = line
    relays.do(port, *on)
    near.sendall(b"a")
    far.settimeout(0.3)
    with pytest.raises(TimeoutError):
        far.recv(1)
    relays.do(port, *off)
    far.settimeout(60)
    assert far.recv(1) == b"a"


def test_packets_are_lost_and_sent_again(line: tuple[Relays, int, socket.socket, socket.socket]) -> None:
    """The kernel has had to send some twice, and the bytes are whole."""
    relays, port, near, far = line
    far.settimeout(60)
    relays.do(port, Relay.lose, 0.2)
    for number in range(40):
        near.sendall(bytes([number]))
        assert far.recv(1) == bytes([number])
    retransmits = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[100:104]  # tcpi_total_retrans
    assert int.from_bytes(retransmits, "little") > 0


def test_connections_end(line: tuple[Relays, int, socket.socket, socket.socket]) -> None:
    """By a reset where that was asked for; and nobody is served while the relay refuses."""
    relays, port, near, far = line
    relays.do(port, Relay.end, "reset")
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    relays.do(port, Relay.refuse)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, relays.ports[port]))
    relays.do(port, Relay.listen)
    with socket.create_connection((HOST, relays.ports[port])) as again:
        assert again.getpeername()[1] == relays.ports[port]
