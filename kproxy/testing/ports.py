"""Ports of this machine that nobody uses, and who talks to a port."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

#: Linux gives outgoing connections a local port from 32768 upwards. Ports are taken from below that, so that a server
#: which is stopped for a while does not find its port in use as the near end of somebody's connection.
_FIRST, _LAST = 12000, 32000


def free_port(host: str = "127.0.0.1") -> int:
    """A port which could be bound a moment ago."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports which could all be bound at once a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            trial = socket.socket(family)
            try:
                trial.bind((host, random.randint(_FIRST, _LAST)))
                held.append(trial)
            except OSError:
                trial.close()
        return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()


def free_port_with_room(room: int) -> int:
    """A port that could be bound a moment ago, as could the `room` ports after it: for a proxy and its nodes."""
    while True:
        first = random.randint(_FIRST, _LAST - room)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + room + 1):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def connections_to(ports: set[int]) -> dict[int, int]:
    """Established connections of this machine to one of `ports`, as the kernel lists them: {inode: port}."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rsplit(":", 1)[1], 16)
            if remote in ports and fields[3] == "01" and fields[9] != "0":
                found[int(fields[9])] = remote
    return found


def sockets_of(pid: int) -> set[int]:
    """The inodes of the sockets that a process holds; empty when it is gone."""
    found: set[int] = set()
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return found
    for entry in entries:
        try:
            link = str(entry.readlink())
        except OSError:  # closed since we listed it
            continue
        if link.startswith("socket:["):
            found.add(int(link[8:-1]))
    return found
