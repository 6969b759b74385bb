"""Keep-alive of sockets: the kernel asks peers that are gone without a word whether they are there.

The kernel's own times are two hours until it asks and eleven minutes until it gives up, for which a dead client would
keep its place and its broker's. What listening sockets are told is inherited by those that they accept; those to
brokers are told when they are about a second old (overdue.py): four system calls that a short connection does without.
"""

from __future__ import annotations

import socket

IDLE = 60
"""Seconds of silence before the first question; less than the five minutes after which most firewalls forget."""
INTERVAL = 10
"""Seconds between questions."""
PROBES = 6
"""Questions without an answer after which the connection is broken: two minutes after the last word."""


def keep_alive(sock: socket.SocketType) -> None:
    """Have the kernel ask whether the peer is there; a socket of this machine needs no such thing."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
