"""Rows of an exchange: the numbers of a Produce, Fetch or ShareFetch that a summary counts, one row a partition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.wire.api_keys import FETCH, PRODUCE
from kproxy.wire.breath import each

from .seen import Seen

Topic = str | bytes
"""A topic's name, or the 16 bytes of its id."""

Row = tuple[Topic, int, int, int, int, int, str, bool | None, int | None, int | None]
"""(topic, partition, error code, bytes, batches, records, codec, idempotent, last offset, high watermark)"""


Asked = tuple[Topic, int, int, int, int, str, bool]
"""Row of a Produce request: (topic, partition, bytes, batches, records, codec, idempotent)"""


def rows_of(seen: Seen, asked: list[Asked] | None = None) -> list[Row]:
    """Return the rows of an exchange that was answered, or is due no answer; none where they cannot be read.

    `asked`: the rows of its request, where they were read before.
    """
    if seen.key == PRODUCE:
        asked = asked_rows(seen.request_body) if asked is None else asked
        if seen.acks != 0 and seen.response_body is None:  # nobody knows whether it was written
            return []
        return produce_rows(asked, answers_of(seen.response_body))
    return fetch_rows(seen.response_body, seen.key == FETCH)


def asked_rows(request: dict[str, Any] | None) -> list[Asked]:
    """Return the rows of a Produce request, one for each partition that was to be written."""
    rows: list[Asked] = []
    for topic in (request or {}).get("topic_data") or ():
        name = topic_of(topic, "name")
        for part in topic["partition_data"] or ():
            found = part["records"]
            if found is None:
                rows.append((name, part["index"], 0, 0, 0, "", False))
            else:
                number, idempotent = max(found.records or 0, 0), found.producer_id is not None
                rows.append((name, part["index"], found.size, found.batches, number, found.codec, idempotent))
    return rows


def answers_of(response: dict[str, Any] | None) -> dict[tuple[Topic, int], tuple[int, int]]:
    """Return (topic, partition) → (error code, base offset) of a Produce response."""
    answers: dict[tuple[Topic, int], tuple[int, int]] = {}
    for topic in (response or {}).get("responses") or ():
        name = topic_of(topic, "name")
        for part in topic["partition_responses"] or ():
            answers[name, part["index"]] = part["error_code"], part["base_offset"]
    return answers


def produce_rows(asked: list[Asked], answers: dict[tuple[Topic, int], tuple[int, int]]) -> list[Row]:
    """Return the rows of a Produce exchange from those of its request and the answers for each partition."""
    rows: list[Row] = []
    for name, index, size, batches, records, codec, idempotent in each(asked):
        error, base = answers.get((name, index), (0, -1))
        last = base + records - 1 if base >= 0 and records else None
        rows.append((name, index, error, size, batches, records, codec, idempotent, last, None))
    return rows


def fetch_rows(response: dict[str, Any] | None, fetch: bool) -> list[Row]:
    """Return the rows of a Fetch or (`fetch` is False) ShareFetch response, one for each partition in it."""
    rows: list[Row] = []
    for topic in (response or {}).get("responses") or ():
        name = topic_of(topic, "topic")
        for part in topic["partitions"] or ():
            mark = part["high_watermark"] if fetch and part["high_watermark"] >= 0 else None
            found = part.get("records")
            read = (0, 0, 0, "", None, None)
            if found is not None:
                number = max(found.records or 0, 0)
                read = (found.size, found.batches, number, found.codec, None, found.last_offset)
            error = part["error_code"] or part.get("acknowledge_error_code", 0)
            rows.append((name, part["partition_index"], error, *read, mark))
    return rows


def share_codes(response: dict[str, Any] | None) -> list[int]:
    """Return the error codes of a ShareFetch response in its order: two for a partition, whose row has only one."""
    parts = (part for topic in (response or {}).get("responses") or () for part in topic["partitions"] or ())
    return [code for part in parts for code in (part["error_code"], part["acknowledge_error_code"])]


def topic_of(topic: dict[str, Any], name: str) -> Topic:
    """Return a topic's name from the field `name`, or its id where the version of the API has ids in place of names."""
    if name in topic:
        return topic[name] or ""
    found: UUID = topic["topic_id"]
    return found.bytes
