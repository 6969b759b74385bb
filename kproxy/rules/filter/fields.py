"""Table of the fields of the filter language, which the parser, the help and the documentation read.

Strategy: a field gives the values that an exchange has of it, none, one or many; a test holds when it holds for any of
them. The columns that a field reads decide how much of a frame has to be kept for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Protocol

from kproxy.protocol.records.compression import CODECS

from .kinds import ACKS, ADDRESS, API, DURATION, ERROR, FLAG, NUMBER, SIZE, TEXT, TIME, ChoiceKind, Kind


class View(Protocol):
    """View of one exchange that a filter judges."""

    def get(self, column: str) -> Any:
        """Return the value of this column of the request event, None where it is absent."""
        ...

    def records(self) -> Iterable[Any]:
        """Return the records of the exchange, up to a limit. Raises NotKept if they were not kept."""
        ...


Read = Callable[[Any], Iterable[Any]]
"""Returns the values of a view; the views of one table have one type."""


class FieldDepth(IntEnum):
    """Amount of an exchange's frames that a field needs: none, all but the inside of record batches, or all."""

    AT_ONCE, FIELDS, RECORDS = range(3)


COLUMNS_AT_ONCE = frozenset((
    "api", "api_key", "version", "correlation_id", "client_id", "acks", "outcome", "rules", "responder",
    "request_bytes", "response_bytes", "latency_ms", "connection", "cluster", "listener", "client_address",
    "client_port", "node", "broker", "principal", "software_name", "software_version",
))  # fmt: skip
"""Columns that need no frame to be kept."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of the filter language: `name` as in `name == value`, `short` as in `~short value` ("" for none).

    `group`: its heading in the help. `read`: gives the values of an exchange. `depth`: how much of frames that needs.
    """

    group: str
    name: str
    short: str
    kind: Kind
    meaning: str
    example: str
    read: Read
    depth: FieldDepth


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


def of_records(values: Callable[[Any], Iterable[Any]]) -> tuple[Read, FieldDepth]:
    """Return a reader of `values` of each record of an exchange, and the depth that it needs."""

    def read(view: View) -> Iterator[Any]:
        for found in view.records():
            yield from values(found.record)

    return read, FieldDepth.RECORDS


def as_text(data: bytes | None) -> Iterable[str]:
    """Return bytes as text, with a mark for each byte that is not UTF-8; nothing for null."""
    return () if data is None else (data.decode("utf-8", "replace"),)


def _software(view: View) -> Iterable[str]:
    name, version = view.get("software_name"), view.get("software_version")
    return (f"{name or ''} {version or ''}".strip(),) if name or version else ()


def _frame_size(view: View) -> Iterable[int]:
    sizes = [size for name in ("request_bytes", "response_bytes") if (size := view.get(name)) is not None]
    return (max(sizes),) if sizes else ()


def _time(view: View) -> Iterable[str]:
    when = view.get("request_in")
    return () if when is None else (str(when).removesuffix("Z"),)


def _headers(record: Any) -> Iterable[str]:
    return [f"{name}={value.decode('utf-8', 'replace') if value else ''}" for name, value in record.headers]


def _unanswered(view: View) -> bool:
    return view.get("outcome") in ("unanswered", "closed")


DEPTHS = ("none", "header", "fields", "full")
OUTCOMES = ("answered", "no_answer_due", "unanswered", "closed")
WHAT, WHO, RESULT, DATA, PROXY = "what was asked", "who asked", "what came of it", "records", "what kproxy did"

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
    Field(DATA, "key", "key", TEXT, "keys of records, as text", '~key "^user-1$"',
          *of_records(lambda record: as_text(record.key))),
    Field(DATA, "value", "val", TEXT, "values of records, as text", "~val timeout",
          *of_records(lambda record: as_text(record.value))),
    Field(DATA, "header", "h", TEXT, "headers of records, as name=value", '~h "^trace-id="', *of_records(_headers)),
    Field(DATA, "keyless", "keyless", FLAG, "a record has no key", "~keyless",
          *of_records(lambda record: (True,) if record.key is None else ())),
    Field(DATA, "tombstone", "tomb", FLAG, "a record has no value", "~tomb",
          *of_records(lambda record: (True,) if record.value is None else ())),
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


class FieldTable:
    """Fields of one language. `paths`: fields with a path, by their first word, such as `value` of `value.country`;
    each gets the rest of the name, and raises ValueError for a wrong path."""

    def __init__(self, fields: Iterable[Field], paths: Mapping[str, Callable[[str], Field]] = MappingProxyType({})):
        self.fields = tuple(fields)
        self.by_name = {field.name: field for field in self.fields}
        self.by_short = {field.short: field for field in self.fields if field.short}
        self.paths = paths

    def __getitem__(self, name: str) -> Field:
        """Return the field with this name, as `FieldTest` has it."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        root, rest = split_path(name)
        return self.paths[root](rest)


PATH_ROOT = re.compile(r"[a-z_]+(?=[.\[])")


def split_path(name: str) -> tuple[str, str]:
    """Return the first word of a name with a path, and the path; the whole name and nothing if it has no path."""
    found = PATH_ROOT.match(name)
    return (found[0], name[found.end() :]) if found else (name, "")


EXCHANGES = FieldTable(FIELDS)
BY_NAME, BY_SHORT = EXCHANGES.by_name, EXCHANGES.by_short
