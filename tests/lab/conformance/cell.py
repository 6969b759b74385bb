"""One run: a client's program writes and reads through kproxy, which has one rule, and what came of it is judged.

Strategy: each run has a kproxy of its own, with a capture of all that passes, and a topic and a group of its own; the
cluster is shared, so that several runs go side by side. A program that does not end is killed with all that it started.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kproxy.base.errors import InternalError
from kproxy.cli.admin_client import Admin
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import HOST, ROOM, Proxy, free_port_with_room
from tests.lab.conformance import story
from tests.lab.conformance.faults import NO_FAULT, Fault, general
from tests.lab.conformance.judge import Stored, Told, Verdict, judge
from tests.lab.conformance.verified import proved
from tests.lab.matrix.scenario import COUNT, PARTITIONS, TRAFFIC, TRAFFIC_SECONDS, Names, told
from tests.lab.soak.journals import content
from tests.support.topics import create_topics

SECONDS = TRAFFIC_SECONDS + 25
"""After which a program is killed: it gives up itself before, unless a call of its library does not return."""
WORDS = 1500
"""Bytes that are kept of what a program wrote besides."""
MOST_OUTPUT, CHUNK = 4 << 20, 1 << 16
"""Bytes of a program's output that are read, and how many at once: those of a good one have some kilobytes."""


@dataclass(frozen=True)
class Run:
    """What is kept of one run: client and fault by name, the verdict, and what it was made from."""

    client: str
    version: str
    fault: str
    outcome: str
    text: str
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    fired: float = 0
    seconds: float = 0
    ended: str = ""
    words: str = ""
    story: list[story.Row] = field(default_factory=list)
    proved: list[str] | None = None
    day: str = ""


def run(kafka: Kafka, client: str, command: Sequence[str], fault: Fault | None, number: int) -> Run:
    """Run a client with a fault, or without one. `number` tells runs on the same cluster apart."""
    names = Names(f"run{number}")
    topic, group = names.topic, names.group
    create_topics(kafka.bootstrap("DIRECT"), topic, partitions=PARTITIONS)
    rules = [] if fault is None else [fault.rule(topic, group)]
    with tempfile.TemporaryDirectory(prefix="kproxy-conformance-") as folder:
        with Proxy(config=document(kafka, folder), rules=rules) as proxy:
            admin = Admin(f"http://{proxy.admin}")
            admin("POST", "/api/captures", query={"file": "run", "payload": "full"})
            output, words, ended = executed([*command, *names.arguments(proxy.bootstrap), TRAFFIC])
            capture = Path(admin("DELETE", "/api/captures/run")["file"])
            fired = proxy.metric("kproxy_rule_fired_total")
        stored = stored_in(kafka, topic)
        said = told(output)
        if "client" not in said:
            raise InternalError(f"the program did not begin ({ended}): {words[-WORDS:]}")
        line = said.get(TRAFFIC)
        program = None if line is None else Told(errors=[line["error"]]) if "error" in line else Told.of(line)
        lines = story.read(capture, "" if fault is None else fault.name, topic, group)
        acted = fired if fault else 1
        verdict = judge(program, stored, fired=acted, ended=ended, due=COUNT, recovery=story.recovery(lines))
        found = proved(capture)

        def text(of: str) -> str:
            return general(of, topic, group)

        return Run(
            client, str(said.get("client", {}).get("version", "unknown")), NO_FAULT if fault is None else fault.name,
            verdict.outcome, text(verdict.text), list(map(text, verdict.notes)), counts(program, stored), fired,
            program.seconds if program else 0, ended, text(words), story.shown(lines),
            None if found is None else list(map(text, found)), today(),
        )  # fmt: skip


def broken(client: str, fault: str, error: Exception) -> Run:
    """Return what is kept of a run that failed itself."""
    verdict = Verdict("broken", f"{type(error).__name__}: {error}"[:WORDS])
    return Run(client, "unknown", fault, verdict.outcome, verdict.text, day=today())


def document(kafka: Kafka, folder: str) -> dict[str, Any]:
    """Return the config document of a run's kproxy; captures go into the folder."""
    port = free_port_with_room(ROOM)
    listener = {"name": "main", "bind": f"{HOST}:{port}", "cluster": "main"}
    return {
        "clusters": {"main": {"bootstrap": kafka.bootstrap("DIRECT").split(",")}},
        "listeners": [{**listener, "advertise": {"ports": f"{port + 1}-{port + ROOM}"}}],
        "captures": folder,
    }


def executed(command: Sequence[str], seconds: float = SECONDS) -> tuple[str, str, str]:
    """Run a command, and kill what it has left in its group. Return its output, the end of what it wrote besides, and
    how it ended; what it has started may hold its output open, and is not waited for. Raises InternalError if its
    output is longer than anybody wants to read."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None and child.stderr is not None
    with child.stdout, child.stderr:
        output, words = OpenStream(child.stdout.fileno(), None), OpenStream(child.stderr.fileno(), WORDS)
        handle = os.pidfd_open(child.pid)
        try:
            in_time = read_until_end(handle, [output, words], time.monotonic() + seconds)
        finally:
            os.close(handle)
            os.killpg(child.pid, signal.SIGKILL)  # before it is reaped, since another could get its number then
            code = child.wait()
        for stream in (output, words):
            stream.read_rest()
    if len(output.kept) > MOST_OUTPUT:
        raise InternalError(f"the program was killed, since it wrote more than {MOST_OUTPUT >> 20} MiB")
    ended = f"exit code {code}" if in_time else f"killed after {seconds:.0f} s"
    return output.kept.decode(errors="replace"), words.kept.decode(errors="replace"), ended


class OpenStream:
    """Stream of a program by its descriptor, which does not block. Of what came `most` bytes are kept, the last ones;
    None: all."""

    def __init__(self, descriptor: int, most: int | None) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor, self.most, self.kept, self.open = descriptor, most, bytearray(), True

    def read(self) -> bool:
        """Take what has come. Return True if there may be more at once."""
        try:
            data = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return False
        self.open = bool(data)
        self.kept += data
        if self.most is not None:
            del self.kept[: -self.most]
        return self.open

    def read_rest(self) -> None:
        """Take what has come already, of one that writes on without end a part."""
        for _ in range(MOST_OUTPUT // CHUNK):
            if not self.open or not self.read():
                break


def read_until_end(handle: int, streams: Sequence[OpenStream], until: float) -> bool:
    """Read the streams of a process, of which this is a handle, until it ends. Return False if the time is up before,
    or the first stream floods."""
    while len(streams[0].kept) <= MOST_OUTPUT:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        for stream in streams:
            if stream.open:
                poll.register(stream.descriptor, select.POLLIN)
        left = until - time.monotonic()
        ready = dict(poll.poll(left * 1000)) if left > 0 else {}
        if handle in ready or not ready:
            return handle in ready
        for stream in streams:
            if stream.descriptor in ready:
                stream.read()
    return False


def stored_in(kafka: Kafka, topic: str) -> Stored:
    """Return the records of a topic, read from the brokers themselves."""
    log = content(kafka.bootstrap("DIRECT"), topic, PARTITIONS)
    return {
        (partition, offset): None if value is None else value.decode(errors="replace")
        for partition, records in log.items()
        for offset, value in records
    }


def counts(program: Told | None, stored: Stored) -> dict[str, int]:
    """Return how many records there were of each sort."""
    found = {"stored": len(stored)}
    if program is not None:
        for name in ("sent", "acknowledged", "failed", "read", "errors"):
            found[name] = len(getattr(program, name))
    return found


def today() -> str:
    """Return the day, in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
