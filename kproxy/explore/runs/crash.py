"""Death of a client in the middle of a request: it is stopped, its request goes on or is lost, and it is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress

from kproxy.testing.injected import Injected
from kproxy.testing.process import process_tree

SOON = 5.0
"""Seconds in which a request that was let go has to be on its way to the broker."""


def kill_at_hold(rule: Injected, others: Collection[int], goes_on: bool) -> None:
    """Kill all processes that this one has started, but for `others`, while the rule holds a request of theirs.
    `goes_on`: the broker gets that request all the same; else it is lost with its connection.

    The processes are stopped first: none of them sees what becomes of the request, nor ends its connections in order.
    """
    pids = signal_started(signal.SIGSTOP, others)
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


def signal_started(number: int, others: Collection[int] = ()) -> list[int]:
    """Send a signal to all that this process has started, but for `others`; those included that come meanwhile, and
    those that have left their parents (`adopt_orphans`). Return their ids."""
    own = {os.getpid(), *others}
    met: dict[int, None] = {}
    while new := [one for one in process_tree(os.getpid()) if one not in met and one not in own]:
        for one in new:
            send_signal(one, number)
            met[one] = None
    return list(met)


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
