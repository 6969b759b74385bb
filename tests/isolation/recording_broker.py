"""A broker that keeps what reaches it: a session is driven from the client's side, as an attacker would.

    broker = RecordingBroker(rules, {"a.mine": MINE, "b.secret": SECRET})
    broker.send(request(1, 16, 1, topics=[...]))
    broker.reached[-1].body                  # what has left, names and ids as the broker would read them

It answers kproxy's own questions for topics as Kafka does, all else with `reply`, by default an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kproxy.protocol import Message, decode_request
from kproxy.session.cluster import CORRELATION
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, frames, response

METADATA = 3
UNKNOWN_TOPIC_ID = 100
Reply = Callable[[Message], dict[str, Any]]


class RecordingBroker:
    """One connection to it, through a session with these rules; `talk` is the conversation."""

    def __init__(
        self, rules: str, topics: Mapping[str, UUID], reply: Reply | None = None, shared: ClusterState | None = None
    ) -> None:
        self.talk = Dialogue(rules, shared=shared)
        self.topics = dict(topics)
        self.reply: Reply = reply or (lambda asked: {})
        self.reached: list[Message] = []
        self.questions: list[Message] = []
        self.seen = 0

    def send(self, data: bytes, chunk: int = 0) -> RecordingBroker:
        """The client sends `data`, and the broker answers all that reaches it."""
        self.talk.client(data, chunk)
        while (come := self.talk.to_broker[self.seen :]) and self.talk.closed is None:
            whole = frames(come)
            self.seen += sum(len(one) + 4 for one in whole)
            for frame in whole:
                self.take(frame)
        return self

    def take(self, frame: bytes) -> None:
        """One that has come."""
        asked = decode_request(frame, trailing=True)
        if asked.header["correlation_id"] == CORRELATION:
            self.questions.append(asked)
            self.answer(asked, topics=self.listed(asked.body["topics"]))
        else:
            self.reached.append(asked)
            self.answer(asked, **self.reply(asked))

    def answer(self, asked: Message, **body: Any) -> None:
        """Send the answer to a request that has come."""
        if asked.api.key != 0 or asked.body["acks"]:
            self.talk.broker(response(asked.api.key, asked.version, asked.header["correlation_id"], **body))

    def listed(self, asked: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        """Entries of a Metadata answer: for all topics, or those asked for by their ids."""
        entry = {"error_code": 0, "is_internal": False, "partitions": [], "topic_authorized_operations": 0}
        if asked is None:
            return [entry | {"name": name, "topic_id": topic_id} for name, topic_id in self.topics.items()]
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return [
            entry | {"name": names.get(one["topic_id"]), "topic_id": one["topic_id"]}
            | ({} if one["topic_id"] in names else {"error_code": UNKNOWN_TOPIC_ID})
            for one in asked
        ]  # fmt: skip

    @property
    def closed(self) -> str:
        """Why the connection was closed; empty while it is open."""
        return "" if self.talk.closed is None else self.talk.closed.message
