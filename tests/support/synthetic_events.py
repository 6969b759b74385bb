"""Audit files as a busy cluster makes them, in any number: for measuring the pipeline, and for trying it out.

Strategy: producers and consumers live through minutes. A producer is told by a summary line for its Produce requests
and one for each of its partitions; a consumer likewise for Fetch, and by a request event for each heartbeat and commit.
What does not change about a connection is written down once, so a line costs little more than its bytes. Everything
follows from the seed; `Truth` says what the answers of the pipeline have to add up to.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import msgspec

LINES_A_FILE = 200_000
"""Lines of one file, some 100 MB before compression."""
START = datetime(2026, 11, 1, tzinfo=UTC)
HEARTBEATS, COMMITS = 20, 12
"""Requests of a consumer in a minute: a heartbeat every 3 s, and a commit every 5 s."""
SOFTWARE = (
    ("apache-kafka-java", "3.9.1"),
    ("apache-kafka-java", "2.8.0"),
    ("librdkafka", "2.10.0"),
    ("kafka-python", "1.4"),
)
RECORD = 210  # bytes
FAILS_EVERY = 97
"""One Produce line of so many has an error."""


@dataclass
class Truth:
    """Sums over the events of one source, for the pipeline's answers to be compared with. `records`, `bytes`: written,
    by topic, in Produce lines without an error."""

    lines: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    records_read: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    """Offset commits by group."""


@dataclass
class Client:
    """A client's connection that lives as long as the data does. `head` begins the data of its summaries and
    requests."""

    number: int
    client_id: str
    topic: str
    partitions: tuple[int, ...]
    group: str
    head: bytes
    offsets: dict[int, int]


@dataclass(frozen=True)
class Size:
    """Size of the made-up cluster: how many producers, consumers and topics there are per source, and partitions per
    topic."""

    producers: int = 300
    consumers: int = 300
    topics: int = 200
    partitions: int = 4


def write_events(folder: Path, lines: int, *, seed: int = 1, source: int = 0, size: Size | None = None) -> Truth:
    """Write at least `lines` lines of one source into `folder`, as the audit names and packs its files. Return their
    sums."""
    truth = Truth()
    name = f"made-up/{UUID(int=seed << 32 | source)}/{source}"
    pending: list[bytes] = []
    first, pending_day = 1, ""
    for day, line in events(name, lines, Random(f"{seed}:{source}"), size or Size(), truth):
        if pending and (len(pending) >= LINES_A_FILE or day != pending_day):
            _publish(folder, pending_day, source, first, pending)
            first, pending = first + len(pending), []
        pending_day = day
        pending.append(line)
    if pending:
        _publish(folder, pending_day, source, first, pending)
    return truth


def _publish(folder: Path, day: str, source: int, first: int, lines: list[bytes]) -> None:
    place = folder / f"dt={day}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"made-up-{source:08d}-{source}-{first:012d}.ndjson.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"".join(lines))


def events(source: str, lines: int, random: Random, size: Size, truth: Truth) -> Iterator[tuple[str, bytes]]:
    """Yield (day, line) until there are so many; the last minute is whole."""
    clients = [_client(number, random, size) for number in range(1, size.producers + size.consumers + 1)]
    envelope = b'{"specversion":"1.0","id":"%d","source":"' + source.encode() + b'","type":"%b","time":"%b",'
    envelope += b'"datacontenttype":"application/json","data":%b}\n'
    minute = START
    while truth.lines < lines:
        stamp, day = minute.strftime("%Y-%m-%dT%H:%M:").encode(), minute.strftime("%Y-%m-%d")
        for client in clients:
            made = (
                _produce(client, stamp, random, truth) if not client.group else _consume(client, stamp, random, truth)
            )
            for kind, time, data in made:
                truth.lines += 1
                truth.by_type[kind.decode()] += 1
                yield day, envelope % (truth.lines, kind, time, data)
        minute += timedelta(minutes=1)


SUMMARY, REQUEST = b"kproxy.summary.v1", b"kproxy.request.v1"
Made = Iterator[tuple[bytes, bytes, bytes]]


def _client(number: int, random: Random, size: Size) -> Client:
    software, version = SOFTWARE[number % len(SOFTWARE)]
    consumes = number > size.producers
    topic = f"topic-{random.randrange(size.topics)}"
    group = f"group-{topic[6:]}" if consumes else ""
    client_id = f"{'reader' if consumes else 'writer'}-{number % 50}"
    columns = {
        "connection": number,
        "cluster": "main",
        "listener": "outside",
        "client_address": f"10.{number >> 8 & 255}.{number & 255}.7",
        "client_port": 30000 + number,
        "node": number % 3 + 1,
        "broker": f"b{number % 3 + 1}:9092",
        "principal": f"user-{number % 20}",
        "software_name": software,
        "software_version": version,
        "client_id": client_id,
    }
    head = msgspec.json.encode(columns)[:-1]
    partitions = tuple(range(size.partitions))
    return Client(number, client_id, topic, partitions, group, head, dict.fromkeys(partitions, 0))


def _api_line(
    client: Client, stamp: bytes, api: bytes, version: int, count: int, extra: bytes, random: Random
) -> bytes:
    slow = random.randrange(3)
    return client.head + (
        b',"minute":"%b00.000000Z","first":"%b00.%06dZ","last":"%b59.%06dZ","api":"%b","version":%d%b,"count":%d,'
        b'"request_bytes":%d,"response_bytes":%d,"latency_ms":%d.5,"latency_max_ms":%d.25,'
        b'"latency_buckets":[%d,%d,0,0,0,%d,0,0,0,0,0,0,0,0,0],"rule_ms":0.0,"wait_ms":0.0}'
    ) % (
        stamp, stamp, random.randrange(10**6), stamp, random.randrange(10**6), api, version, extra, count,
        count * 900, count * 120, count * 2, 3 + slow * 60, count - 1 - slow, 1, slow,
    )  # fmt: skip


def _part_line(
    client: Client, stamp: bytes, api: tuple[bytes, int], part: int, count: int, records: int, extra: bytes
) -> bytes:
    return client.head + (
        b',"minute":"%b00.000000Z","first":"%b00.000000Z","last":"%b59.000000Z","api":"%b","version":%d,"topic":"%b",'
        b'"partition":%d,"codec":"lz4","count":%d,"records":%d,"bytes":%d,"batches":%d%b}'
    ) % (stamp, stamp, stamp, *api, client.topic.encode(), part, count, records, records * RECORD, count, extra)


def _produce(client: Client, stamp: bytes, random: Random, truth: Truth) -> Made:
    count = 20 + random.randrange(40)
    time = stamp + b"00.000000Z"
    yield SUMMARY, time, _api_line(client, stamp, b"Produce", 12, count * 4, b',"acks":-1', random)
    for part in client.partitions:
        records = count * random.randrange(1, 50)
        failed = (truth.lines + part) % FAILS_EVERY == 0
        if failed:
            extra = b',"acks":-1,"idempotent":true,"error":"NOT_LEADER_OR_FOLLOWER"'
        else:
            client.offsets[part] += records
            truth.records[client.topic] += records
            truth.bytes[client.topic] += records * RECORD
            extra = b',"acks":-1,"idempotent":true,"last_offset":%d' % client.offsets[part]
        yield SUMMARY, time, _part_line(client, stamp, (b"Produce", 12), part, count, records, extra)


def _consume(client: Client, stamp: bytes, random: Random, truth: Truth) -> Made:
    count = 60 + random.randrange(60)
    time = stamp + b"00.000000Z"
    yield SUMMARY, time, _api_line(client, stamp, b"Fetch", 17, count, b',"empty":%d' % (count // 3), random)
    for part in client.partitions:
        records = count * random.randrange(1, 40)
        client.offsets[part] += records
        truth.records_read[client.topic] += records
        extra = b',"empty":1,"last_offset":%d,"high_watermark":%d' % (
            client.offsets[part] - 1, client.offsets[part] + random.randrange(100),
        )  # fmt: skip
        yield SUMMARY, time, _part_line(client, stamp, (b"Fetch", 17), part, count, records, extra)
    for beat in range(HEARTBEATS):
        at = stamp + b"%02d.%06dZ" % (beat * 3, random.randrange(10**6))
        yield REQUEST, at, _request_line(client, at, b"Heartbeat", 12, 4, b"", random)
    for beat in range(COMMITS):
        at = stamp + b"%02d.%06dZ" % (beat * 5, random.randrange(10**6))
        parts = b",".join(b'{"partition":%d,"committed_offset":%d}' % one for one in client.offsets.items())
        topics = b',"topics":[{"topic":"%b","partitions":[%b]}]' % (client.topic.encode(), parts)
        truth.commits[client.group] += 1
        yield REQUEST, at, _request_line(client, at, b"OffsetCommit", 8, 9, topics, random)


def _request_line(client: Client, at: bytes, api: bytes, key: int, version: int, extra: bytes, random: Random) -> bytes:
    latency = random.randrange(400, 9000)
    return client.head + (
        b',"correlation_id":%d,"api":"%b","api_key":%d,"version":%d,"depth":"none","outcome":"answered",'
        b'"responder":"broker","request_bytes":%d,"response_bytes":%d,"request_in":"%b","request_out":"%b",'
        b'"response_in":"%b","response_out":"%b","latency_ms":%d.%03d,"broker_ms":%d.%03d,"rule_ms":0.0,"wait_ms":0.0,'
        b'"throttle_ms":0,"group":"%b","member":"%b-%d","generation":7%b}'
    ) % (
        random.randrange(10**6), api, key, version, 120 + len(extra), 40, at, at, at, at,
        *divmod(latency, 1000), *divmod(latency, 1000), client.group.encode(), client.client_id.encode(), client.number,
        extra,
    )  # fmt: skip
