"""Redaction of captured exchanges: removes users' data, and optionally replaces names by pseudonyms.

The protocol's table gives the places: fields of type `records`, and fields whose kind is a client, a user or an
address. They are edited in the frame, so lengths, counts and all other fields stay correct. A frame that is incomplete
or unreadable is cut before the first such place: a redacted frame contains no unchecked bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from kproxy.base.cooperative import yielding
from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import trace
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import known_body_start
from kproxy.protocol.primitives import read_uvarint, write_uvarint
from kproxy.protocol.records import Batch, Cut, Entry, Record, decode, entries, rewrite
from kproxy.protocol.records.entry import BATCH, CRC_AT, LEGACY, MAGIC_AT, TIMESTAMP
from kproxy.protocol.scan.walk import read_string, walk, write_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import CONTROLLED_SHUTDOWN
from kproxy.protocol.table.layout import Slot
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import take_out

from .captured_connection import CapturedConnection

NETWORKS = {4: IPv4Address("10.0.0.0"), 6: IPv6Address("fd00::")}
"""Addresses are numbered from here on: private networks."""
ANYBODY = ("", "*", "ANONYMOUS")
"""Names that do not identify a client or user."""


class Pseudonyms:
    """Pseudonyms of one capture. The names of topics, groups and transactions stay."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self.counts: dict[str, int] = {}

    def of(self, kind: str, text: str) -> str:
        """Return the pseudonym for the value of a field of this kind (see `NAMED`)."""
        return NAMED[kind](self, text)

    def client(self, text: str) -> str:
        return self._numbered("client", text)

    def member(self, text: str) -> str:
        """Return the pseudonym of a member id, which begins with a client id."""
        return self._numbered("member", text)

    def principal(self, text: str) -> str:
        """Return the pseudonym of `User:alice`, `alice` or a certificate's subject: the type before the colon stays."""
        kind, colon, name = text.partition(":")
        if not colon:
            return self._numbered("user", text)
        return f"{kind}:{self._numbered('user', name)}"

    def entity(self, text: str) -> str:
        """Return the pseudonym of a quota's entity: a client id, a user or an address."""
        for kind in ("client", "user"):
            if (kind, text) in self.known:
                return self.known[kind, text]
        return self.host(text) if _address(text) else self._numbered("entity", text)

    def host(self, text: str) -> str:
        """Return the pseudonym of a host's name or an address, perhaps with a slash in front, as brokers show it."""
        address = text.removeprefix("/")
        if _address(address) is not None:
            return f"{text[: len(text) - len(address)]}{self.address(address)}"
        return self._numbered("host", text)

    def host_port(self, text: str) -> str:
        """Return the pseudonym of `host:port`; without a port, such as a Unix socket, it is taken for a host."""
        host, colon, port = text.rpartition(":")
        return f"{self.host(host.strip('[]'))}{colon}{port}" if port.isdecimal() else self.host(text)

    def address(self, text: str) -> str:
        """Return the pseudonym of an IP address; other text is taken for a host's name."""
        parsed = _address(text)
        if parsed is None:
            return self._numbered("host", text)
        key = ("address", str(parsed))
        if key not in self.known:
            self.known[key] = str(NETWORKS[parsed.version] + self._next(f"address{parsed.version}"))
        return self.known[key]

    def _numbered(self, kind: str, text: str) -> str:
        if text in ANYBODY:
            return text
        key = (kind, text)
        if key not in self.known:
            self.known[key] = f"{kind}-{self._next(kind)}"
        return self.known[key]

    def _next(self, kind: str) -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


NAMED: dict[str, Callable[[Pseudonyms, str], str]] = {
    "client_id": Pseudonyms.client,
    "member_id": Pseudonyms.member,
    "principal": Pseudonyms.principal,
    "quota_entity_name": Pseudonyms.entity,
    "client_address": Pseudonyms.host,
    "host": Pseudonyms.host,
    "acl_host": Pseudonyms.host,
    "app_host": Pseudonyms.host,
}
"""Kinds of fields, as the protocol's table has them, with names in them."""


CLIENT_ID_AT = 8
"""Offset of the client id in a request's header, in every version that has one."""
FIXED = {"request": 8, "response": 4}
"""Bytes that every header begins with."""
FILLER = b"x"


@dataclass(slots=True)
class RedactionCounts:
    """Counts of the records and batches that were redacted in one capture."""

    records: int = 0
    batches: int = 0
    recompressed: int = 0
    bytes_before: int = 0
    """Bytes of the batches that were compressed again, before that."""
    bytes_after: int = 0
    unreadable: int = 0
    """Entries that could not be read, and were filled as a whole."""


@dataclass(slots=True)
class Redaction:
    """Redaction of one capture, with counts. `names`: None to leave them."""

    names: Pseudonyms | None = None
    records: RedactionCounts = field(default_factory=RedactionCounts)
    exchanges: int = 0
    cut: int = 0
    """Frames that were cut, since they were not whole or could not be read."""

    def exchange(self, seen: ObservedExchange) -> ObservedExchange:
        self.exchanges += 1
        request, response = seen.request, seen.response
        return replace(
            seen,
            who=self.who(seen),
            client_id=self.client(seen.client_id),
            request=None if request is None else self.frame(seen, request, "request"),
            response=None if response is None else self.frame(seen, response, "response"),
            _bodies=[None, None],
        )

    def who(self, seen: ObservedExchange) -> CapturedConnection:
        who = seen.who
        assert isinstance(who, CapturedConnection), "the reader made it"
        names = self.names
        if names is None:
            return who
        return replace(
            who,
            client_address=names.address(who.client_address),
            server_address=names.address(who.server_address),
            principal=None if who.principal is None else names.principal(who.principal),
            broker=None if who.broker is None else names.host_port(who.broker),
        )

    def client(self, client_id: str | None) -> str | None:
        return client_id if client_id is None or self.names is None else self.names.client(client_id)

    def frame(self, seen: ObservedExchange, frame: Frame, direction: str) -> Frame:
        """Return a request or response as it may be shown. Its size changes with the edits."""
        if frame.form is Form.NONE:
            return frame
        if not frame.withheld:  # defence in depth: the edits have left nothing to remove
            data, why = take_out(frame.data, seen.key, seen.version, direction)
            if why:
                form = frame.form if len(data) == len(frame.data) else Form.HEAD
                frame = replace(frame, data=data, form=form, withheld=why)
        start = header_of(frame.data, seen.key, seen.version, direction)
        if start is None:  # the start of the body is unknown, so its fields are, too
            self.cut += 1
            return replace(frame, data=frame.data[: FIXED[direction]], form=Form.HEAD)
        body = self._body(seen, frame, direction, start)
        whole = frame.form is Form.WHOLE and body is not None
        if body is None:
            body = frame.data[start : self._safe_end(seen, frame, direction, start)]
        header = frame.data[:start]
        if direction == "request" and self.names is not None:
            header = self._header(seen, header)
        data = header + body
        size = len(data) + 4 if whole else frame.size + len(header) - start
        if whole or len(data) + 4 == size:
            return replace(frame, size=size, data=data, form=Form.WHOLE)
        self.cut += len(data) < len(frame.data)
        return replace(frame, size=size, data=data, form=Form.HEAD)

    def _body(self, seen: ObservedExchange, frame: Frame, direction: str, start: int) -> bytes | None:
        """Return the edited body; None if it has to be cut."""
        try:
            paths = redacted_paths(seen.key, seen.version, direction, self.names is not None)
        except KeyError:
            return None
        if not paths:
            return frame.data[start:]
        if frame.form is not Form.WHOLE:
            return None
        data, hits = frame.data, []  # type: tuple[bytes, list[tuple[int, int, int]]]
        program = walk(seen.key, seen.version, direction, paths)
        try:
            after = program.run(data, start, len(data), hits)
        except DecodeError:
            return None
        edits = Edits(data, start, after, program, hits)
        for mark, begin, end in yielding(hits):
            slot = program.marks[mark].slot
            if program.marks[mark].what == "value" and slot is not None and is_wanted(slot, names=True):
                new = self._value(data, begin, end, slot)
                if new is not None:
                    edits.replace(begin, end, new)
        return b"".join(edits.pieces()) + bytes(len(data) - after)

    def _value(self, data: bytes, start: int, end: int, slot: Slot) -> bytes | None:
        """Return the encoded replacement of the value; None to leave it."""
        if slot.type == "records":
            return self._records(data, start, end, slot.compact)
        assert self.names is not None, "only then it is a place"
        assert slot.kind is not None, "by its kind it is one"
        text = read_string(data, start, end, slot.compact)
        if not text:
            return None
        return write_string(self.names.of(slot.kind, text.decode("utf-8", "replace")).encode(), slot.compact)

    def _records(self, data: bytes, start: int, end: int, compact: bool) -> bytes | None:
        if compact:
            length, begin = read_uvarint(data, start)
            if not length:
                return None
        else:
            begin = start + 4
            if data[start] > 127:  # -1: null
                return None
        redacted = redact_records(memoryview(data)[begin:end], self.records)
        return (write_uvarint(len(redacted) + 1) if compact else len(redacted).to_bytes(4, "big")) + redacted

    def _safe_end(self, seen: ObservedExchange, frame: Frame, direction: str, start: int) -> int:
        """Return the offset at which to cut a frame that does not support edits.

        This is before the first field to be redacted, and before the first unreadable byte.
        """
        end = start
        try:
            struct = layout.body(seen.key, seen.version, direction)
            for step in trace(struct, frame.data, start):
                slot = step.slot
                if slot is not None and step.what == "value" and is_wanted(slot, names=self.names is not None):
                    return end
                end = step.end
        except (DecodeError, KeyError):
            pass
        return end

    def _header(self, seen: ObservedExchange, header: bytes) -> bytes:
        assert self.names is not None
        at = CLIENT_ID_AT
        length = int.from_bytes(header[at : at + 2], "big", signed=True)
        if (seen.key, seen.version) == (CONTROLLED_SHUTDOWN, 0) or length <= 0:
            return header
        name = self.names.client(header[at + 2 : at + 2 + length].decode("utf-8", "replace")).encode()
        return header[:at] + len(name).to_bytes(2, "big") + name + header[at + 2 + length :]


def header_of(data: bytes, key: int, version: int, direction: str) -> int | None:
    """Return the offset at which the header ends; None if unknown.

    An API that is not known is taken to have the header that most have.
    """
    form = header_version(key, version, direction) if key in schema.paths() else int(direction == "request")
    return known_body_start(data, 0, len(data), form, direction)


def is_wanted(slot: Slot, *, names: bool) -> bool:
    """Return True if a field holds what users wrote, or names."""
    return slot.type == "records" or (names and slot.type == "string" and slot.kind in NAMED)


@cache
def redacted_paths(key: int, version: int, direction: str, names: bool) -> frozenset[str]:
    """Return the paths of the fields to be redacted. Raises KeyError for an API or version that the table lacks."""
    return frozenset(_paths(key, version, direction, names))


def _paths(key: int, version: int, direction: str, names: bool) -> Iterator[str]:
    for slot in layout.body(key, version, direction).everywhere():
        if is_wanted(slot, names=names):
            yield slot.path


def redact_records(data: memoryview, done: RedactionCounts) -> bytes:
    """Return the redacted contents of a `records` field. Counts what it does in `done`."""
    pieces: list[bytes] = []
    position = 0
    try:
        for entry in entries(data):
            pieces.append(_entry(entry, done))
            position += len(entry.raw)
    except RecordsError:
        done.unreadable += 1
        pieces.append(FILLER * (len(data) - position))
    return b"".join(pieces)


def _entry(entry: Entry, done: RedactionCounts) -> bytes:
    if isinstance(entry, Cut):
        return _filled(entry.raw)
    if isinstance(entry, Batch) and entry.is_control:  # the broker's, and nothing of users in it
        return bytes(entry.raw)
    try:
        records = [blank(record) for record in decode(entry, stored=True)]
        rewritten = rewrite(entry, records)
    except RecordsError:
        done.unreadable += 1
        return _filled(entry.raw)
    done.batches += 1
    done.records += len(records)
    if entry.codec:
        done.recompressed += 1
        done.bytes_before += len(entry.raw)
        done.bytes_after += len(rewritten)
    return rewritten


def blank(record: Record) -> Record:
    """Return the record with fillers for the users' data; null stays null."""
    headers = tuple((FILLER.decode() * _length(name), _fill(value)) for name, value in record.headers)
    return Record(record.offset, record.timestamp, _fill(record.key), _fill(record.value), headers, record.attributes)


def _length(name: str) -> int:
    return len(name.encode("utf-8", "surrogateescape"))


def _fill(data: bytes | None) -> bytes | None:
    return None if data is None else FILLER * len(data)


def _filled(raw: memoryview) -> bytes:
    """Return the entry's header without its checksum, followed by fillers.

    If the entry is too short to show its format, return fillers only.
    """
    if len(raw) <= MAGIC_AT:
        return FILLER * len(raw)
    magic = raw[MAGIC_AT]
    header = BATCH.size if magic == 2 else LEGACY.size + (TIMESTAMP.size if magic == 1 else 0)
    kept = bytearray(raw[:header])
    at = CRC_AT[2 if magic == 2 else 0]
    kept[at : at + 4] = bytes(len(kept[at : at + 4]))  # the checksum of the originals would confirm guesses of them
    return bytes(kept) + FILLER * (len(raw) - len(kept))
