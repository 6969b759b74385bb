"""Recording of topics in captures: their ids, leader epochs and configs at the start and at the end.

Strategy. A client seldom requests the configs of a topic, and `kproxy verify` can prove little without them. So kproxy
sends Metadata and DescribeConfigs on a connection of its own, with its own credentials, as it does for other lookups.
The exchanges are broker-side exchanges of the capture without a client-side one. Clusters, topics, bytes and times are
bounded. If a cluster does not answer, the capture goes on, and its last block has the reason.

Responses are read in turns of the loop, and only for the fields that are needed. A thread would hold the interpreter
for seconds while it frees the message of a long response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from time import monotonic
from typing import Any

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.cooperative import free_list, yield_point, yielding
from kproxy.base.errors import DecodeError, KproxyError, plural
from kproxy.protocol import Message, encode
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import framed, known_body_start
from kproxy.protocol.scan.walk import read_string, walk
from kproxy.protocol.table import errors, schema
from kproxy.protocol.table.api_keys import DESCRIBE_CONFIGS, METADATA
from kproxy.record.captures.captured_connection import LONGEST_TOPIC, CapturedConnection, TopicIdNames
from kproxy.record.captures.running_captures import StartedCapture
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.filters import Filter
from kproxy.record.observer.credentials import RESPONSE, take_out
from kproxy.runtime.io.scheduler import in_a_turn
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.own_connection import MAX_METADATA, own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.cluster import VERSION, all_topics_request

MAX_CLUSTERS, MAX_TOPICS, PIECE = 16, 1000, 100
"""Clusters and topics of one capture, and topics of one request."""
PATIENCE = 10.0
"""Seconds for all requests at the start of a capture."""
START_WAIT = 2.0
"""Seconds that the start of a capture waits for them; the rest is recorded later."""
END_WAIT = 1.8
"""Seconds for all requests at the end of a capture; its thread waits for `capture_file.LAST_ENTRIES`."""
LONGEST_PIECE = 8 << 20  # bytes of a response about PIECE topics
MAX_BYTES = 64 << 20
"""Bytes of all responses that the topics of one capture add to it at its start, and at its end."""
CONFIGS_VERSION = 1
"""Version of DescribeConfigs, from Kafka 1.1 to the newest."""
TOPIC_RESOURCE = 2
LOGS = ("__consumer_offsets", "__transaction_state")
"""Topics of the coordinators: compaction and leader elections in them concern commits and transactions."""
CONFIGS = [
    "cleanup.policy", "compression.type", "delete.retention.ms", "message.timestamp.type", "min.insync.replicas",
    "retention.bytes", "retention.ms", "unclean.leader.election.enable",
]  # fmt: skip
"""Configs that are requested; all of them are in `credentials.KEPT_VALUES`."""


@dataclass(slots=True)
class Left:
    """Topics, and bytes of responses (`size`), that may still be recorded."""

    topics: int
    size: int


class TopicRecorder:
    """Recorder of topics for the captures of one process, in its loop."""

    def __init__(self, server: Server, log: FilteringBoundLogger) -> None:
        self.server, self.log, self.reactor = server, log, server.reactor
        self.number = 0  # connections of clients have numbers above 0

    async def begin(self, capture: StartedCapture) -> None:
        """Record the topics at the start of a capture; return when that is done, or START_WAIT has passed."""
        done = trio.Event()
        self.reactor.spawn(self.record, capture, PATIENCE, done)
        with trio.move_on_after(START_WAIT):
            await done.wait()

    def end(self, capture: StartedCapture) -> None:
        """Add to a capture that has ended: requests under way, and the topics."""
        self.reactor.spawn(self.finish, capture)

    async def end_all(self, captures: list[StartedCapture]) -> None:
        """Record the topics of captures that end with the proxy, after the last client has gone."""
        async with trio.open_nursery() as nursery:
            for capture in captures:
                nursery.start_soon(self.record, capture, END_WAIT, trio.Event())

    async def finish(self, capture: StartedCapture) -> None:
        """Do so, and have the capture's file end."""
        try:
            capture.file.open.update(await in_a_turn(self.reactor, "end of a capture", self.under_way))
            if capture.topics:
                await self.record(capture, END_WAIT, trio.Event())
        finally:
            capture.file.done()

    def under_way(self) -> Counter[str]:
        """Return by API the requests of all connections that wait for a response."""
        waiting: Counter[str] = Counter()
        for connection in yielding(list(self.server.connections)):
            for _, key, _ in connection.session.awaited_requests:
                if key in schema.paths():
                    waiting[schema.load(key).name] += 1
        return waiting

    async def record(self, capture: StartedCapture, patience: float, done: trio.Event) -> None:
        """Record the topics of all clusters in a capture, and the reasons if some are missing."""
        upstreams = list(self.server.upstreams.values())
        left = Left(MAX_TOPICS, MAX_BYTES)
        trouble: list[str] = []
        if len(upstreams) > MAX_CLUSTERS:
            trouble.append(f"expected at most {MAX_CLUSTERS} clusters, got {len(upstreams)}")
        try:
            async with trio.open_nursery() as nursery:
                for upstream in upstreams[:MAX_CLUSTERS]:
                    nursery.start_soon(self.of_cluster, capture, upstream, patience, left, trouble)
        finally:
            if trouble:
                capture.file.trouble = "; ".join(trouble)
                self.log.info("topics of a capture are not all recorded", file=capture.file.path.name, reason=trouble)
            self.reactor.notify(done)

    async def of_cluster(
        self, capture: StartedCapture, upstream: Upstream, patience: float, left: Left, trouble: list[str]
    ) -> None:
        """Record topics of one cluster, up to `left`."""
        reason = ""
        try:
            with trio.fail_after(patience):
                reason = await self.exchanges_of(capture, upstream, left)
        except (OSError, KproxyError, trio.TooSlowError) as error:
            reason = str(error) or f"no response in {patience:g} s"
        if reason:
            trouble.append(f"cluster {upstream.name}: {reason}")

    async def exchanges_of(self, capture: StartedCapture, upstream: Upstream, left: Left) -> str:
        """Record topics of one cluster; return why some are missing. Raises OSError and KproxyError."""
        opened, share = monotonic(), f"cluster {upstream.name}"
        async with own_connection(upstream) as sock:
            frame = await send_request(sock, all_topics_request(), MAX_METADATA)
            names = await in_a_turn(self.reactor, share, partial(topic_names, frame, capture.sink.wanted))
            taken = names[: left.topics]
            left.topics -= len(taken)
            reasons = [f"expected at most {MAX_TOPICS} topics, got more"] if len(taken) < len(names) else []
            self.number -= 1
            local, (host, port) = address(sock.getsockname()), address(sock.getpeername())
            who = CapturedConnection(
                self.number, "broker", *local, host, port, opened, TopicIdNames(), cluster=upstream.name,
                broker=f"{host}:{port}",
            )  # fmt: skip
            seen: list[ObservedExchange] = []
            refused: Counter[int] = Counter()
            for request, key, version in topic_requests(taken):
                first = monotonic()
                answer = await send_request(sock, request, min(LONGEST_PIECE, left.size))
                left.size -= min(len(answer), left.size)  # other clusters have used it in the meantime
                times = first, monotonic()
                read = partial(observed, who, len(seen) + 1, (key, version), request[4:], answer, times)
                exchange, denied = await in_a_turn(self.reactor, share, read)
                seen.append(exchange)
                refused += denied
        if seen:
            capture.file.own(seen, (host, port), monotonic())
        reasons += [f"{plural(count, 'topic')}: {errors.error_name(code)}" for code, count in sorted(refused.items())]
        return ", ".join(reasons)


def address(name: Any) -> tuple[str, int]:
    """Return host and port of a socket's name; of a Unix socket a name without a port."""
    return (name[0], name[1]) if isinstance(name, tuple) else ("socket", 0)


def topic_names(frame: bytes, wanted: Filter) -> list[str]:
    """Return at most MAX_TOPICS + 1 topics of a Metadata response that may pass a filter: LOGS first, others sorted.

    Raises DecodeError.
    """
    return nsmallest(MAX_TOPICS + 1, usable_names(frame, wanted), key=lambda name: (name not in LOGS, name))


def usable_names(frame: bytes, wanted: Filter) -> Iterator[str]:
    """Yield the names of existing topics in a Metadata response that may pass a filter. Raises DecodeError."""
    existing = True
    for path, compact, start, end in values_in(frame, METADATA, VERSION, "topics[].error_code", "topics[].name"):
        if path == "topics[].error_code":
            existing = not any(frame[start:end])
            continue
        name = (read_string(frame, start, end, compact) or b"").decode(errors="replace")
        if existing and name and len(name) <= LONGEST_TOPIC and (name in LOGS or wanted.possible_topic(name)):
            yield name


def refusals(frame: bytes) -> Counter[int]:
    """Return by error code the topics without configs in a DescribeConfigs response. Raises DecodeError."""
    codes: Counter[int] = Counter()
    for _, _, start, end in values_in(frame, DESCRIBE_CONFIGS, CONFIGS_VERSION, "results[].error_code"):
        codes[int.from_bytes(frame[start:end], "big", signed=True)] += 1
    del codes[0]
    return codes


def values_in(frame: bytes, key: int, version: int, *paths: str) -> Iterator[tuple[str, bool, int, int]]:
    """Yield (path, compact, start, end) of the values with these paths in a response. Raises DecodeError."""
    found = walk(key, version, RESPONSE, frozenset(paths))
    start = known_body_start(frame, 0, len(frame), header_version(key, version, RESPONSE), RESPONSE)
    if start is None:
        raise DecodeError(f"expected a response, got {len(frame)} bytes without a complete header")
    hits: list[tuple[int, int, int]] = []
    found.run(frame, start, len(frame), hits)  # librdkafka's mock sends an extra byte
    for mark, first, last in hits:
        yield_point()
        slot = found.marks[mark].slot
        if slot is not None and slot.path in paths and found.marks[mark].what == "value":
            yield slot.path, slot.compact, first, last
    free_list(hits)


def topic_requests(names: list[str]) -> Iterator[tuple[bytes, int, int]]:
    """Yield the requests for topics with these names, each with its size, API key and version."""
    for at in range(0, len(names), PIECE):
        piece = names[at : at + PIECE]
        topics = [{"name": name} for name in piece]
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": CONFIGS} for name in piece
        ]
        yield request_of(METADATA, VERSION, at, {
            "topics": topics, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }), METADATA, VERSION  # fmt: skip
        configs = {"resources": resources, "include_synonyms": False}
        yield request_of(DESCRIBE_CONFIGS, CONFIGS_VERSION, at + 1, configs), DESCRIBE_CONFIGS, CONFIGS_VERSION


def request_of(key: int, version: int, correlation: int, body: Mapping[str, Any]) -> bytes:
    header = {
        "request_api_key": key, "request_api_version": version, "correlation_id": correlation, "client_id": "kproxy",
    }  # fmt: skip
    return framed(encode(Message(schema.load(key), version, header, dict(body))))


def observed(
    who: CapturedConnection, number: int, api: tuple[int, int], request: bytes, answer: bytes,
    times: tuple[float, float],
) -> tuple[ObservedExchange, Counter[int]]:  # fmt: skip
    """Return an exchange of kproxy's own as an observer returns those of clients, and its refusals.

    `api`: key and version. `request`, `answer`: frames without their sizes. `times`: of the request and the response.
    Raises DecodeError.
    """
    kept, withheld = take_out(answer, *api, RESPONSE)
    form = Form.WHOLE if len(kept) == len(answer) else Form.HEAD
    seen = ObservedExchange(
        who, number, *api, int.from_bytes(request[4:8], "big", signed=True), "kproxy",
        Frame(len(request) + 4, times[0], times[0], request, Form.WHOLE),
        Frame(len(answer) + 4, times[1], times[1], kept, form, withheld), "answered",
    )  # fmt: skip
    return seen, refusals(answer) if api[0] == DESCRIBE_CONFIGS else Counter()
