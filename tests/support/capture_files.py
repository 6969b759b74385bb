"""Captures for tests: exchanges to write, packets as others write them, and what Wireshark makes of a file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

from kproxy.app.workers.pool_captures import LocalCells
from kproxy.protocol import apis
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.captures.capture_file import BlockFile, CapturePart, Totals
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.pcapng import Packet, PacketFile
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Form, Frame, ObservedExchange
from tests.support.frames import message

SERVER = ("127.0.0.1", 9092)
FULL = Policy("full")
APIS = {api.name: api for api in apis()}


def begun_part(path: Path) -> CapturePart:
    """Begin the file of a capture, and return the part of its only process."""
    with BlockFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)) as file:
        writer = CaptureWriter(file, FULL)
    totals = Totals(LocalCells(), float)
    totals.grow(writer.written.size)
    return CapturePart(totals, 0)


def client(number: int = 7, **known: Any) -> CapturedConnection:
    """Return a client's connection with this number, from 10.1.2.3 to `SERVER`."""
    return CapturedConnection(number, "client", "10.1.2.3", 40000 + number, *SERVER, 0.0, TopicIdNames(), **known)


def request(api: str, version: int, correlation_id: int, body: dict[str, Any], client_id: str | None = "shop") -> bytes:
    """Return a request frame without its length in front."""
    return message(APIS[api].key, version, "request", body, correlation_id, client_id)


def response(api: str, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    """Return a response frame without its length in front."""
    return message(APIS[api].key, version, "response", body, correlation_id)


def frame(data: bytes, first: float, last: float | None = None, form: Form = Form.WHOLE) -> Frame:
    """Return a frame with the times, in seconds, of its first and last byte, as a watcher gives it."""
    return Frame(len(data) + 4, first, first if last is None else last, data, form)


def metadata(
    number: int = 1, *, who: CapturedConnection | None = None, at: float = 1000.0, topic: str = "orders"
) -> ObservedExchange:
    """Return an exchange in which a client asks for a topic and is answered after 250 ms."""
    asked = request("Metadata", 8, number, {"topics": [{"name": topic}]})
    told = {"brokers": [{"node_id": 1, "host": "b1", "port": 9092, "rack": None}], "topics": []}
    answer = response("Metadata", 8, number, told)
    return ObservedExchange(
        who or client(), number, 3, 8, number, "shop", frame(asked, at), frame(answer, at + 0.25), "answered"
    )  # fmt: skip


def produce(
    number: int = 1, *, who: CapturedConnection | None = None, acks: int = 1, size: int = 100, at: float = 1000.0
) -> ObservedExchange:
    """Return an exchange that writes one record with a value of `size` bytes; answered after 500 ms unless `acks` is
    0."""
    batch = encode_batch([Record(0, 1_000_000, None, b"x" * size)])
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    data = request("Produce", 8, number, {"acks": acks, "timeout_ms": 1000, "topic_data": topics})
    seen = ObservedExchange(who or client(), number, 0, 8, number, "shop", frame(data, at), None, "no_answer_due", acks)
    if acks:
        seen.response = frame(response("Produce", 8, number, {"responses": []}), at + 0.5)
        seen.outcome = "answered"
    return seen


def written(path: Path, exchanges: Iterable[ObservedExchange], policy: Policy = FULL) -> Path:
    """Write these exchanges and the ends of their connections into a capture of kproxy's own. Return its path."""
    with path.open("wb") as file:
        writer = CaptureWriter(file, policy)
        known = {}
        for seen in exchanges:
            known[seen.who.number] = seen.who
            writer.write(seen, SERVER)
        for who in known.values():
            writer.closed(who, 2000.0)
        writer.finish(2000.0, "asked")
    return path


def packets(path: Path) -> list[Packet]:
    """Return all packets of a capture file, in its order."""
    return list(PacketFile(path))


def pcap(path: Path, link: int, found: Iterable[tuple[float, bytes, int]], order: str = "<") -> Path:
    """Write a file as tcpdump does, from (time in seconds, bytes kept of a packet, its length). Return its path."""
    with path.open("wb") as file:
        file.write(pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, link))
        for time, data, length in found:
            whole = int(time)
            file.write(pack(f"{order}IIII", whole, round((time - whole) * 1e6), len(data), length) + data)
    return path


def tool(name: str) -> str:
    """Return the path of a program of Wireshark's. Raises AssertionError when it is not installed."""
    found = shutil.which(name)
    assert found is not None, f"{name} is not here: apt-get install tshark"
    return found


def tshark(path: Path, *arguments: str, port: int = 9092) -> Iterator[list[str]]:
    """Yield the lines that tshark prints for this capture, split into columns."""
    ran = subprocess.run(
        [tool("tshark"), "-n", "-r", str(path), "-d", f"tcp.port=={port},kafka", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for line in ran.stdout.splitlines():
        yield line.split("\t")
