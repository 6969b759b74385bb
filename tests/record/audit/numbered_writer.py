"""A process that puts numbered events until it is killed, or for so many seconds: FOLDER INSTANCE FLUSH [SECONDS].

What it has put stands on standard output, a line each: source, number, monotonic time right after the put.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from uuid import uuid4

import structlog

from kproxy.record.audit.event_files import WriterIdentity
from kproxy.record.audit.outlets import FileOutlet, FileSettings
from kproxy.record.audit.recorder import Recorder

PAUSE = 0.0005  # seconds between events: some 1500 a second
PAD = "x" * 200


def main(folder: str, instance: str, flush: str, seconds: str = "1e9") -> int:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    identity = WriterIdentity(instance, str(uuid4()))
    settings = FileSettings(Path(folder), identity, flush=float(flush), roll_size=100_000, roll_age=0.7)
    recorder = Recorder(identity.source, [FileOutlet(settings, structlog.get_logger())])
    acknowledge(identity, 0)
    recorder.start()
    number, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        number += 1
        recorder.put("kproxy.test.v1", time.time(), {"number": number, "pad": PAD})
        acknowledge(identity, number)
        time.sleep(PAUSE)
    return 0 if recorder.close(30) else 1


def acknowledge(identity: WriterIdentity, number: int) -> None:
    os.write(1, f"{identity.source} {number} {time.monotonic()}\n".encode())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
