"""Rows: what a summary wants to know of a Produce, Fetch or ShareFetch, partition by partition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from .seen import Seen
from .wanted import FETCH, PRODUCE

Topic = str | bytes
"""Its name, or the 16 bytes of its id."""

Row = tuple[Topic, int, int, int, int, int, str, bool | None, int | None, int | None]
"""(topic, partition, error code, bytes, batches, records, codec, idempotent, last offset, high watermark)"""


def rows_of(seen: Seen) -> list[Row]:
    """The rows of an exchange that was answered, or is due no answer. Empty where they cannot be read."""
    if seen.key == PRODUCE:
        return produce_rows(seen.request_body, None if seen.acks == 0 else seen.response_body, seen.acks)
    return fetch_rows(seen.response_body, seen.key == FETCH)


def produce_rows(request: dict[str, Any] | None, response: dict[str, Any] | None, acks: int | None) -> list[Row]:
    """What was to be written, and whether it was. Without a readable response nobody knows, and there are no rows."""
    if request is None or (response is None and acks != 0):
        return []
    answers: dict[tuple[Topic, int], tuple[int, int]] = {}
    for topic in (response or {}).get("responses") or ():
        name = topic_of(topic, "name")
        for part in topic["partition_responses"] or ():
            answers[name, part["index"]] = part["error_code"], part["base_offset"]
    rows: list[Row] = []
    for topic in request["topic_data"] or ():
        name = topic_of(topic, "name")
        for part in topic["partition_data"] or ():
            error, base = answers.get((name, part["index"]), (0, -1))
            rows.append((name, part["index"], error, *digested(part["records"], produced=True, base=base), None))
    return rows


def fetch_rows(response: dict[str, Any] | None, fetch: bool) -> list[Row]:
    """What was read."""
    rows: list[Row] = []
    for topic in (response or {}).get("responses") or ():
        name = topic_of(topic, "topic")
        for part in topic["partitions"] or ():
            mark = part["high_watermark"] if fetch and part["high_watermark"] >= 0 else None
            read = digested(part.get("records"), produced=False, base=-1)
            rows.append((name, part["partition_index"], part["error_code"], *read, mark))
    return rows


def topic_of(topic: dict[str, Any], name: str) -> Topic:
    if name in topic:
        return topic[name] or ""
    found: UUID = topic["topic_id"]
    return found.bytes


def digested(records: Any, *, produced: bool, base: int) -> tuple[int, int, int, str, bool | None, int | None]:
    """(bytes, batches, records, codec, idempotent, last offset). `base`: the offset that the broker gave; -1: none."""
    if records is None:
        return 0, 0, 0, "", False if produced else None, None
    number = records.records
    if not produced:
        return records.size, records.batches, number or 0, records.codec, None, records.last_offset
    last = base + number - 1 if base >= 0 and number else None
    return records.size, records.batches, number or 0, records.codec, records.producer_id is not None, last
