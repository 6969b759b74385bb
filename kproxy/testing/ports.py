"""Ports of this machine that are free, and the connections to a port."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from pathlib import Path

#: Linux gives outgoing connections a local port from 32768 upwards. Ports are taken from below that, so that a server
#: which is stopped for a while does not find its port in use as the near end of somebody's connection.
_FIRST, _LAST = 12000, 32000
_STEP = 32  # ports from one that is given out to the next: a proxy's nodes get ports after its own


def _part() -> tuple[int, int]:
    """Return the first of the ports of this process, and how many there are. Workers of pytest-xdist have a part
    each."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    number, count = (int(worker[2:]), int(workers)) if worker[2:].isdigit() and workers.isdigit() else (0, 1)
    size = (_LAST - _FIRST) // count
    return _FIRST + number * size, (size // _STEP - 1) * _STEP


_START, _SIZE = _part()
_BEGIN, _SHIFT = random.randrange(0, _SIZE, _STEP), random.randrange(_STEP)
"""First port and first shift within a step; random, for processes that share a part without knowing of each other."""
_numbers = itertools.count()


def _next_port() -> int:
    """Return a port that this process was not given for as long as possible.

    A port is free until it is bound, which whoever asked for it may do much later, and again after a restart.
    """
    rounds, place = divmod(next(_numbers) * _STEP, _SIZE)
    return _START + (_BEGIN + place) % _SIZE + (_SHIFT + rounds) % _STEP


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port which could be bound a moment ago."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports which could all be bound at once a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            trial = socket.socket(family)
            try:
                trial.bind((host, _next_port()))
                held.append(trial)
            except OSError:
                trial.close()
        return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()


def free_port_with_room(room: int) -> int:
    """Return a port that could be bound a moment ago, as could the `room` ports after it: for a proxy and its nodes."""
    while True:
        first = _next_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + room + 1):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def connections_to(ports: set[int]) -> dict[int, int]:
    """Return this machine's established connections to one of `ports`, as the kernel lists them: {inode: port}."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rsplit(":", 1)[1], 16)
            if remote in ports and fields[3] == "01" and fields[9] != "0":
                found[int(fields[9])] = remote
    return found


def sockets_of(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process holds; empty when it is gone."""
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
