"""Tables of the what-if job: recorded exchanges, what a rehearsal finds, and what comes of it."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, StructField, StructType

from kproxy.events.column import Column
from kproxy.pipeline.schema import struct

EXCHANGES = (
    Column("capture", "string", "file that it was recorded in"),
    Column("connection", "long", "number of the connection in the capture"),
    Column("cluster", "string", "name of the cluster, if kproxy recorded it"),
    Column("listener", "string", "name of the listener, if kproxy recorded it"),
    Column("client_address", "string", "the client's IP address"),
    Column("node", "int", "id of the broker that the connection leads to"),
    Column("number", "long", "position of the exchange on its connection, from 1 on"),
    Column("api_key", "int", "number of the API"),
    Column("version", "int", "version of the request"),
    Column("correlation_id", "int", "from the request's header"),
    Column("client_id", "string", "from the request's header"),
    Column("request_time", "double", "when the request's first byte came, since 1970", "s"),
    Column("request", "string", "the request's frame without its length; absent: it was not recorded whole"),
    Column("response_time", "double", "when the response's first byte came, since 1970", "s"),
    Column("response", "string", "the response's frame without its length"),
    Column("unfit", "string", "why it cannot be rehearsed; absent: it can"),
)
"""One row an exchange. `request` and `response` are binary in Spark."""

FINDINGS = (
    Column("what", "string", "finding, rule (its counters in one worker), or exchanges (how many were rehearsed)"),
    Column("rule", "string", "the rule that was rehearsed alone, or whose counters these are; absent: all rules"),
    Column("kind", "string", "its kind; of rule"),
    Column("capture", "string", "file that the exchange was recorded in"),
    Column("connection", "long", "number of the connection in the capture"),
    Column("number", "long", "position of the exchange on its connection"),
    Column("time", "timestamp", "when its request came"),
    Column("client_id", "string", "from the request's header"),
    Column("client_address", "string", "the client's IP address"),
    Column("api", "string", "name of the API"),
    Column("version", "int", "version of the request"),
    Column("topics", "string", "topics that the request is about, up to a limit", array=True),
    Column("rules", "string", "live rules that would have fired, in order", array=True),
    Column("request_changed", "boolean", "the broker would have got other bytes"),
    Column("response_changed", "boolean", "the client would have got other bytes"),
    Column("answered", "boolean", "kproxy would have answered in the broker's place"),
    Column("closed", "string", "why the connection would have been closed"),
    Column("lost", "boolean", "the client would have got no answer"),
    Column("delay_ms", "double", "how much later the answer would have come", "ms"),
    Column("matched", "long", "of rule: how often its selectors held"),
    Column("fired", "long", "of rule: how often its trigger held, too"),
    Column("applied", "long", "of rule: how often it would have changed something"),
    Column("approximate", "boolean", "of rule: it counts over all connections, and each worker had only some"),
    Column("count", "long", "of exchanges: how many"),
)

BYTES = ("request", "response")
EXCHANGES_SCHEMA = StructType(
    [StructField(one.name, BinaryType()) if one.name in BYTES else one for one in struct(EXCHANGES).fields]
)
FINDINGS_SCHEMA = struct(FINDINGS)
