"""The golden frames beside this file: what real clients and brokers sent, recorded by record.py.

A file holds what passed between one client and a broker; its lines are `direction api version hex`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kproxy.protocol import Message, decode_request, decode_response
from kproxy.protocol.table import schema

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Frame:
    """A frame without its length: between which client and a broker it passed, and what it is."""

    client: str
    direction: str
    key: int
    version: int
    frame: bytes

    def decode(self) -> Message:
        """The message, by the public API."""
        if self.direction == "request":
            return decode_request(self.frame)
        return decode_response(self.frame, self.key, self.version)

    def __str__(self) -> str:
        return f"{self.client} {self.direction} {schema.load(self.key).name} {self.version}"


def golden() -> list[Frame]:
    """All of them."""
    found = []
    for path in sorted(HERE.glob("*.hex")):
        for line in path.read_text().splitlines():
            direction, name, version, frame = line.split()
            found.append(Frame(path.stem, direction, schema.names()[name], int(version), bytes.fromhex(frame)))
    return found


def record_fields(message: Message) -> Iterator[bytes | memoryview]:
    """The `records` fields of a Produce request or a Fetch response that are not null."""
    outer, inner = {"request": ("topic_data", "partition_data"), "response": ("responses", "partitions")}[
        message.direction
    ]
    if (message.api.name, message.direction) in (("Produce", "request"), ("Fetch", "response")):
        for topic in message.body[outer]:
            for partition in topic[inner]:
                if partition["records"] is not None:
                    yield partition["records"]
