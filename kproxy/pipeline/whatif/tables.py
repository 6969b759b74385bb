"""Tables of the what-if job: recorded exchanges, and what rehearsals find."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, StructField, StructType

from kproxy.events.column import Column
from kproxy.pipeline.schema import struct

CHUNKS = (
    Column("what", "string", "chunk (exchanges of one connection), or capture (its summary)"),
    Column("capture", "string", "file that it was recorded in"),
    Column("connection", "long", "number of the connection in the capture"),
    Column("place", "long", "tells connections apart that have the same number"),
    Column("part", "long", "position of the chunk on its connection, from 0 on"),
    Column("packed", "string", "`ExchangeChunk` or `CaptureSummary` of `packed_exchange.py`, in MessagePack"),
)
"""`packed` is binary in Spark."""

FINDINGS = (
    Column("what", "string", "group (of findings), sample (a finding), rule (its counters), or exchanges (how many)"),
    Column("rule", "string", "the rule"),
    Column("kind", "string", "its kind; of rule"),
    Column("capture", "string", "file that the exchange was recorded in; of sample"),
    Column("connection", "long", "number of the connection in the capture; of sample"),
    Column("number", "long", "position of the exchange on its connection; of sample"),
    Column("time", "timestamp", "when its request came; of group, the first one"),
    Column("last", "timestamp", "when the last request came; of group"),
    Column("client_id", "string", "from the request's header"),
    Column("client_address", "string", "the client's IP address"),
    Column("api", "string", "name of the API"),
    Column("version", "int", "version of the API; of sample"),
    Column("topics", "string", "topics that the request is about, up to a limit", array=True),
    Column("request_changed", "boolean", "the broker would have got other bytes; of sample, as those that follow"),
    Column("response_changed", "boolean", "the client would have got other bytes"),
    Column("answered", "boolean", "kproxy would have answered in the broker's place"),
    Column("closed", "string", "why the connection would have been closed"),
    Column("lost", "boolean", "the client would have got no answer"),
    Column("delay_ms", "double", "how much later the answer would have come; of group, their sum", "ms"),
    Column("delay_ms_max", "double", "of group: the longest", "ms"),
    Column("requests", "long", "of group: how many requests", "requests"),
    Column("changes", "long", "of group: how many of them, or of their answers, would have been changed", "requests"),
    Column("answers", "long", "of group: how many kproxy would have answered", "requests"),
    Column("closes", "long", "of group: how many would have been on a connection that a rule closes", "requests"),
    Column("losses", "long", "of group: how many would have got no answer", "requests"),
    Column("matched", "long", "of rule: how often its selectors held"),
    Column("fired", "long", "of rule: how often its trigger held, too"),
    Column("applied", "long", "of rule: how often it would have changed something"),
    Column("approximate", "boolean", "of rule: it counts over all connections, and each worker had only some"),
    Column("count", "long", "of exchanges: how many"),
)
"""Columns of what one task has found: findings that differ in nothing but the time are summed there."""

CHUNKS_SCHEMA = StructType(
    [StructField(one.name, BinaryType()) if one.name == "packed" else one for one in struct(CHUNKS).fields]
)
FINDINGS_SCHEMA = struct(FINDINGS)
