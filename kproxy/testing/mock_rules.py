"""Rules that kproxy applies in front of librdkafka's mock cluster, where the mock differs from a broker.

- The mock answers a JoinGroup to a group that has members only after the group's session timeout, less one second. The
  rules forward at most Kafka's `group.min.session.timeout.ms`.
- The mock sends records of aborted and of open transactions to consumers with `isolation.level` read_committed. The
  rules follow each transaction, empty its batches after an abort, and withhold them while it is open.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.codec.message import Message
from kproxy.protocol.records import Batch, entries
from kproxy.protocol.records.batch import without_records, write_batch
from kproxy.rules.document.read import Document, read_document
from kproxy.rules.exchange import Decision, Delay, Edit, Exchange
from kproxy.rules.values.source import json_source

FILE = "<mock cluster>"
SESSION_TIMEOUT_MS = 6000  # default of Kafka's group.min.session.timeout.ms
MOST_ABORTED = 100_000  # batches of aborted transactions that are kept; the oldest are evicted
READ_COMMITTED = 1
WAIT = 0.1  # seconds; the mock answers at once while records of an open transaction exist
RULES: tuple[dict[str, Any], ...] = (
    {"name": "mock cluster: session timeout", "match": {"api": "JoinGroup"}, "at": "request"},
    {"name": "mock cluster: transactional writes", "match": {"api": "Produce", "transactional_id": "*"},
     "at": "request"},
    {"name": "mock cluster: ends of transactions", "match": {"api": ["EndTxn", "InitProducerId"]}, "at": "response"},
    {"name": "mock cluster: read_committed", "match": {"api": "Fetch"}, "at": "response"},
)  # fmt: skip
NAMES = frozenset(rule["name"] for rule in RULES)

BatchKey = tuple[str, int, int, int, int]
"""Topic, partition, producer id, epoch and base sequence: the mock stores batches as producers send them."""


def shorten_session(exchange: Exchange, message: Message) -> Decision | None:
    """Forward at most SESSION_TIMEOUT_MS."""
    if message.body["session_timeout_ms"] <= SESSION_TIMEOUT_MS:
        return None
    message.body["session_timeout_ms"] = SESSION_TIMEOUT_MS
    return Edit()


class MockTransactions:
    """Transactions of a mock cluster: batches of open ones by transactional id, all of these together, and batches of
    aborted ones."""

    def __init__(self) -> None:
        self.open: dict[str, set[BatchKey]] = {}
        self.unstable: set[BatchKey] = set()
        self.aborted: BoundedMap[BatchKey, None] = BoundedMap(MOST_ABORTED)

    def write(self, exchange: Exchange, message: Message) -> None:
        found = {
            key_of(topic["name"], partition["index"], batch)
            for topic in message.body["topic_data"]
            for partition in topic["partition_data"]
            for batch in transactional(partition["records"])
        }
        self.open.setdefault(message.body["transactional_id"], set()).update(found)
        self.unstable |= found

    def end(self, exchange: Exchange, message: Message) -> None:
        """End a transaction: after EndTxn, or because InitProducerId fences its producer."""
        if message.body["error_code"]:
            return
        asked = exchange.request.body
        ended = self.open.pop(asked["transactional_id"], set())
        self.unstable -= ended
        if not asked.get("committed"):
            self.aborted.update(dict.fromkeys(ended))

    def read(self, exchange: Exchange, message: Message) -> list[Decision] | None:
        """Empty batches of aborted transactions, and withhold everything after the first batch of an open one."""
        if exchange.request.body.get("isolation_level") != READ_COMMITTED or not (self.unstable or self.aborted):
            return None
        after, changed = 0, False
        for topic in message.body["responses"]:
            for partition in topic["partitions"]:
                records = partition["records"] or b""
                kept, stable = self._committed(topic.get("topic") or "", partition["partition_index"], records)
                after += len(kept)
                if stable is not None:
                    partition["last_stable_offset"] = stable
                if kept != records:
                    partition["records"], changed = kept, True
        if not changed:
            return None
        return [Edit()] if after else [Edit(), Delay(WAIT)]

    def _committed(self, topic: str, partition: int, records: bytes) -> tuple[bytes, int | None]:
        """Return the records for read_committed, and the last stable offset if a transaction is open."""
        pieces: list[bytes | memoryview] = []
        for entry in entries(records):
            if isinstance(entry, Batch) and entry.is_transactional:
                key = key_of(topic, partition, entry)
                if key in self.unstable:
                    return b"".join(pieces), entry.base_offset
                if key in self.aborted:
                    pieces.append(write_batch(without_records(entry), []))
                    continue
            pieces.append(entry.raw)
        return b"".join(pieces), None


def transactional(records: bytes | None) -> Iterator[Batch]:
    return (one for one in entries(records) if isinstance(one, Batch) and one.is_transactional)


def key_of(topic: str, partition: int, batch: Batch) -> BatchKey:
    return topic, partition, batch.producer_id, batch.producer_epoch, batch.base_sequence


def mock_rules() -> tuple[Document, Callable[[], None]]:
    """Return the document with the rules for one mock cluster, and the function that frees their hooks."""
    transactions = MockTransactions()
    functions = (shorten_session, transactions.write, transactions.end, transactions.read)
    calls = [put_hook(function) for function in functions]
    rules = [{**rule, "kind": "python", "call": call} for rule, call in zip(RULES, calls, strict=True)]
    document = read_document(json_source(FILE, json.dumps({"rules": rules}).encode()))

    def free() -> None:
        for call in calls:
            remove_hook(call)

    return document, free


_numbers = itertools.count(1)


def put_hook(function: Callable[..., Any]) -> str:
    """Keep a test's function under a new name. Return `module:function` for a rule's `call`."""
    plain = re.sub(r"\W", "", getattr(function, "__name__", type(function).__name__), flags=re.ASCII)
    name = f"hook_{next(_numbers)}_{plain}"
    setattr(sys.modules[__name__], name, function)
    return f"{__name__}:{name}"


def remove_hook(call: str) -> None:
    delattr(sys.modules[__name__], call.partition(":")[2])
