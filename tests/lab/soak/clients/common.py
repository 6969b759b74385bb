"""What the clients of the soak share: their arguments, the end on SIGTERM, a journal, and records that can be checked.

Each is a process of its own: `python FILE '{"bootstrap": …, "journal": …, …}'`. What it knows for certain it writes to
its journal, one JSON object a line, with the monotonic time, which is the same in all processes. A line that was cut
short by a kill says nothing.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")

MARK = b"changed|"
"""What the transformer puts in front of a record."""

STUCK = 35.0
"""Seconds after which a call that was given 20 does not come back any more."""

PATIENT = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.timeout.ms": 20000,  # longer than anything stands still here, so that only what is lost is given up
    "topic.metadata.refresh.interval.ms": 5000,
    "socket.keepalive.enable": True,
}
"""Settings of all clients: they come back soon, and never give up."""


class Client:
    """One client process. `arguments` are what it was started with; `ended` is true after SIGTERM."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = json.loads(sys.argv[1])
        self.journal = os.open(self.arguments["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.ended = False
        signal.signal(signal.SIGTERM, self._end)
        faulthandler.register(signal.SIGUSR1)  # its log then says where it stands

    def _end(self, *_: object) -> None:
        self.ended = True

    def note(self, **what: Any) -> None:
        """A line of the journal. It is with the kernel when this returns, so that a kill does not take it."""
        line = json.dumps({"at": time.monotonic(), **what}).encode() + b"\n"
        while line:
            line = line[os.write(self.journal, line) :]

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.arguments["bootstrap"], "error_cb": self._error, **PATIENT, **more}

    def _error(self, error: KafkaError) -> None:
        print(error, file=sys.stderr, flush=True)
        if error.code() == KafkaError._FATAL:
            self.note(fatal=str(error))

    def or_anew(self, what: str, call: Callable[[], T]) -> T:
        """What the call gives. If it does not come back, the process begins anew, as one would that is restarted."""

        def begin_anew() -> None:
            faulthandler.dump_traceback(all_threads=True)
            self.note(stuck=what)
            os.execv(sys.executable, sys.orig_argv)

        alarm = threading.Timer(STUCK, begin_anew)
        alarm.start()
        try:
            return call()
        finally:
            alarm.cancel()

    def insist(self, call: Callable[[], T]) -> T:
        """What the call gives; again as long as that can help. Raises KafkaException when it cannot."""
        while True:
            try:
                return call()
            except KafkaException as refused:
                error = refused.args[0]
                print("retried:" if error.retriable() else "failed:", error, file=sys.stderr, flush=True)
                if not error.retriable():
                    raise
                time.sleep(0.1)


def value(partition: int, number: int) -> bytes:
    """The record with that number of a partition: some hundred bytes that say all over which one it is."""
    mark = f"{partition}:{number}|".encode()
    return mark * (1 + number % 40)


def number_of(record: bytes) -> tuple[int, int]:
    """Partition and number of a record. Raises ValueError when it is not what was written."""
    partition, _, number = record.partition(b"|")[0].partition(b":")
    found = int(partition), int(number)
    if value(*found) != record:
        raise ValueError(f"a record of {len(record)} bytes begins as number {found} and goes on otherwise")
    return found
