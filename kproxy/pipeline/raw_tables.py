"""Tables before silver: lines as they were written, lines that are no events, and which ids have come."""

from __future__ import annotations

from kproxy.events.column import Column
from kproxy.pipeline.lake_table import EVENT_ID, SOURCE, TIME, LakeTable

KIND = Column("kind", "string", "which silver tables it is for: see `transforms/kinds.py`")

_LINE = (
    Column("line", "string", "the event as written, with all columns, known or not"),
    Column("file", "string", "the file that it came from, or kafka:topic/partition"),
    Column("offset", "long", "its offset in the partition; absent: it came from a file"),
    Column("ingested", "timestamp", "when its batch was read"),
    Column("corrupt", "boolean", "it is no event: it is in bronze_corrupt only"),
)

BRONZE = LakeTable(
    "bronze",
    "one event as it was written",
    (
        *_LINE,
        SOURCE,
        EVENT_ID,
        Column("type", "string", "type of the event with its version, known to this kproxy or not"),
        TIME,
    ),
    split=KIND,
)

BRONZE_CORRUPT = LakeTable(
    "bronze_corrupt",
    "a line that is no event",
    (
        *_LINE,
        Column("reason", "string", "not_json, no_id, no_source, no_type, no_time: what is missing or is no such thing; "
               "unreadable_file: the rest of the file cannot be read, `line` is absent"),
    ),
    key=("file", "offset", "line"),
)  # fmt: skip

IDS = LakeTable(
    "ids",
    "which of 64 neighbouring ids of one source have come, in one batch on one day",
    (
        SOURCE,
        Column("block", "long", "the ids are block × 64 to block × 64 + 63"),
        Column("mask", "long", "bit n is set: block × 64 + n has come"),
        Column("lines", "long", "how many lines have come; more than set bits: some came twice", "events"),
        Column("first", "timestamp", "time of the earliest of them"),
        Column("last", "timestamp", "time of the latest"),
    ),
    key=("source", "block"),
)

RAW_TABLES = (BRONZE, BRONZE_CORRUPT, IDS)
"""Tables before silver, all of them."""
