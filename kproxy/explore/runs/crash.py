"""Death of a client in the middle of a request: it is stopped, its request goes on or is lost, and it is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kproxy.testing.injected import Injected

SOON = 5.0
"""Seconds in which a request that was let go has to be on its way to the broker."""


def kill_at_hold(rule: Injected, pid: int, goes_on: bool) -> None:
    """Kill a process, and all that it has started, while the rule holds a request of its own. `goes_on`: the broker
    gets that request all the same; else it is lost with its connection.

    The processes are stopped first: none of them sees what becomes of the request, nor ends its connections in order.
    """
    pids = signal_tree(pid, signal.SIGSTOP)
    if goes_on:
        rule.release()
        with suppress(AssertionError):
            rule.wait(timeout=SOON, count="applied")
    else:
        close_held(rule)
    for one in pids:
        send_signal(one, signal.SIGKILL)


def close_held(rule: Injected) -> None:
    """Close the connections whose requests a rule holds; these reach no broker."""
    server = rule.engine.proxy.server

    def close() -> None:
        held = rule.engine.proxy.desk.held.values()
        sessions = [one.session for one in held if one.running is rule.running]
        for connection in list(server.connections):
            if any(connection.session is session for session in sessions):
                connection.end("client_died", "its client was killed", reset=True)

    rule.engine.call(close)


def signal_tree(pid: int, number: int) -> list[int]:
    """Send a signal to a process and to all that it has started, those included that come meanwhile. Return their
    ids."""
    met: dict[int, None] = {}
    while new := [one for one in process_tree(pid) if one not in met]:
        for one in new:
            send_signal(one, number)
            met[one] = None
    return list(met)


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def process_tree(pid: int) -> list[int]:
    """Return the id of a process and of those that it has started, and these in turn."""
    found, seen = [pid], {pid}
    for one in found:
        for child in children_of(one):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def children_of(pid: int) -> Iterable[int]:
    """Yield the ids of the processes that this one has started, by any of its threads."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, file.read_text().split())
