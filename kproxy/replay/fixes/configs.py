"""Fix of config values that were withheld: topics are made without them.

Captures hold no config values, which may be passwords: each letter is a `*` there (observe/credentials.py). A topic
that the recording makes is made with the target's own values for them, which is better than not at all; requests that
do nothing but set configs are not sent.
"""

from __future__ import annotations

from kproxy.wire import Message
from kproxy.wire.elements import topics
from kproxy.wire.table.api_keys import CREATE_TOPICS

from . import OutgoingRequest

FILLER = "*"
LEFT_OUT = "made without the configs of the topic, whose values are withheld"


class ConfigFix:
    """Fix of the configs of new topics; see the module."""

    requests = frozenset((CREATE_TOPICS,))
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        frame = request.exchange.seen.request
        if frame is None or not frame.withheld:
            return
        for topic in topics(request.message):
            configs = topic.fields["configs"] or ()
            kept = [one for one in configs if not one["value"] or one["value"].strip(FILLER)]
            if len(kept) != len(configs):
                topic.fields["configs"] = kept
                request.notes.append(LEFT_OUT)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: responses tell nothing about withheld values."""
