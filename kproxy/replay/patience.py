"""Which answers mean that the target is not ready yet, where the recorded cluster was.

A client that got such an error would have asked again, and the recording would show it. So a request that went well
when it was recorded is sent again when all that the target says is that it has not come so far. Nothing has been done
by a request that is answered in this way.
"""

from __future__ import annotations

from kproxy.wire import Message

from .places import wish
from .recording import Exchange
from .structs import codes
from .target import Target

NOT_YET = frozenset((5, 14, 15, 51))
"""LEADER_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS."""
NO_TOPIC = frozenset((3, 100))
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: of topics that the replay has just made."""


def not_ready(exchange: Exchange, now: Message, target: Target) -> bool:
    """Whether the request should be sent again."""
    found = codes(now)
    if not found or not found <= NOT_YET | NO_TOPIC:
        return False
    if exchange.response is None or found & codes(exchange.response):
        return False
    if not found & NO_TOPIC:
        return True
    topics = {topic for topic, _ in wish(exchange.request, {}).partitions}
    return bool(topics) and topics <= target.made
