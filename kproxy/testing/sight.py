"""Exchanges as watchers hand them out, made from bodies, for tests of what looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kproxy.watch.seen import Form, Frame, Seen
from kproxy.wire import Message, encode
from kproxy.wire.schema import load, names

CLIENT_ID = "tester"


@dataclass
class Somebody:
    """A `Who` that says what it is told to say."""

    number: int = 1
    cluster: str | None = "main"
    listener: str | None = "main"
    client_address: str = "127.0.0.1"
    client_port: int = 50000
    node: int | None = 1
    broker: str | None = "kafka-1:9092"
    principal: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)

    def broker_topic(self, topic: str) -> str | None:
        return None

    def broker_group(self, group: str) -> str | None:
        return None

    def topic_of(self, topic_id: str) -> str | None:
        return self.topics.get(topic_id)


def exchange(
    api_name: str, version: int, request: Mapping[str, Any], response: Mapping[str, Any] | None, *,
    who: Somebody | None = None, form: Form = Form.WHOLE, at: float = 1_000.0, number: int = 1,
) -> Seen:  # fmt: skip
    """One exchange: it takes 20 ms from `at` on; without a response it is unanswered. `form`: what is kept of both
    frames, of HEAD 20 bytes."""
    api = load(names()[api_name])
    header = {"request_api_key": api.key, "request_api_version": version, "correlation_id": number,
              "client_id": CLIENT_ID}  # fmt: skip
    asked = encode(Message(api, version, header, dict(request)))
    seen = Seen(
        who=who or Somebody(), number=number, key=api.key, version=version, correlation_id=number, client_id=CLIENT_ID,
        request=_frame(asked, form, at), acks=request.get("acks"),
    )  # fmt: skip
    if response is not None:
        answered = encode(Message(api, version, {"correlation_id": number}, dict(response)))
        seen.response, seen.outcome = _frame(answered, form, at + 0.02), "answered"
    return seen


def _frame(data: bytes, form: Form, at: float) -> Frame:
    kept = {Form.WHOLE: data, Form.HEAD: data[:20], Form.NONE: b""}[form]
    return Frame(len(data) + 4, at, at, kept, form)
