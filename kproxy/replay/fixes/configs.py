"""Config values that were withheld: topics are made without them.

Captures hold no config values, which may be passwords: each letter is a `*` there (watch/credentials.py). A topic that
the recording makes is made with the target's own values for them, which is better than not at all; requests that do
nothing but set configs are not sent.
"""

from __future__ import annotations

from kproxy.wire import Message

from ..recording import CREATE_TOPICS
from . import Asked

FILLER = "*"
LEFT_OUT = "made without the configs of the topic, whose values are withheld"


class Configs:
    """See the module."""

    requests = frozenset((CREATE_TOPICS,))
    answers: frozenset[int] = frozenset()

    def request(self, asked: Asked) -> None:
        frame = asked.exchange.seen.request
        if frame is None or not frame.withheld:
            return
        for topic in asked.message.body["topics"] or ():
            kept = [one for one in topic["configs"] or () if not one["value"] or one["value"].strip(FILLER)]
            if len(kept) != len(topic["configs"] or ()):
                topic["configs"] = kept
                asked.notes.append(LEFT_OUT)

    def answer(self, asked: Asked, recorded: Message | None, now: Message) -> None:
        """Nothing."""
