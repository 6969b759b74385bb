"""Responder that answers clients as a recording was answered: frames in, frames out. No socket, no clock.

    responder = RecordingResponder(recording)
    reply = responder.reply(frame, address)     `address`: what the client connected to, put in place of every broker's

Strategy, for each request: the recorded response to an equal request (recorded_responses.py); if none is left, a
response made of recorded elements (`RecordedElements`); otherwise the recorded response to a request about the same
group or transaction, or of the same API. Fetch and ListOffsets are answered from the partitions of the recording
(`PartitionLog`). Ids need no mapping: clients receive the recorded ids and use them. If the recording has no response,
one is generated in simple cases: ApiVersions from the versions that were used, heartbeats and the like without an
error; anything else gets an error, and is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kproxy.base.errors import KproxyError
from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.codec.message import awaits_response
from kproxy.protocol.elements import partitions, partitions_of, topics
from kproxy.protocol.records import Batch, LegacyEntry, entries
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
)
from kproxy.protocol.table.schema import Api
from kproxy.rules.kinds.base.access import can_say
from kproxy.session.respond import Failure, fail
from kproxy.tools.replay.recorded_responses import RecordedResponses
from kproxy.tools.replay.recording import Recording
from kproxy.tools.replay.target import NodeAddress

from .recorded_responses import PartitionLog, RecordedElements, fit
from .recording import layout_of, of_kind, structs
from .target import answered

LATEST, EARLIEST = -1, -2
UNSUPPORTED_VERSION, UNKNOWN = 35, -1
EASY = frozenset((OFFSET_COMMIT, HEARTBEAT, LEAVE_GROUP))
"""OffsetCommit, Heartbeat, LeaveGroup: how often they come depends on the moment, and no error is the usual answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a responder.

    `frame`: the response without its length; None: none is due. `wait`: seconds to keep it back. `close`: the request
    cannot be answered.
    """

    frame: bytes | None = None
    wait: float = 0.0
    close: bool = False


@dataclass(slots=True)
class AnswerCounts:
    """Counts of one API's requests, by how they were answered."""

    requests: int = 0
    exact: int = 0
    alike: int = 0
    synthesised: int = 0
    unmatched: int = 0


class RecordingResponder:
    """Responder of one recording.

    `unmatched`: descriptions of requests that the recording could not answer, with their counts.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.script, self.pieces, self.log = (
            RecordedResponses(recording),
            RecordedElements(recording),
            PartitionLog(recording),
        )
        self.written = WrittenOffsets()
        self.by_api: dict[str, AnswerCounts] = {}
        self.unmatched: Counter[str] = Counter()
        self.versions = versions_used(recording)

    def counts(self) -> dict[str, tuple[int, int, int, int, int]]:
        """Return by API: requests, and how many of them were answered exactly, by keys, made, or with an error."""
        return {
            api: (one.requests, one.exact, one.alike, one.synthesised, one.unmatched)
            for api, one in self.by_api.items()
        }

    def reply(self, frame: bytes, address: NodeAddress) -> Reply:
        """Return the reply to one request of a client. Never raises for malformed requests or recordings."""
        try:
            request = decode_request(frame, trailing=True)
        except KproxyError as error:
            return self.unreadable(frame, str(error))
        try:
            return self.read(request, address)
        except KproxyError as error:
            self.unmatched[f"{request.api.name} {request.version}: {error}"] += 1
            return Reply(close=True)

    def read(self, request: Message, address: NodeAddress) -> Reply:
        count = self.by_api.setdefault(request.api.name, AnswerCounts())
        count.requests += 1
        if not awaits_response(request):
            count.exact += 1
            return Reply()
        wait = 0.0
        if request.api.key == FETCH:
            response, some = self.log.answer(request)
            wait = 0.0 if some else request.body["max_wait_ms"] / 1000
            count.alike += 1
        else:
            answer = self.answer(request, count)
            if answer is None:
                return Reply(close=True)
            response = answer
        if request.api.key == PRODUCE:
            self.written.number(request, response)
        replace_addresses(response, address)
        return Reply(answered(encode(response), request.header["correlation_id"]), wait)

    def answer(self, request: Message, count: AnswerCounts) -> Message | None:
        """Return the response, with any correlation id; None if the API has no way to report an error."""
        if request.api.key == LIST_OFFSETS and (ends := self.offsets(request)) is not None:
            count.synthesised += 1
            return ends
        if (exact := self.script.exact(request)) is not None:
            count.exact += 1
            return copy_of(exact)
        if (pieced := self.pieces.answer(request)) is not None:
            response, missing = pieced
            count.alike += not missing
            count.unmatched += bool(missing)
            self.unmatched.update(f"{request.api.name} {request.version}: {text}" for text in missing)
            return response
        if (alike := self.script.alike(request)) is not None:
            count.alike += 1
            struct = layout.body(request.api.key, request.version, "response")
            return Message(request.api, request.version, request_id(request), fit(struct, alike.body))
        return self.make(request, count)

    def make(self, request: Message, count: AnswerCounts) -> Message | None:
        body: dict[str, Any] | None = None
        if request.api.key == API_VERSIONS:
            keys = [{"api_key": key, "min_version": low, "max_version": high}
                    for key, (low, high) in sorted(self.versions.items())]  # fmt: skip
            body = {"api_keys": keys}
        elif request.api.key == METADATA:
            body = {"brokers": [{"node_id": 1, "host": "here", "port": 0, "rack": None}], "topics": []}
        elif request.api.key in EASY:
            body = {}
        if body is not None:
            count.synthesised += 1
            struct = layout.body(request.api.key, request.version, "response")
            return Message(request.api, request.version, request_id(request), fit(struct, body))
        count.unmatched += 1
        self.unmatched[f"{request.api.name} {request.version}: never asked in the recording"] += 1
        key, version = request.api.key, request.version
        return fail(request, Failure(UNKNOWN)) if can_say(key, version, None) else None

    def offsets(self, request: Message) -> Message | None:
        """Return the ends of partitions, if the request asks only for ends and they are known."""
        if request.version < 1:
            return None
        answered = []
        for topic in topics(request):
            parts = []
            for requested in partitions_of(request, topic):
                partition = self.log.partitions.get(self.log.key(requested))
                timestamp = requested.fields["timestamp"]
                if partition is None or timestamp not in (LATEST, EARLIEST):
                    return None
                offset = partition.high if timestamp == LATEST else partition.start
                parts.append({"partition_index": requested.number, "error_code": 0, "timestamp": -1,
                              "offset": offset, "leader_epoch": -1})  # fmt: skip
            answered.append({"name": topic.name, "partitions": parts})
        struct = layout.body(LIST_OFFSETS, request.version, "response")
        return Message(request.api, request.version, request_id(request), fit(struct, {"topics": answered}))

    def unreadable(self, frame: bytes, reason: str) -> Reply:
        """Return the reply to a request that is not in the protocol table.

        ApiVersions is answered in version 0 (KIP-511).
        """
        key = int.from_bytes(frame[:2], "big", signed=True)
        self.unmatched[reason] += 1
        if key != API_VERSIONS or len(frame) < 8:
            return Reply(close=True)
        api = schema.load(key)
        entry = {"api_key": key, "min_version": api.versions.first, "max_version": api.versions.last}
        body = {"error_code": UNSUPPORTED_VERSION, "api_keys": [entry]}
        number = int.from_bytes(frame[4:8], "big", signed=True)
        return Reply(encode(Message(api, 0, {"correlation_id": number}, body)))


def request_id(request: Message) -> dict[str, Any]:
    return {"correlation_id": request.header["correlation_id"]}


def copy_of(message: Message) -> Message:
    return Message(message.api, message.version, dict(message.header), fit(layout_of(message), message.body))


def replace_addresses(response: Message, address: NodeAddress) -> None:
    for struct, value in structs(layout_of(response), response.body):
        hosts, ports = list(of_kind(struct, "host")), list(of_kind(struct, "port"))
        if len(hosts) == len(ports) == 1 and value[hosts[0].name]:
            value[hosts[0].name], value[ports[0].name] = address


def versions_used(recording: Recording) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of the recorded requests by API key.

    Metadata and ApiVersions count with all versions of ours if they were not recorded.
    """
    used: dict[int, tuple[int, int]] = {}
    for exchange in recording.exchanges:
        if not exchange.unfit:
            low, high = used.get(exchange.key, (exchange.version, exchange.version))
            used[exchange.key] = min(low, exchange.version), max(high, exchange.version)
    return {key: all_of(schema.load(key)) for key in (API_VERSIONS, METADATA)} | used


def all_of(api: Api) -> tuple[int, int]:
    return api.versions.first, api.versions.last


class WrittenOffsets:
    """Ends of the partitions that a client writes to.

    `ends`: the next offset of each, by topic (name or id) and number. A producer that does the same again may send its
    records in other batches. Each response's base offset is then the end of the partition after the writes so far, but
    never below the recorded base offset.
    """

    def __init__(self) -> None:
        self.ends: dict[tuple[Any, int], int] = {}

    def number(self, request: Message, response: Message) -> None:
        """Put base offsets into the response to a Produce."""
        counts = {(written.name_or_id, written.number): records_in(written.records) for written in partitions(request)}
        for partition in partitions(response):
            where, fields = (partition.name_or_id, partition.number), partition.fields
            if not partition.error_code:
                fields["base_offset"] = max(fields["base_offset"], self.ends.get(where, 0))
                self.ends[where] = fields["base_offset"] + counts.get(where, 0)


def records_in(field: Any) -> int:
    """Return how many offsets the records of a field take."""
    all_entries = list(entries(field))
    return sum(
        entry.last_offset_delta + 1 if isinstance(entry, Batch) else isinstance(entry, LegacyEntry)
        for entry in all_entries
    )
