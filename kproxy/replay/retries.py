"""Retries of requests to a target that is not ready yet, where the recorded cluster was.

A client that got such an error would have asked again, and the recording would show it. So a request that went well
when it was recorded is sent again when all that the target says is that it has not come so far. Nothing has been done
by a request that is answered in this way.
"""

from __future__ import annotations

from kproxy.wire import Message
from kproxy.wire.elements import partitions
from kproxy.wire.table.api_keys import FETCH, PRODUCE
from kproxy.wire.table.schema import keys_of

from .recording import RecordedExchange
from .routing import subject_of
from .structs import codes
from .target import TargetCluster

NOT_YET = frozenset((5, 14, 15, 51))
"""LEADER_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS."""
MOVED = frozenset((6, 16))
"""NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR: the target is asked once more where it is."""
NO_TOPIC = frozenset((3, 100))
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: of topics that the replay has just made."""


REPEATED = keys_of("""
    Produce OffsetCommit JoinGroup SyncGroup InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit
""")
"""APIs of requests that do something. To send one that was refused, beside the one that its client sent then,
would do it twice: write records again, or leave a member in a group that nobody stands behind."""
WAS_REFUSED = "the recorded cluster was not ready for it, and its client asked again"


def was_refused(exchange: RecordedExchange) -> bool:
    """Return True if a request had no effect when it was recorded, because the cluster was not ready or had moved."""
    if exchange.key not in REPEATED or exchange.response is None:
        return False
    recorded_codes = codes(exchange.response)
    return (
        bool(recorded_codes)
        and recorded_codes <= NOT_YET | MOVED
        and not partly_written(exchange.key, exchange.response)
    )


def partly_written(key: int, response: Message) -> bool:
    """Return True if some partition of a Produce went well."""
    return key == PRODUCE and any(not partition.error_code for partition in partitions(response))


def not_ready(exchange: RecordedExchange, now: Message, target: TargetCluster) -> bool:
    """Return True if the request should be sent again.

    A Produce that partly went well should not, nor a Fetch, which the next Fetch repeats.
    """
    now_codes = codes(now)
    if not now_codes or not now_codes <= NOT_YET | MOVED | NO_TOPIC or exchange.key == FETCH:
        return False
    if partly_written(exchange.key, now):
        return False
    if exchange.response is None or now_codes & codes(exchange.response):
        return False
    if not now_codes & NO_TOPIC:
        return True
    topics = {topic for topic, _ in subject_of(exchange.request, {}).partitions}
    return bool(topics) and topics <= target.created
