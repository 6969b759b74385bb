"""Connection in a capture, with what packets and notes say of its client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_TOPICS = 100_000
"""Topic ids whose names are remembered, some 30 MB."""
NO_ID = "00000000-0000-0000-0000-000000000000"
NOTED_FIELDS = ("cluster", "listener", "node", "broker", "principal", "software_name", "software_version")


class TopicIdNames:
    """Names of the topic ids in one capture, as its Metadata responses show them."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, str] = {}

    def learn(self, body: Mapping[str, Any] | None) -> None:
        """Take in the names of a Metadata response; None: it could not be read."""
        for topic in (body or {}).get("topics") or ():
            topic_id, name = str(topic.get("topic_id", NO_ID)), topic.get("name")
            if name and topic_id != NO_ID and len(self.by_id) < MOST_TOPICS:
                self.by_id[topic_id] = name


@dataclass(slots=True, eq=False)
class CapturedConnection:
    """Connection in a capture; `number` counts them from 1 on, or is kproxy's own where that wrote the file.

    `interface`: its name, empty if it has none. `server_address`, `server_port`: the client's peer. `exchanges`:
    requests so far. `over`: when it ended, as far as that is in the file.
    """

    number: int
    interface: str
    client_address: str
    client_port: int
    server_address: str
    server_port: int
    opened: float
    names: TopicIdNames = field(repr=False)
    over: float | None = None
    exchanges: int = 0
    cluster: str | None = None
    listener: str | None = None
    node: int | None = None
    broker: str | None = None
    principal: str | None = None
    software_name: str | None = None
    software_version: str | None = None

    def take_note(self, note: Mapping[str, Any]) -> None:
        """Set the fields of which a note of kproxy's tells."""
        for name in NOTED_FIELDS:
            if name in note:
                setattr(self, name, note[name])

    def broker_topic(self, topic: str) -> str | None:
        """Return None: a capture does not tell the broker's names."""
        return None

    def broker_group(self, group: str) -> str | None:
        """Return None: a capture does not tell the broker's names."""
        return None

    def topic_of(self, topic_id: str) -> str | None:
        """Return the topic's name by its id, as a Metadata response earlier in the capture has shown it."""
        return self.names.by_id.get(topic_id)
