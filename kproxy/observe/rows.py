"""Rows of an exchange: the numbers of a Produce, Fetch or ShareFetch that a summary counts, one row a partition."""

from __future__ import annotations

from typing import Any

from kproxy.wire.breath import each
from kproxy.wire.elements import Partition, partitions_in
from kproxy.wire.table.api_keys import FETCH, PRODUCE, SHARE_FETCH

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
        asked = asked_rows(seen.version, seen.request_body) if asked is None else asked
        if seen.acks != 0 and seen.response_body is None:  # nobody knows whether it was written
            return []
        return produce_rows(asked, answers_of(seen.version, seen.response_body))
    return fetch_rows(seen.key, seen.version, seen.response_body)


def asked_rows(version: int, request: dict[str, Any] | None) -> list[Asked]:
    """Return the rows of a Produce request, one for each partition that was to be written."""
    rows: list[Asked] = []
    for part in partitions_in(PRODUCE, version, "request", request):
        name, digest = topic_of(part), part.records
        if digest is None:
            rows.append((name, part.number, 0, 0, 0, "", False))
        else:
            number, idempotent = max(digest.records or 0, 0), digest.producer_id is not None
            rows.append((name, part.number, digest.size, digest.batches, number, digest.codec, idempotent))
    return rows


def answers_of(version: int, response: dict[str, Any] | None) -> dict[tuple[Topic, int], tuple[int, int]]:
    """Return (topic, partition) → (error code, base offset) of a Produce response."""
    return {
        (topic_of(part), part.number): (part.error_code, part.fields["base_offset"])
        for part in partitions_in(PRODUCE, version, "response", response)
    }


def produce_rows(asked: list[Asked], answers: dict[tuple[Topic, int], tuple[int, int]]) -> list[Row]:
    """Return the rows of a Produce exchange from those of its request and the answers for each partition."""
    rows: list[Row] = []
    for name, index, size, batches, records, codec, idempotent in each(asked):
        error, base = answers.get((name, index), (0, -1))
        last = base + records - 1 if base >= 0 and records else None
        rows.append((name, index, error, size, batches, records, codec, idempotent, last, None))
    return rows


def fetch_rows(key: int, version: int, response: dict[str, Any] | None) -> list[Row]:
    """Return the rows of a Fetch or ShareFetch response, one for each partition in it."""
    rows: list[Row] = []
    for part in partitions_in(key, version, "response", response):
        fields, digest = part.fields, part.records
        mark = fields["high_watermark"] if key == FETCH and fields["high_watermark"] >= 0 else None
        read = (0, 0, 0, "", None, None)
        if digest is not None:
            number = max(digest.records or 0, 0)
            read = (digest.size, digest.batches, number, digest.codec, None, digest.last_offset)
        error = part.error_code or fields.get("acknowledge_error_code", 0)
        rows.append((topic_of(part), part.number, error, *read, mark))
    return rows


def share_codes(version: int, response: dict[str, Any] | None) -> list[int]:
    """Return the error codes of a ShareFetch response in its order: two for a partition, whose row has only one."""
    parts = partitions_in(SHARE_FETCH, version, "response", response)
    return [code for part in parts for code in (part.error_code, part.fields["acknowledge_error_code"])]


def topic_of(part: Partition) -> Topic:
    """Return the name of a partition's topic, or its id where the version of the API has ids in place of names."""
    return part.topic or "" if part.topic_id is None else part.topic_id.bytes
