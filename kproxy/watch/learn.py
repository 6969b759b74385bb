"""Makes Asks and Answers (see `hot.py`) of whole frames, and finds the one that a frame is like.

Strategy. What is learnt is found again by the bytes that stay, in one dict for each place where record batches stood.
Learning reads a frame in full; where it fails it is tried ever more seldom, so that frames of several partitions do not
pay for it each time. What was learnt is bounded, and forgotten as a whole when there is too much.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire import layout
from kproxy.wire.head import body_start
from kproxy.wire.headers import header_version
from kproxy.wire.primitives import Buffer, read_uvarint
from kproxy.wire.sketch import RecordsDigest, decode_sketch
from kproxy.wire.walk import walk

from .credentials import REQUEST, RESPONSE
from .error_places import error_at, place
from .hot import BATCH, EXACT, PLAIN, PRODUCED, ROWS, Answer, Answers, Ask, Place, asked_form, read_form
from .rows import topic_of
from .seen import Depth
from .summary import LONGEST
from .wanted import CONTROLLED_SHUTDOWN, FETCH, PRODUCE, SASL_HANDSHAKE, Wanted

MOST_LEARNT = 200
"""Asks of one API, and Answers of one Ask. A producer of more partitions on one connection is rare."""
PATIENCE = 16
"""Failures after which learning is tried once in so many frames only."""
RECORDS_ASKED = frozenset(("topic_data[].partition_data[].records",))
MARK = "responses[].partitions[].high_watermark"
RECORDS_READ = frozenset((MARK, "responses[].partitions[].records"))
BASE = frozenset(("responses[].partition_responses[].base_offset",))
ACKS = frozenset(("acks",))
MAGIC_AT, CONTROL, ATTRIBUTES = 16, 0x20, Struct(">h")
ATTRIBUTES_AT, PRODUCER_AT, PRODUCER = 21, 43, Struct(">q")


def worth_trying(what: Any) -> bool:
    """Whether to learn, after so many failures in a row."""
    what.misses += 1
    return what.misses <= PATIENCE or not what.misses % PATIENCE


class Asks:
    """Requests of one API and version."""

    __slots__ = ("code", "known", "lengths", "misses", "places", "rows", "usable", "wanted")

    def __init__(self, code: int, wanted: Wanted) -> None:
        self.code, self.wanted = code, wanted
        self.usable = wanted.depth <= Depth.ROWS and wanted.key not in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN)
        self.usable &= wanted.key != PRODUCE or wanted.acks is not None
        self.rows = wanted.key == PRODUCE and wanted.depths[0] >= Depth.SKETCH
        self.known: dict[Any, Ask] = {}
        self.lengths: list[int] = []
        self.places: dict[Place, Struct] = {}
        self.misses = 0

    def find(self, buf: Buffer, pos: int, size: int) -> Ask | None:
        """The Ask of the whole frame at `pos`, known or learnt. None: it has to be read."""
        if not self.usable:
            return None
        found: Ask | None
        if self.rows:
            found = self.known_batch(buf, pos, size)
        elif self.wanted.key == PRODUCE:
            keys = (bytes(buf[pos + 12 : pos + 12 + length]) for length in self.lengths)
            found = next((self.known[key] for key in keys if key in self.known), None)
        else:
            return self.plain(buf, pos, size)
        if found is None and worth_trying(self):
            found = self.learn(bytes(buf[pos + 4 : pos + 4 + size]))
        if found is not None:
            self.misses = 0
        return found

    def plain(self, buf: Buffer, pos: int, size: int) -> Ask | None:
        """Nothing but the client id counts."""
        key = b""
        if self.wanted.counted:
            length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
            if length > size - 10:
                return None
            key = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
        found = self.known.get(key)
        if found is None:
            self.make_room()
            found = self.known[key] = Ask(self.wanted, self.code, key, client_of(key))
        return found

    def known_batch(self, buf: Buffer, pos: int, size: int) -> Ask | None:
        for where, form in self.places.items():
            if size + 4 < form.size:
                continue
            _, _, _, same, length, magic, attributes, producer, _ = form.unpack_from(buf, pos)
            if size == length + where.overhead and magic == 2:
                found = self.known.get((where, same, attributes, producer))
                if found is not None:
                    return found
        return None

    def of_rows(self, client: bytes, acks: int) -> Ask:
        """The Ask of requests that are read row by row."""
        found = self.known.get((client, acks))
        if found is None:
            self.make_room()
            found = self.known[client, acks] = Ask(self.wanted, self.code, b"", client_of(client))
            found.kind, found.acks = ROWS, acks
        return found

    def make_room(self) -> None:
        if len(self.known) >= MOST_LEARNT:
            self.known.clear()
            self.lengths.clear()
            self.places.clear()

    def learn(self, frame: bytes) -> Ask | None:
        """Of a Produce request."""
        version = self.wanted.version
        try:
            body = decode_sketch(frame, PRODUCE, version, REQUEST)
        except DecodeError:
            return None
        client = client_of(frame[8 : 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)])
        if not self.rows:
            (_, _, end) = spans(frame, PRODUCE, version, REQUEST, ACKS)[0]
            ask = Ask(self.wanted, self.code, frame[8:end], client)
            ask.acks = body["acks"]
            self.make_room()
            self.known[ask.prefix] = ask
            self.lengths.append(len(ask.prefix))
        else:
            topics = list(body["topic_data"] or ())
            if len(topics) != 1 or len(topics[0]["partition_data"] or ()) != 1:
                return None
            made = self.of_batch(frame, topics[0], body["acks"], client)
            if made is None:
                return None
            ask = made
        if not ask.acks:
            key = self.wanted.key, version, client, None, 0
            ask.silent = Answer(ask, PRODUCED, b"", key, part_key(ask) if self.rows else None)
        return ask

    def of_batch(self, frame: bytes, topic: dict[str, Any], acks: int, client: str | None) -> Ask | None:
        part = topic["partition_data"][0]
        where, name = batch_place(frame, self.wanted.version, REQUEST, part["records"]), topic_of(topic, "name")
        if where is None or len(name) > LONGEST:
            return None
        ask = Ask(self.wanted, self.code, frame[8 : where.before], client)
        ask.acks = acks
        batch = where.before + where.width
        (attributes,) = ATTRIBUTES.unpack_from(frame, batch + ATTRIBUTES_AT)
        (producer,) = PRODUCER.unpack_from(frame, batch + PRODUCER_AT)
        ask.of_batch(where, attributes, producer)
        ask.part = name, part["index"], part["records"].codec, producer >= 0
        self.make_room()
        self.known[where, ask.prefix, attributes, producer] = ask
        self.places[where] = asked_form(where)
        return ask


def client_of(field: bytes) -> str | None:
    """The client id of a header, its length in front."""
    return str(field[2:], "utf-8", "replace") if len(field) >= 2 and field[0] < 0x80 else None


def spans(frame: bytes, key: int, version: int, direction: str, paths: frozenset[str]) -> list[tuple[int, int, int]]:
    """Where the values at these paths stand in a frame that can be read."""
    hits: list[tuple[int, int, int]] = []
    found = walk(key, version, direction, paths)
    start = body_start(frame, 0, len(frame), header_version(key, version, direction), direction) or 0
    found.run(frame, start, len(frame), hits)
    return [hit for hit in hits if found.marks[hit[0]].what == "value"]


def batch_place(frame: bytes, version: int, direction: str, records: RecordsDigest | None) -> Place | None:
    """Where the only batch of a frame stands; None if there is not just one whole batch of magic 2 that counts."""
    if records is None or records.batches != 1 or records.control or not records.records or records.records < 0:
        return None
    key, paths = (PRODUCE, RECORDS_ASKED) if direction == REQUEST else (FETCH, RECORDS_READ)
    hits = spans(frame, key, version, direction, paths)
    start, end = hits[-1][1:]
    flexible = layout.body(key, version, direction).flexible
    width = read_uvarint(frame, start)[1] - start if flexible else 4
    behind = 3 if flexible else 0
    if end - start - width != records.size or frame[end:] != bytes(behind) or frame[start + width + MAGIC_AT] != 2:
        return None
    if int.from_bytes(frame[start + width + 8 : start + width + 12], "big") + 12 != records.size:
        return None
    prefix = middle = 0
    if direction == RESPONSE:
        prefix = hits[0][1]
        partition = layout.body(key, version, direction).everywhere()
        offsets = sum(slot.name in ("last_stable_offset", "log_start_offset") for slot in partition)
        middle = start - prefix - 8 - 8 * offsets
    found = Place(start, width, behind, flexible, prefix, middle)
    return found if found.sizes[0] <= len(frame) <= found.sizes[1] else None


def part_key(ask: Ask) -> Any:
    assert ask.part is not None
    topic, partition, codec, idempotent = ask.part
    return ask.wanted.key, ask.wanted.version, ask.client_id, topic, partition, 0, ask.acks, codec, idempotent


# ---- responses


def find_answer(ask: Ask, buf: Buffer, pos: int, size: int) -> Answer | None:
    """The Answer of the whole response at `pos`, known or learnt. None: it has to be read."""
    if ask.kind == ROWS:
        return None
    answers = ask.answers
    found = known_answer(answers, buf, pos, size)
    if found is None and worth_trying(answers):
        found = learn_answer(ask, bytes(buf[pos + 4 : pos + 4 + size]))
    if found is not None:
        answers.misses = 0
    return found


def known_answer(answers: Answers, buf: Buffer, pos: int, size: int) -> Answer | None:
    for length in answers.lengths:
        found = answers.known.get(bytes(buf[pos + 8 : pos + 8 + length]))
        if found is not None and found.size in (0, size):
            return found
    for where, form in answers.places.items():
        if size + 4 < form.size:
            continue
        _, _, same, _, middle, _, length, magic, attributes, _, _ = form.unpack_from(buf, pos)
        if size == length + where.overhead and magic == 2:
            found = answers.known.get((where, same, attributes, middle))
            if found is not None:
                return found
    return None


def learn_answer(ask: Ask, frame: bytes) -> Answer | None:
    wanted = ask.wanted
    where = place(wanted.key, wanted.version) if wanted.counted else None
    if where is not None and error_at(wanted.key, wanted.version, bytes(4) + frame[:20]) != 0:
        return None
    if wanted.depths[1] < Depth.SKETCH:
        prefix = frame[4 : where[0] - 2] if where is not None else b""
        return remember(ask, Answer(ask, PLAIN, prefix, api_key(ask)), 0)
    try:
        body = decode_sketch(frame, wanted.key, wanted.version, RESPONSE)
    except DecodeError:
        return None
    return learn_produced(ask, frame, body) if wanted.key == PRODUCE else learn_read(ask, frame, body)


def api_key(ask: Ask) -> Any:
    return ask.wanted.key, ask.wanted.version, ask.client_id, None, ask.acks


def remember(ask: Ask, answer: Answer, size: int, key: Any = None) -> Answer:
    """`size`: what the frame has to have; 0: any."""
    answers = ask.answers
    if len(answers.known) >= MOST_LEARNT:
        answers.known.clear()
        answers.lengths.clear()
        answers.places.clear()
    answer.size = size
    answers.known[key or answer.prefix] = answer
    if key is None and len(answer.prefix) not in answers.lengths:
        answers.lengths.append(len(answer.prefix))
    return answer


def learn_produced(ask: Ask, frame: bytes, body: dict[str, Any]) -> Answer | None:
    topics = list(body["responses"] or ())
    parts = [(topic_of(topic, "name"), part) for topic in topics for part in topic["partition_responses"] or ()]
    if ask.part is None or len(parts) != 1 or (parts[0][0], parts[0][1]["index"]) != ask.part[:2]:
        return None
    if parts[0][1]["error_code"] or parts[0][1]["base_offset"] < 0 or len(topics) != 1:
        return None
    start = spans(frame, PRODUCE, ask.wanted.version, RESPONSE, BASE)[0][1]
    answer = Answer(ask, PRODUCED, frame[4:start], api_key(ask), part_key(ask))
    return remember(ask, answer, len(frame))


def learn_read(ask: Ask, frame: bytes, body: dict[str, Any]) -> Answer | None:
    topics = list(body["responses"] or ())
    if not topics:
        return remember(ask, Answer(ask, EXACT, frame[4:], api_key(ask)), len(frame))
    if ask.wanted.key != FETCH or len(topics) != 1 or len(topics[0]["partitions"] or ()) != 1:
        return None
    part, name = topics[0]["partitions"][0], topic_of(topics[0], "topic")
    if part["error_code"] or part["high_watermark"] < 0 or len(name) > LONGEST:
        return None
    where = batch_place(frame, ask.wanted.version, RESPONSE, part["records"])
    if where is None:
        return None
    (attributes,) = ATTRIBUTES.unpack_from(frame, where.before + where.width + ATTRIBUTES_AT)
    codec = part["records"].codec
    key = FETCH, ask.wanted.version, ask.client_id, name, part["partition_index"], 0, None, codec, None
    answer = Answer(ask, BATCH, frame[4 : where.prefix], api_key(ask), key)
    middle = frame[where.before - where.middle : where.before]
    answer.of_batch(where, attributes, middle)
    ask.answers.places[where] = read_form(where)
    return remember(ask, answer, 0, (where, answer.prefix, attributes, middle))
