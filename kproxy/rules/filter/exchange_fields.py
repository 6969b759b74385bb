"""Fields of exchanges in the filter language, which the parser, the help and the documentation read.

The columns that a field reads decide how much of a frame has to be kept for it. Fields of records need the complete
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kproxy.protocol.records.compression import CODECS

from .fields import Field, FieldDepth, FieldTable, Read, View
from .kinds import ACKS, ADDRESS, API, DURATION, ERROR, FLAG, NUMBER, SIZE, TEXT, TIME, ChoiceKind
from .record_fields import RECORDS

COLUMNS_AT_ONCE = frozenset((
    "api", "api_key", "version", "correlation_id", "client_id", "acks", "outcome", "rules", "responder",
    "request_bytes", "response_bytes", "latency_ms", "connection", "cluster", "listener", "client_address",
    "client_port", "node", "broker", "principal", "software_name", "software_version",
))  # fmt: skip
"""Columns that need no frame to be kept."""


def column(*names: str) -> tuple[Read, FieldDepth]:
    """Return a reader of these columns of the request event, and the depth that it needs."""

    def read(view: View) -> Iterator[Any]:
        for name in names:
            value = view.get(name)
            if isinstance(value, list):
                yield from value
            elif value is not None:
                yield value

    return read, FieldDepth.AT_ONCE if COLUMNS_AT_ONCE.issuperset(names) else FieldDepth.FIELDS


def of_topics(name: str) -> tuple[Read, FieldDepth]:
    """Return a reader of one column of an exchange's topics, and the depth that it needs."""

    def read(view: View) -> Iterator[Any]:
        for topic in view.get("topics") or ():
            if topic.get(name) is not None:
                yield topic[name]

    return read, FieldDepth.FIELDS


def of_partitions(name: str) -> tuple[Read, FieldDepth]:
    """Return a reader of one column of the partitions of an exchange's topics, and the depth that it needs."""

    def read(view: View) -> Iterator[Any]:
        for topic in view.get("topics") or ():
            for partition in topic.get("partitions") or ():
                if partition.get(name) is not None:
                    yield partition[name]

    return read, FieldDepth.FIELDS


def named(first: tuple[Read, FieldDepth], kind: str) -> tuple[Read, FieldDepth]:
    """Return a reader of the values of `first` and of the names of resources of type `kind`, with its depth."""

    def read(view: View) -> Iterator[Any]:
        yield from first[0](view)
        for resource in view.get("resources") or ():
            if resource.get("type") == kind and resource.get("name") is not None:
                yield resource["name"]

    return read, FieldDepth.FIELDS


def flag(test: Callable[[View], bool], depth: FieldDepth = FieldDepth.AT_ONCE) -> tuple[Read, FieldDepth]:
    """Return a reader that gives True where `test` holds and nothing elsewhere, and the depth that it needs."""
    return lambda view: (True,) if test(view) else (), depth


def _software(view: View) -> Iterable[str]:
    name, version = view.get("software_name"), view.get("software_version")
    return (f"{name or ''} {version or ''}".strip(),) if name or version else ()


def _frame_size(view: View) -> Iterable[int]:
    sizes = [size for name in ("request_bytes", "response_bytes") if (size := view.get(name)) is not None]
    return (max(sizes),) if sizes else ()


def _time(view: View) -> Iterable[str]:
    when = view.get("request_in")
    return () if when is None else (str(when).removesuffix("Z"),)


def _unanswered(view: View) -> bool:
    return view.get("outcome") in ("unanswered", "closed")


DEPTHS = ("none", "header", "fields", "full")
OUTCOMES = ("answered", "no_answer_due", "unanswered", "closed")
WHAT, WHO, RESULT, DATA, PROXY = "what was asked", "who asked", "what came of it", "records", "what kproxy did"

OF_RECORDS = tuple(
    replace(field, group=DATA, depth=FieldDepth.RECORDS) for field in RECORDS.fields if field.name != "offset"
)
"""Fields that are read from each record. `offset` is a field of exchanges."""
FIELDS = (
    Field(WHAT, "api", "k", API, "the API, by name in any case and punctuation, or by key", "~k produce",
          *column("api")),
    Field(WHAT, "version", "v", NUMBER, "its version", "~v >= 12", *column("version")),
    Field(WHAT, "topic", "t", TEXT, "topics that it was about, by the client's names", "~t ^orders",
          *named(of_topics("topic"), "topic")),
    Field(WHAT, "broker_topic", "", TEXT, "their names at the broker, where these are others",
          "broker_topic == prod.orders", *of_topics("broker_topic")),
    Field(WHAT, "topic_id", "", TEXT, "their ids, where the protocol gives them", "topic_id ~ ^7f3a",
          *of_topics("topic_id")),
    Field(WHAT, "partition", "p", NUMBER, "partitions that it was about", "~p 3", *of_partitions("partition")),
    Field(WHAT, "group", "g", TEXT, "the group", "~g billing", *named(column("group"), "group")),
    Field(WHAT, "member", "mem", TEXT, "member id in the group", "~mem ^consumer-1", *column("member")),
    Field(WHAT, "instance", "", TEXT, "group instance id of a static member", "instance == worker-3",
          *column("instance")),
    Field(WHAT, "generation", "", NUMBER, "generation or member epoch", "generation > 10", *column("generation")),
    Field(WHAT, "transactional_id", "x", TEXT, "the transactional id", "~x ^payments",
          *named(column("transactional_id"), "transactional_id")),
    Field(WHAT, "resource", "", TEXT, "names of configs, ACLs, users and other things that it was about",
          "resource == alice", lambda view: [one.get("name") for one in view.get("resources") or () if one.get("name")],
          FieldDepth.FIELDS),
    Field(WHAT, "acks", "acks", ACKS, "acks of Produce: 0, 1 or all", "~acks 0", *column("acks")),
    Field(WHAT, "correlation_id", "", NUMBER, "the request's number on its connection, as the client counts",
          "correlation_id == 17", *column("correlation_id")),
    Field(WHAT, "time", "", TIME, "when the request came, in UTC", "time >= 2026-11-21T10:11", _time,
          FieldDepth.FIELDS),
    Field(WHO, "client_id", "cl", TEXT, "client id", "~cl ^etl", *column("client_id")),
    Field(WHO, "principal", "", TEXT, "name authenticated by the broker or kproxy, or of the client certificate",
          "principal == alice", *column("principal")),
    Field(WHO, "software", "sw", TEXT, "the client's library and its version (KIP-511)", '~sw "librdkafka 1"',
          _software, FieldDepth.AT_ONCE),
    Field(WHO, "client_address", "src", ADDRESS, "the client's address, or its network", "~src 10.0.0.0/8",
          *column("client_address")),
    Field(WHO, "connection", "c", NUMBER, "number of the client's connection", "~c 17", *column("connection")),
    Field(WHO, "node", "n", NUMBER, "id of the broker that the connection leads to", "~n 2", *column("node")),
    Field(WHO, "broker", "dst", TEXT, "its host:port", "~dst ^kafka-2:", *column("broker")),
    Field(WHO, "cluster", "", TEXT, "name of the cluster in the config", "cluster == main", *column("cluster")),
    Field(WHO, "listener", "", TEXT, "name of the listener in the config", "listener == main", *column("listener")),
    Field(RESULT, "error", "e", ERROR, "any error in the response: by name, number, or a part of the name",
          "~e NOT_LEADER", *column("errors", "error")),
    Field(RESULT, "pending", "q", FLAG, "a due response is missing", "~q", *flag(_unanswered)),
    Field(RESULT, "done", "s", FLAG, "it was answered, or no answer was due", "~s",
          *flag(lambda view: not _unanswered(view))),
    Field(RESULT, "outcome", "", ChoiceKind(OUTCOMES), "how it ended: answered, no_answer_due (acks=0), unanswered, "
          "closed (kproxy closed instead)", "outcome == closed", *column("outcome")),
    Field(RESULT, "latency", "lat", DURATION, "time from request in to response out", "~lat > 200ms",
          *column("latency_ms")),
    Field(RESULT, "broker_time", "", DURATION, "the broker's part of it", "broker_time > 1s", *column("broker_ms")),
    Field(RESULT, "throttle", "", DURATION, "throttle_time_ms of the response", "throttle", *column("throttle_ms")),
    Field(RESULT, "size", "size", SIZE, "bytes of the frame, of the larger one of the two", "~size > 1MB",
          _frame_size, FieldDepth.AT_ONCE),
    Field(RESULT, "request_bytes", "", SIZE, "bytes of the request's frame", "request_bytes > 100kB",
          *column("request_bytes")),
    Field(RESULT, "response_bytes", "", SIZE, "bytes of the response's frame", "response_bytes > 100kB",
          *column("response_bytes")),
    Field(DATA, "records", "n_rec", NUMBER, "records written or read", "~n_rec > 1000", *column("total_records")),
    Field(DATA, "bytes", "", SIZE, "bytes of record batches", "bytes > 1MB", *column("total_bytes")),
    Field(DATA, "codec", "codec", ChoiceKind(CODECS.values()), f"codecs of batches: {', '.join(CODECS.values())}",
          "~codec none", *of_partitions("codec")),
    Field(DATA, "producer_id", "", NUMBER, "producer ids, of transaction APIs or of batches", "producer_id == 4000",
          lambda view: [*column("producer_id")[0](view), *of_partitions("producer_id")[0](view)], FieldDepth.FIELDS),
    Field(DATA, "offset", "", NUMBER, "offsets: asked for, committed, or of the first record written or read",
          "offset == 0", lambda view: [value for name in ("fetch_offset", "committed_offset", "base_offset")
                                       for value in of_partitions(name)[0](view)], FieldDepth.FIELDS),
    *OF_RECORDS,
    Field(PROXY, "ruled", "mod", FLAG, "a rule acted on it", "~mod", *flag(lambda view: bool(view.get("rules")))),
    Field(PROXY, "rule", "rule", TEXT, "names of the rules that acted on it", "~rule slow",
          *column("rules")),
    Field(PROXY, "injected", "inj", FLAG, "kproxy answered in the broker's place", "~inj",
          *flag(lambda view: view.get("responder") == "kproxy")),
    Field(PROXY, "decode_error", "undec", FLAG, "its request or response could not be decoded", "~undec",
          *flag(lambda view: view.get("decode_error") is not None, FieldDepth.FIELDS)),
    Field(PROXY, "depth", "", ChoiceKind(DEPTHS), f"how much kproxy decoded: {', '.join(DEPTHS)}",
          "depth == full", *column("depth")),
    Field(PROXY, "rule_time", "", DURATION, "time held by rules", "rule_time > 0ms", *column("rule_ms")),
    Field(PROXY, "wait_time", "", DURATION, "time in kproxy for other causes, such as lookups", "wait_time > 5ms",
          *column("wait_ms")),
)  # fmt: skip
"""The fields of the language, in the order of the help."""


def of_each_record(make: Callable[[str], Field]) -> Callable[[str], Field]:
    return lambda path: replace(make(path), group=DATA, depth=FieldDepth.RECORDS)


EXCHANGES = FieldTable(FIELDS, {root: of_each_record(make) for root, make in RECORDS.paths.items()}, RECORDS)
BY_NAME, BY_SHORT = EXCHANGES.by_name, EXCHANGES.by_short
