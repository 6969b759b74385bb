"""Frames of Produce and Fetch as tests write them: of topics with partitions, all else at its default.

    talk.client(produce(1, "orders", ("clicks", 3), acks=0))
    talk.broker(fetched(2, ("orders", 0, b"records"), session=77))

A place is a topic, by name or by id, of which partition 0 is meant; or (topic, partition); or (topic, partition,
records). Places of one topic that follow each other are partitions of one element. `…_body` are the fields alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any
from uuid import UUID

from kproxy.protocol import Message, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.tools.rehearse.dialogue import request, response

Topic = str | UUID
Place = Topic | tuple[Topic, int] | tuple[Topic, int, bytes | None]
Body = dict[str, Any]
RECORDS = b"r" * 70
"""Bytes that are no records, for whoever does not look into them."""


def produce_body(*places: Place, records: bytes | None = RECORDS, **fields: Any) -> Body:
    """Return the fields of a request that writes `records` where a place has none of its own."""
    parts = topics(places, "name", "partition_data", "index", {}, records)
    return {"acks": -1, "topic_data": parts} | fields


def produced_body(*places: Place, offset: int = 0, error: int = 0, **fields: Any) -> Body:
    """Return the fields of the response to a write, with this offset and error of each partition."""
    part = {"base_offset": offset, "error_code": error}
    return {"responses": topics(places, "name", "partition_responses", "index", part)} | fields


def fetch_body(*places: Place, offset: int = 0, **fields: Any) -> Body:
    """Return the fields of a request that reads from this offset of each partition."""
    return {"topics": topics(places, "topic", "partitions", "partition", {"fetch_offset": offset})} | fields


def fetched_body(*places: Place, records: bytes | None = RECORDS, high_watermark: int = 9, **fields: Any) -> Body:
    """Return the fields of the response to a read, with `records` where a place has none of its own."""
    part = {"high_watermark": high_watermark}
    return {"responses": topics(places, "topic", "partitions", "partition_index", part, records)} | fields


def produce(correlation: int, *places: Place, version: int = 9, client_id: str | None = "tester", **more: Any) -> bytes:
    """Return a Produce request with its size; `more` goes to `produce_body`."""
    return request(PRODUCE, version, correlation, client_id, **produce_body(*places, **more))


def produced(correlation: int, *places: Place, version: int = 9, **more: Any) -> bytes:
    """Return a Produce response with its size; `more` goes to `produced_body`."""
    return response(PRODUCE, version, correlation, **produced_body(*places, **more))


def fetch(correlation: int, *places: Place, version: int = 11, **more: Any) -> bytes:
    """Return a Fetch request with its size; `more` goes to `fetch_body`."""
    return request(FETCH, version, correlation, **fetch_body(*places, **more))


def fetched(correlation: int, *places: Place, version: int = 11, **more: Any) -> bytes:
    """Return a Fetch response with its size; `more` goes to `fetched_body`."""
    return response(FETCH, version, correlation, **fetched_body(*places, **more))


def message(
    key: int, version: int, direction: str, body: Body, correlation: int = 7, client_id: str | None = "tester"
) -> bytes:
    """Return a frame without its size; fields that the body lacks have their defaults."""
    api = schema.load(key)
    header: dict[str, Any] = {"correlation_id": correlation}
    if direction == "request":
        header |= {"request_api_key": key, "request_api_version": version}
        if api.header_version(direction, version):
            header["client_id"] = client_id
    return encode(Message(api, version, header, body))


def topics(
    places: Iterable[Place], name: str, parts: str, index: str, part: Body, records: bytes | bool | None = False
) -> list[Body]:
    """Return the elements of topics with those of their partitions, whose fields have these names; without records
    unless some are given."""
    return [
        {
            "topic_id" if isinstance(topic, UUID) else name: topic,
            parts: [
                {index: partition} | part | ({} if records is False else {"records": own})
                for _, partition, own in group
            ],
        }
        for topic, group in groupby(_whole(places, records), key=lambda place: place[0])
    ]


def _whole(places: Iterable[Place], records: Any) -> Iterator[tuple[Topic, int, Any]]:
    for place in places:
        topic, partition, own, *_ = (*place, records) if isinstance(place, tuple) else (place, 0, records)
        yield topic, partition, own
