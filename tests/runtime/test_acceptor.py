"""The acceptor's sockets: what waits in the kernel while the loop is busy."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from kproxy.runtime.listeners.port_pool import listen

AT_ONCE = 1_500
"""More than the 1,024 that are often taken for many; each is two descriptors here."""


def test_many_connections_at_once_wait_to_be_accepted() -> None:
    """While nobody accepts, the kernel completes as many as it lets anybody have; none has to begin again later."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    kernel = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (usual, most))
        server = stack.enter_context(listen((socket.AF_INET, ("127.0.0.1", 0))))
        for _ in range(AT_ONCE):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            assert client.connect_ex(server.getsockname()) in (0, 115)  # EINPROGRESS
        accepted = 0
        try:
            while True:
                stack.enter_context(server.accept()[0])
                accepted += 1
        except BlockingIOError:
            pass
        assert accepted >= min(AT_ONCE, kernel)
