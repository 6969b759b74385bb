"""Answers clients as a recording was answered: frames in, frames out. No socket, no clock.

    stage = Stage(recording)
    reply = stage.reply(frame, address)         `address`: what the client connected to, put wherever a broker's stands

Strategy, for each request: the recorded answer to the same question (script.py); else one put together from recorded
elements (pieces.py); else the recorded answer to a question about the same group or transaction, or of the same API.
Fetch and ListOffsets are answered from the partitions of the recording (log.py). Ids need no mapping: clients are told
the recorded ones, and use them. What the recording has no answer for is made where that is plain: ApiVersions from the
versions that were used, heartbeats and the like without an error; anything else gets an error, and is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kproxy.core.respond import Failure, can_carry, fail
from kproxy.errors import KproxyError
from kproxy.wire import Message, decode_request, encode, layout, schema
from kproxy.wire.schema import Api

from .fixes.correlation import answered
from .log import FETCH, Log
from .pieces import Pieces, fit
from .recording import Recording
from .script import Script
from .structs import layout_of, of_kind, structs
from .target import API_VERSIONS, METADATA, Address
from .written import PRODUCE, Written

LIST_OFFSETS = 2
LATEST, EARLIEST = -1, -2
UNSUPPORTED_VERSION, UNKNOWN = 35, -1
EASY = frozenset((8, 12, 13))
"""OffsetCommit, Heartbeat, LeaveGroup: how often they come depends on the moment, and no error is the usual answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`frame`: the response without its length; None: none is due. `wait`: seconds to keep it back. `close`: the
    request cannot be answered."""

    frame: bytes | None = None
    wait: float = 0.0
    close: bool = False


@dataclass(slots=True)
class Count:
    """Requests of an API, by how they were answered."""

    requests: int = 0
    exact: int = 0
    alike: int = 0
    made: int = 0
    unmatched: int = 0


class Stage:
    """`unmatched`: what could not be answered from the recording, as text, and how often."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.script, self.pieces, self.log = Script(recording), Pieces(recording), Log(recording)
        self.written = Written()
        self.by_api: dict[str, Count] = {}
        self.unmatched: Counter[str] = Counter()
        self.versions = versions_used(recording)

    def counts(self) -> dict[str, tuple[int, int, int, int, int]]:
        """By API: requests, and how many of them were answered exactly, by keys, made, or with an error."""
        return {api: (one.requests, one.exact, one.alike, one.made, one.unmatched) for api, one in self.by_api.items()}

    def reply(self, frame: bytes, address: Address) -> Reply:
        """To one request of a client. Never raises for what is in it, or in the recording."""
        try:
            request = decode_request(frame, trailing=True)
        except KproxyError as error:
            return self.unreadable(frame, str(error))
        try:
            return self.read(request, address)
        except KproxyError as error:
            self.unmatched[f"{request.api.name} {request.version}: {error}"] += 1
            return Reply(close=True)

    def read(self, request: Message, address: Address) -> Reply:
        """To one that could be read."""
        count = self.by_api.setdefault(request.api.name, Count())
        count.requests += 1
        if request.api.key == PRODUCE and request.body["acks"] == 0:
            count.exact += 1
            return Reply()
        wait = 0.0
        if request.api.key == FETCH:
            response, some = self.log.answer(request)
            wait = 0.0 if some else request.body["max_wait_ms"] / 1000
            count.alike += 1
        else:
            found = self.answer(request, count)
            if found is None:
                return Reply(close=True)
            response = found
        if request.api.key == PRODUCE:
            self.written.number(request, response)
        at_home(response, address)
        return Reply(answered(encode(response), request.header["correlation_id"]), wait)

    def answer(self, request: Message, count: Count) -> Message | None:
        """The response, with any correlation id; None if it cannot be said that something is wrong."""
        if request.api.key == LIST_OFFSETS and (made := self.offsets(request)) is not None:
            count.made += 1
            return made
        if (exact := self.script.exact(request)) is not None:
            count.exact += 1
            return copy(exact)
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
        return self.made(request, count)

    def made(self, request: Message, count: Count) -> Message | None:
        """An answer that the recording does not have."""
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
            count.made += 1
            struct = layout.body(request.api.key, request.version, "response")
            return Message(request.api, request.version, request_id(request), fit(struct, body))
        count.unmatched += 1
        self.unmatched[f"{request.api.name} {request.version}: never asked in the recording"] += 1
        key, version = request.api.key, request.version
        sayable = can_carry(key, version, "top") or can_carry(key, version, "entity")
        return fail(request, Failure(UNKNOWN)) if sayable else None

    def offsets(self, request: Message) -> Message | None:
        """The ends of partitions, if the request asks for nothing else and they are known."""
        if request.version < 1:
            return None
        topics = []
        for topic in request.body["topics"] or ():
            parts = []
            for one in topic["partitions"] or ():
                partition = self.log.partitions.get((self.log.topic({"topic": topic["name"]}), one["partition_index"]))
                if partition is None or one["timestamp"] not in (LATEST, EARLIEST):
                    return None
                offset = partition.high if one["timestamp"] == LATEST else partition.start
                parts.append({"partition_index": one["partition_index"], "error_code": 0, "timestamp": -1,
                              "offset": offset, "leader_epoch": -1})  # fmt: skip
            topics.append({"name": topic["name"], "partitions": parts})
        struct = layout.body(LIST_OFFSETS, request.version, "response")
        return Message(request.api, request.version, request_id(request), fit(struct, {"topics": topics}))

    def unreadable(self, frame: bytes, reason: str) -> Reply:
        """A request that the table does not know. ApiVersions is answered in version 0 (KIP-511)."""
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


def copy(message: Message) -> Message:
    """One that may be changed."""
    return Message(message.api, message.version, dict(message.header), fit(layout_of(message), message.body))


def at_home(response: Message, address: Address) -> None:
    """Every broker in it is here."""
    for struct, value in structs(layout_of(response), response.body):
        hosts, ports = list(of_kind(struct, "host")), list(of_kind(struct, "port"))
        if len(hosts) == len(ports) == 1 and value[hosts[0].name]:
            value[hosts[0].name], value[ports[0].name] = address


def versions_used(recording: Recording) -> dict[int, tuple[int, int]]:
    """API key → the lowest and the highest version that requests had; Metadata and ApiVersions in all of ours."""
    found: dict[int, tuple[int, int]] = {}
    for one in recording.exchanges:
        if not one.unfit:
            low, high = found.get(one.key, (one.version, one.version))
            found[one.key] = min(low, one.version), max(high, one.version)
    return {key: all_of(schema.load(key)) for key in (API_VERSIONS, METADATA)} | found


def all_of(api: Api) -> tuple[int, int]:
    return api.versions.first, api.versions.last
