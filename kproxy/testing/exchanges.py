"""Exchanges that went through the proxy of a test: decoded when they are looked at, and selected as rules select
frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from time import time
from types import MappingProxyType
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import Message
from kproxy.protocol.codec.structs import read_request_header, read_response_header
from kproxy.protocol.records import Record, decode
from kproxy.protocol.records import entries as entries_of
from kproxy.protocol.scan.sketch import RecordsDigest, decode_sketch
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, FETCH, METADATA, PRODUCE
from kproxy.record.exchange import Form, Frame
from kproxy.rules import exchange as rules_exchange
from kproxy.rules.bodies import partitions_among
from kproxy.rules.content.edits import RecordBudget
from kproxy.rules.entity import Entity, entities
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.kinds.base.record_selector import any_record
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.session.counters import Counters
from kproxy.session.fetch_sessions import NOT_FOUND, FetchSessions
from kproxy.session.live.entity_resolver import unlisted
from kproxy.session.live.selection import key_of
from kproxy.session.partition_session import PartitionSession
from kproxy.session.respond.error_responses import errors_of

from .recorder import TapedExchange, complete_size

MOST_REASON = 120
"""Characters shown of the reason why a frame cannot be read: a rule has made it so, or the broker."""


class Topics:
    """Names of topics by id, from the Metadata responses that clients got."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.nodes = ()

    def topic_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None for an id that no response has shown."""
        return self.names.get(topic_id)

    def learn(self, response: Message | None) -> None:
        """Take names from a Metadata response of a version that has topic ids."""
        for topic in response.body.get("topics") or () if response is not None else ():
            if topic.get("topic_id") and topic["name"]:
                self.names[topic["topic_id"]] = topic["name"]

    def learn_all(self, taken: Iterable[TapedExchange]) -> None:
        """Take the names from all Metadata responses on the tape before they are discarded."""
        SeenExchanges([one for one in taken if one.seen.key == METADATA], self)


class SeenExchange:
    """A request as the client sent it, and its response as the client got it: after all rules, in its own names.

    Attributes: api (its name), key, version, client_id; connection (a number), node (that the connection is for; None:
    bootstrap); came, answered (monotonic seconds; None: no answer); request_bytes (its length); request, response
    (`kproxy.protocol` messages, with `header` and `body`; None: no answer. Both raise DecodeError when a rule has made
    the frame unreadable; of the oldest long ones of a tape that is full, records are digests of their batches'
    headers).
    """

    def __init__(self, taken: TapedExchange, topics: Topics) -> None:
        seen = taken.seen
        self.taken, self._topics, self.request_bytes = taken, topics, complete_size(taken.request)
        self.api, self.key, self.version, self.client_id = seen.api, seen.key, seen.version, seen.client_id
        self.connection, self.node = seen.who.number, taken.who.connection.facts.node
        self.came = taken.request.last

    @property
    def answered(self) -> float | None:
        return self.taken.answered

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the request's arrival to the departure of its response; None without one."""
        return None if self.answered is None else self.answered - self.came

    @property
    def response_bytes(self) -> int:
        """Return the length of the response; 0 without one."""
        return 0 if self.taken.seen.answer is None else complete_size(self.taken.seen.answer)

    @cached_property
    def request(self) -> Message:
        frame = self._kept(self.taken.request)
        if frame.form is not Form.SKETCH:
            return decode_request(frame.data, trailing=True)
        api, version, header, _ = read_request_header(frame.data)
        return Message(api, version, header, decode_sketch(frame.data, self.key, version, "request", sketched=True))

    @property
    def response(self) -> Message | None:
        return None if self.taken.seen.answer is None else self._response

    @cached_property
    def _response(self) -> Message:
        assert self.taken.seen.answer is not None, "`response` checks it"
        frame = self._kept(self.taken.seen.answer)
        if frame.form is not Form.SKETCH:
            return decode_response(frame.data, self.key, self.version, trailing=True)  # as clients do
        api = schema.load(self.key)
        header, _ = read_response_header(frame.data, api, self.version)
        body = decode_sketch(frame.data, self.key, self.version, "response", sketched=True)
        return Message(api, self.version, header, body)

    def _kept(self, frame: Frame) -> Frame:
        """Return the frame if all of its fields are kept. Raises DecodeError."""
        if frame.form is Form.HEAD:
            reason = f"of {complete_size(frame)} bytes only the beginning is kept, since the tape was full"
            raise DecodeError(reason, api=self.api, version=self.version)
        return frame

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities of the request, topics by name if their names are known."""
        return self.named(entities(self.request))

    @property
    def topics(self) -> list[str]:
        """Return the names of the topics of the request, each once."""
        return list(dict.fromkeys(one.topic for one in self.entities if one.topic is not None))

    @property
    def errors(self) -> list[str]:
        """Return the names of the errors in the response, each once. Unknown codes appear as numbers. Empty: no error,
        or no response."""
        return [error_codes.error_name(code) for code in dict.fromkeys(self.codes().values()) if code]

    @property
    def records(self) -> list[Record]:
        """Return the records of a Produce request or of a Fetch response: keys, values, headers, timestamps. Raises
        DecodeError when they are not kept any more."""
        if self.key == PRODUCE:
            fields = [part["records"] for topic in self.request.body["topic_data"] for part in topic["partition_data"]]
        elif self.key == FETCH and self.response is not None:
            fields = [part["records"] for topic in self.response.body["responses"] for part in topic["partitions"]]
        else:
            return []
        if any(isinstance(field, RecordsDigest) for field in fields):
            reason = "its records are not kept any more, since the tape was full"
            raise DecodeError(reason, api=self.api, version=self.version)
        return [record for field in fields for entry in entries_of(field) for record in decode(entry)]

    def codes(self) -> Mapping[Entity, int]:
        """Return the error codes by entity; empty without a response."""
        return {} if self.response is None else errors_of(self.request, self.response, self.entities)

    def named(self, found: Iterable[Entity]) -> tuple[Entity, ...]:
        """Return the entities, with known topic names instead of ids."""
        return tuple(
            replace(one, topic=self._topics.topic_of(one.topic_id)) if one.topic is None and one.topic_id else one
            for one in found
        )

    def __str__(self) -> str:
        """Return a line such as `Produce 10 (orders) → NOT_LEADER_OR_FOLLOWER`."""
        try:
            topics, errors = ", ".join(self.topics), ", ".join(self.errors)
        except DecodeError as error:
            topics, errors = "", self._refusal() or f"cannot be read ({str(error)[:MOST_REASON]})"
        outcome = "unanswered" if self.answered is None else errors
        return f"{self.api} {self.version}{topics and f' ({topics})'}{outcome and f' → {outcome}'}"

    def _refusal(self) -> str:
        """Return the error of an ApiVersions response to an unsupported version; empty for other responses.

        Such a response has the layout of version 0 (KIP-511). Clients read the error and retry with that version."""
        answer = self.taken.seen.answer
        code = 0 if answer is None else int.from_bytes(answer.data[4:6], "big", signed=True)
        return error_codes.error_name(code) if self.key == API_VERSIONS and code else ""

    def __repr__(self) -> str:
        return f"<{self}>" if self.seconds is None else f"<{self}, {self.seconds * 1000:.1f} ms>"


class SeenExchanges:
    """Exchanges of a tape, oldest first. Frames that are not requests (bare SASL tokens, say) are left out.

    `forgotten`: number of earlier exchanges that are no longer on the tape. `missing`: sentences about bytes that could
    not be split into frames, by connection and direction.
    """

    def __init__(
        self, taken: Sequence[TapedExchange], topics: Topics, forgotten: int = 0,
        cut: Mapping[tuple[int, str], int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.topics, self.forgotten = topics, forgotten
        self.missing = {
            (number, what): f"connection {number}: a {what} says that it has {size} bytes, and what came from there on "
            "cannot be told apart: it is not among the exchanges"
            for (number, what), size in cut.items()
        }
        self.all = list(self._read(taken))

    def _read(self, taken: Iterable[TapedExchange]) -> Iterator[SeenExchange]:
        sessions: dict[int, FetchSessions] = {}
        for one in taken:
            if one.read is None and one.seen.key in schema.paths():
                one.read = SeenExchange(one, self.topics)
            if one.read is None:
                continue
            exchange: SeenExchange = one.read
            with suppress(DecodeError):  # found again when it is selected
                if exchange.key == METADATA:
                    self.topics.learn(exchange.response)
                elif exchange.key == FETCH:
                    self._session(exchange, sessions.setdefault(exchange.connection, FetchSessions(Counters())))
            yield exchange

    def _session(self, exchange: SeenExchange, sessions: FetchSessions) -> None:
        """Give a Fetch that continues a fetch session all partitions of the session as entities."""
        session = sessions.request(exchange.request)
        known = {key_of(one): one for one in entities(exchange.request)}
        if isinstance(session, PartitionSession):
            asked = session.asked
            known = {
                key: known.get(key) or unlisted(key, offset=asked[key].get("fetch_offset")) for key in (*asked, *known)
            }
        exchange.entities = exchange.named(known.values())
        if exchange.response is not None and isinstance(session, PartitionSession):
            error, number = exchange.response.body["error_code"], exchange.response.body["session_id"]
            if error in (0, NOT_FOUND) or not session.number:  # others may come from rules; the session continues
                sessions.response(session, error, number)

    def where(self, yes: FrameMatch, no: FrameMatch | None = None) -> list[SeenExchange]:
        """Return the exchanges that `yes` selects and `no` does not exclude."""
        return [one for one in self.all if yes.about_frame(one.key, one.version) and self.matches(one, yes, no)]

    def matches(self, one: SeenExchange, yes: FrameMatch, no: FrameMatch | None) -> bool:
        """Return True if the selectors choose an exchange of a selected API. A request that cannot be read matches
        nothing."""
        connection = one.taken.who.connection
        try:
            found = one.entities
        except DecodeError:
            return False
        if not yes.holds(connection.facts):
            return False
        identity = connection.session.identity
        view = rules_exchange.ConnectionView(connection.facts, one.connection, self.topics, identity)
        frame = rules_exchange.Exchange(
            view, schema.load(one.key), one.version, 0, one.client_id, one.request_bytes, one.came
        )
        if one.key == PRODUCE:
            frame.acks = one.request.body["acks"]
        if not yes.holds_frame(frame):
            return False
        if no is not None and not (no.about_frame(one.key, one.version) and no.holds(connection.facts)
                                   and no.holds_frame(frame)):  # fmt: skip
            no = None
        return any(
            self.holds(one, yes, entity) and not (no is not None and self.holds(one, no, entity)) for entity in found
        )

    def holds(self, one: SeenExchange, match: FrameMatch, entity: Entity) -> bool:
        """Return True if the selectors about entities, records and errors choose this entity."""
        if not match.holds_entity(entity):
            return False
        try:
            if match.records is not None and not self.has_record(one, match.records, entity):
                return False
            return not match.sees_error or match.holds_error(one.codes().get(entity, 0))
        except DecodeError:
            return False

    @staticmethod
    def has_record(one: SeenExchange, condition: RecordCondition, entity: Entity) -> bool:
        """Return True if a kept record of this partition matches."""
        message = one.request if one.key == PRODUCE else one.response
        places = () if message is None else partitions_among(message, (entity,))
        fields = [place.records for _, place in places]
        return any(
            any_record(data, condition, time() * 1000, RecordBudget())
            for data in fields
            if data and not isinstance(data, RecordsDigest)
        )
