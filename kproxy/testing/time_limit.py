"""Time limit of a test that uses the fixture `kproxy`: a watchdog thread ends a test that waits for a lost response.

At the limit, the watchdog closes the proxy's connections and refuses new ones, so that clients report errors. Then it
sends SIGINT to the main thread: asyncio and trio deliver it at a safe point, and clients written in C return for it.
The hooks of the plugin turn the outcome into a failure with the reason. If the test still does not end, the process
writes the reason with all stacks, and exits.
"""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING

from _pytest.outcomes import Failed

from kproxy.base.errors import plural
from kproxy.protocol.table.api_keys import JOIN_GROUP

from .exchanges import SeenExchange

if TYPE_CHECKING:
    from .inject import Kproxy
    from .injected import Injected

CAUSE = "kproxy_timeout"
AGAIN = 1.0  # seconds from one SIGINT to the next; a callback of an event loop may swallow the first
GRACE = 20.0  # seconds after the limit until the process exits
SETTLE = 0.1  # seconds for the last SIGINT to arrive
MOST_LINES = 12
EXIT_CODE = 1
SLOW_JOIN = (
    "librdkafka's mock answers a JoinGroup to a group with members after session.timeout.ms - 1 s: set it to 2000, or "
    "run on Apache Kafka: --kproxy-upstream=kafka"
)
DEBUGGERS = ("pdb", "bdb", "pydevd", "debugpy")


class LimitReached(Failed):
    """Failure of finalizers that run when the time limit ends."""


class TimeLimit:
    """Limit of `seconds` for a test, from `start` to `finish`. `message`: why the test failed; empty before the
    limit."""

    def __init__(self, used: Kproxy, seconds: float) -> None:
        self.used, self.seconds = used, seconds
        self.message = ""
        self._refusal: Injected | None = None
        self._main = threading.main_thread()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name=CAUSE, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """End the watch. When this returns, no SIGINT of the watchdog is under way."""
        while not self._over.is_set():
            try:
                with self._lock:
                    self._over.set()
            except (KeyboardInterrupt, LimitReached):
                if not self.message:
                    raise
        if self.message:
            with suppress(KeyboardInterrupt, LimitReached):
                sleep(SETTLE)
        if self._refusal is not None:
            self._refusal.remove()

    @contextmanager
    def as_failure(self) -> Iterator[None]:
        """Let SIGINT of the watchdog raise LimitReached in this block: a KeyboardInterrupt would end pytest's loop over
        the finalizers of fixtures, the proxy's among them."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not self._main or before is None:
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if self.message:
                raise LimitReached(self.message, pytrace=False)
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _watch(self) -> None:
        if self._over.wait(self.seconds):
            return
        if self._debugged():
            return
        message = self._reason()
        ends = monotonic() + GRACE
        while monotonic() < ends:
            with self._lock:
                if self._over.is_set():
                    return
                if not self.message:
                    self.message = message
                    self._cut()
                self._interrupt()
            if self._over.wait(AGAIN):
                return
        self._exit()

    def _interrupt(self) -> None:
        """Send SIGINT to the main thread. Windows has no signal for one thread: there, it is raised when a blocking
        call returns."""
        if not hasattr(signal, "pthread_kill"):
            _thread.interrupt_main()
        elif self._main.ident is not None and self._main.is_alive():
            signal.pthread_kill(self._main.ident, signal.SIGINT)

    def _debugged(self) -> bool:
        """Return True if a debugger has stopped the main thread."""
        frame = sys._current_frames().get(self._main.ident or 0)
        while frame is not None:
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in DEBUGGERS:
                return True
            frame = frame.f_back
        return False

    def _reason(self) -> str:
        first = f"kproxy_timeout: expected the test to end within {self.seconds:g} s, it still runs"
        try:
            return "\n".join([first, *unanswered(self.used), *acted(self.used)])
        except Exception as error:  # noqa: BLE001  # the test fails in any case
            return f"{first}\nthe proxy does not report its exchanges: {type(error).__name__}: {error}"

    def _cut(self) -> None:
        try:
            self._refusal = self.used.inject("refuse", name=CAUSE)
            self.used.injected.remove(self._refusal)  # not a rule of the test
            server = self.used.engine.proxy.server
            self.used.engine.call(lambda: server.give_up(CAUSE, "the time limit of the test is over"))
        except Exception as error:  # noqa: BLE001  # SIGINT may do
            self.message += f"\nthe proxy's connections stay open: {type(error).__name__}: {error}"

    def _exit(self) -> None:
        """Exit the process: the main thread is in a call that returns neither for closed connections nor for SIGINT."""
        text = f"{self.message}\nthe test did not end within {GRACE:g} s after that; the process exits\n"
        stream = sys.__stderr__
        if stream is not None:
            stream.write(text)
            stream.flush()
            faulthandler.dump_traceback(file=stream, all_threads=True)
        os._exit(EXIT_CODE)


def unanswered(used: Kproxy) -> list[str]:
    """Return a line for each request without a response: first the requests with fired rules, then the oldest."""
    now = monotonic()
    found = [one for one in used.exchanges() if one.answered is None]
    if not found:
        return ["no request is unanswered: the test waits for something else"]
    found.sort(key=lambda one: (not one.taken.rules, bool(one.taken.cut_by), one.came))
    lines = [f"unanswered: {told(one, now)}" for one in found[:MOST_LINES]]
    if used.engine.mock and any(one.key == JOIN_GROUP and not one.taken.rules for one in found):
        lines.append(SLOW_JOIN)
    return lines + (
        [f"and {plural(len(found) - MOST_LINES, 'more unanswered request')}"] if len(found) > MOST_LINES else []
    )


def told(one: SeenExchange, now: float) -> str:
    """Return an unanswered exchange with its connection, its age, and the rules that fired on it."""
    rules = ", ".join(f'"{name}"' for name in dict.fromkeys(one.taken.rules))
    text = str(one).removesuffix(" → unanswered")
    end = f", connection closed ({one.taken.cut_by})" if one.taken.cut_by else ""
    return f"{text} on connection {one.connection}, for {now - one.came:.1f} s{end}; " + (
        f"rules that fired: {rules}" if rules else "no rule fired"
    )


def acted(used: Kproxy) -> list[str]:
    """Return a line for each rule that fired."""
    rules = [one for one in (*used.loaded, *used.injected) if one.running is not None and one.fired]
    return [f'rule "{one.name}": {one.counters}' for one in rules[:MOST_LINES]]
