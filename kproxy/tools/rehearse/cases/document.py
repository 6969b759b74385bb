"""Reading of a `*.test.yaml` file and its rules into cases, or into a list of all errors with their places.

A `Reader` converts bodies into values of a message. With `expected` it reads expectations, where a number may be a
range such as `">0"` or `900-1100`. Bytes are text, `{hex: …}` or `{zeros: 10kB}`. Records are a list, or a mapping
with `batch`:

    records: [a, {key: k, value: b, headers: {h: x}}]
    records: {batch: [a, b], compression: zstd, producer_id: 7, producer_epoch: 0, base_sequence: 0}
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kproxy.base.errors import DocumentError, EncodeError, RecordsError
from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Batch, LegacyEntry, Producer, Record, check_crc, decode, encode_batch, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import FIXED, INTEGERS, Slot, Struct
from kproxy.rules.document.read import ENDINGS, Document, check_documents, read_document
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.select.selected import error_number, topic_id
from kproxy.rules.values.model import Model, found, unknown, validate
from kproxy.rules.values.quantities import Range, parse_range, parse_size
from kproxy.rules.values.source import Source, Where, nearest, to_value
from kproxy.tools.rehearse.cases.model import Case, CaseFile, CaseStep, ClientConnection, SentAnswer, SentRequest

TIMESTAMP = 1_700_000_000_000
"""Timestamp, in milliseconds, of records for which the test does not give one."""
RECORD_KEYS = ("offset", "timestamp", "key", "value", "headers")

ReadBytes = Callable[[Any, Where], bytes | None]


class Written(Model):
    """A batch of records."""

    batch: list[Any] = Field(description="records: the value alone, or {key, value, headers, offset, timestamp}")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = Field(default=None, description="codec")
    producer_id: int | None = Field(default=None, description="id of an idempotent producer")
    producer_epoch: int | None = Field(default=None, description="its epoch")
    base_sequence: int | None = Field(default=None, description="its sequence number of the first record")
    transactional: bool | None = Field(default=None, description="whether the batch is part of a transaction")
    crc: Literal["good", "bad"] | None = Field(default=None, description="whether the checksum fits (expected only)")


@dataclass(frozen=True)
class RecordsRead:
    """A batch that a case sends or expects. `records` hold only the fields that were given."""

    about: Written
    records: tuple[Mapping[str, Any], ...]

    def encoded(self, source: Source, at: Where) -> bytes:
        """Return one batch of magic 2 as bytes; offsets from 0 on unless given."""
        about = self.about
        if about.crc is not None:
            source.note((*at, "crc"), "the checksum of what is sent always fits; crc can be expected only", key=True)
        made = [
            Record(
                one.get("offset", index),
                one.get("timestamp", TIMESTAMP),
                one.get("key"),
                one.get("value"),
                tuple(one.get("headers", {}).items()),
            )
            for index, one in enumerate(self.records)
        ]
        numbers = {name: number for number, name in CODECS.items()}
        ids = [-1 if one is None else one for one in (about.producer_id, about.producer_epoch, about.base_sequence)]
        producer = Producer(ids[0], ids[1], ids[2], bool(about.transactional))
        try:
            return encode_batch(made, codec=numbers[about.compression or "none"], producer=producer)
        except RecordsError as error:
            source.note(at, str(error))
            return b""


def read_records(source: Source, raw: dict[Any, Any], at: Where, inside: Where, read: ReadBytes) -> RecordsRead:
    """Return the batch at path `at`, with its records at `inside`; errors are noted in the source."""
    about = validate(Written, raw, source, at)
    if about is None:
        return RecordsRead(Written(batch=[]), ())
    records = (_record(source, one, (*inside, index), read) for index, one in enumerate(about.batch))
    return RecordsRead(about, tuple(records))


def _record(source: Source, raw: Any, at: Where, read: ReadBytes) -> dict[str, Any]:
    if not isinstance(raw, dict) or set(raw) in ({"hex"}, {"zeros"}):
        return {"value": read(raw, at)}
    one: dict[str, Any] = {}
    for name, value in raw.items():
        where = (*at, name)
        if name not in RECORD_KEYS:
            source.note(where, unknown("key", name, RECORD_KEYS), key=True)
        elif name in ("key", "value"):
            one[name] = read(value, where)
        elif name == "headers":
            if isinstance(value, dict):
                one[name] = {str(key): read(inner, (*where, key)) for key, inner in value.items()}
            else:
                source.note(where, f"expected a mapping of headers, got {found(value)}")
        elif isinstance(value, int) and not isinstance(value, bool):
            one[name] = value
        else:
            source.note(where, f"expected a whole number, got {found(value)}")
    return one


def seen_in(data: bytes) -> dict[str, Any]:
    """Return the content of a records field in the words of a test: `batch`, `compression`, `crc` and so on. Raises
    RecordsError."""
    facts: dict[str, Any] = {"batch": [], "crc": "good"}
    for entry in entries(data):
        if isinstance(entry, Batch | LegacyEntry):
            facts["compression"] = CODECS.get(entry.codec, str(entry.codec))
            try:
                check_crc(entry)
            except RecordsError:
                facts["crc"] = "bad"
        if isinstance(entry, Batch):
            facts |= {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "base_sequence": entry.base_sequence,
                "transactional": entry.is_transactional,
            }
        for record in decode(entry):
            one = {name: getattr(record, name) for name in RECORD_KEYS}
            facts["batch"].append(one | {"headers": dict(record.headers)})
    return facts


TAGGED = "_tagged_fields"
FORMS = ("hex", "zeros")
MOST_ZEROS = 64 << 20
"""Largest number of bytes in `{zeros: …}`; a test holds several copies of each frame that it sends."""


class Reader:
    """Converter of the values in one source."""

    def __init__(self, source: Source, expected: bool = False) -> None:
        self.source, self.expected = source, expected

    def body(self, key: int, version: int, direction: str, raw: dict[Any, Any], at: Where) -> dict[str, Any]:
        """Return the fields of a body that are given. Each one that does not fit is noted and left out."""
        return self.fields(layout.body(key, version, direction), raw, at)

    def fields(self, of: Struct, raw: dict[Any, Any], at: Where) -> dict[str, Any]:
        slots = {slot.name: slot for slot in of.all_slots}
        values = {}
        for name, value in raw.items():
            where = (*at, name)
            if name == TAGGED and of.flexible:
                values[TAGGED] = self.tagged(value, where)
            elif name in slots:
                values[name] = self.value(slots[name], value, where)
            else:
                self.source.note(where, unknown("field", name, slots), key=True)
        return values

    def tagged(self, raw: Any, at: Where) -> list[tuple[int, bytes]]:
        """Return tagged fields that kproxy does not know, as pairs of a tag and its bytes."""
        pairs = []
        for index, pair in enumerate(raw if isinstance(raw, list) else [raw]):
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int):
                pairs.append((pair[0], self.octets(pair[1], (*at, index, 1)) or b""))
            else:
                self.source.note((*at, index), f"expected a tag and its bytes, [10000, {{hex: 00}}], {told(pair)}")
        return pairs

    def value(self, slot: Slot, raw: Any, at: Where) -> Any:
        if raw is None:
            if not slot.nullable:
                self.source.note(at, f"{slot.name} is never null here")
            return None
        if not slot.array:
            return self.one(slot, raw, at)
        if not isinstance(raw, list):
            self.source.note(at, f"expected a list for {slot.name}, {told(raw)}")
            return []
        return [self.one(slot, each, (*at, index)) for index, each in enumerate(raw)]

    def one(self, slot: Slot, raw: Any, at: Where) -> Any:
        if slot.struct is not None:
            if isinstance(raw, dict):
                return self.fields(slot.struct, raw, at)
            self.source.note(at, f"expected a mapping with fields of {slot.name}, {told(raw)}")
            return {}
        if slot.type == "records":
            return self.records(raw, at)
        if slot.type == "bytes":
            return self.octets(raw, at)
        if slot.type in INTEGERS:
            return self.integer(slot, raw, at)
        return self.scalar(slot, raw, at)

    def integer(self, slot: Slot, raw: Any, at: Where) -> int | Range:
        try:
            if isinstance(raw, int) and not isinstance(raw, bool):
                struct.pack(">" + FIXED[slot.type][0], raw)
                return raw
            if slot.kind == "error_code" and isinstance(raw, str) and raw.replace("_", "").isalpha():
                return error_number(raw)
            if self.expected and isinstance(raw, str):
                return parse_range(raw)
            self.source.note(at, f"expected a whole number for {slot.name}, {told(raw)}")
        except struct.error:
            self.source.note(at, f"{slot.name} is an {slot.type}, the number {raw} does not fit")
        except ValueError as error:
            self.source.note(at, str(error))
        return 0

    def scalar(self, slot: Slot, raw: Any, at: Where) -> Any:
        match slot.type:
            case "bool" if isinstance(raw, bool):
                return raw
            case "float64" if isinstance(raw, int | float) and not isinstance(raw, bool):
                return float(raw)
            case "string" if isinstance(raw, str):
                return raw
            case "uuid" if isinstance(raw, str):
                try:
                    return topic_id(raw)
                except ValueError as error:
                    self.source.note(at, str(error))
                    return slot.default()
        wanted = {"bool": "true or false", "float64": "a number", "string": "text", "uuid": "a UUID"}[slot.type]
        self.source.note(at, f"expected {wanted} for {slot.name}, {told(raw)}")
        return slot.default()

    def octets(self, raw: Any, at: Where) -> bytes | None:
        """Return bytes from text (as UTF-8), `{hex: "00ff"}` or `{zeros: 10kB}`; None for null."""
        if raw is None:
            return None
        if isinstance(raw, str):
            return raw.encode("utf-8", "surrogateescape")
        try:
            if isinstance(raw, dict) and list(raw) == ["hex"]:
                return bytes.fromhex(str(raw["hex"]))
            if isinstance(raw, dict) and list(raw) == ["zeros"]:
                size = parse_size(raw["zeros"])
                if isinstance(size, int) and 0 <= size <= MOST_ZEROS:
                    return bytes(size)
        except ValueError as error:
            self.source.note((*at, *raw), str(error))
            return b""
        self.source.note(at, f"expected text, {{hex: 00ff}} or {{zeros: 10kB}} of at most 64 MiB, {told(raw)}")
        return b""

    def records(self, raw: Any, at: Where) -> bytes | RecordsRead | None:
        """Return a records field that is given as bytes or as a batch: a list of records, or a mapping with `batch`."""
        read = None
        if isinstance(raw, list):
            read = read_records(self.source, {"batch": raw}, at, at, self.octets)
        elif isinstance(raw, dict) and "batch" in raw:
            read = read_records(self.source, raw, at, (*at, "batch"), self.octets)
        if read is not None:
            return read if self.expected else read.encoded(self.source, at)
        return self.octets(raw, at)


def told(raw: Any) -> str:
    return f"got {found(raw)}"


TEST = ".test"


@dataclass(frozen=True)
class Ready:
    """A valid case of a test file. `at` is its path in the source."""

    source: Source
    case: Case
    at: Where
    rules: tuple[Path, ...]
    connections: Mapping[str, ClientConnection]

    @property
    def name(self) -> str:
        return self.case.name

    def documents(self) -> list[Document]:
        """Read the rules again and return them. Raises DocumentError."""
        return [read_document(Source.open(path)) for path in self.rules]


def case_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files as given, and for folders all `*.test.yaml` below them, sorted, without hidden ones."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(
                one
                for one in path.rglob("*")
                if is_case_file(one) and not any(part.startswith(".") for part in one.relative_to(path).parts)
            )
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def is_case_file(path: Path) -> bool:
    """Return True if the path is named like a file of cases, such as `orders.test.yaml`."""
    return path.suffix in ENDINGS and Path(path.stem).suffix == TEST


def load_cases(file: Path) -> list[Ready]:
    """Return the cases of one file. Raises DocumentError with all errors in it and in its rules."""
    source = Source.open(file)
    model = _read(source)
    paths = _rule_paths(source, file, model)
    documents = [read_document(Source.open(path)) for path in paths if path.exists()]
    check_documents(documents, None)
    if model is not None:
        _check(source, model, documents)
    mistakes = [*source.lines(), *(line for document in documents for line in document.source.lines())]
    if mistakes or model is None:
        raise DocumentError(mistakes)
    return [
        Ready(source, case, ("tests", index), tuple(paths), _connections(model, case))
        for index, case in enumerate(model.tests)
    ]


def _read(source: Source) -> CaseFile | None:
    if not source.is_yaml:
        return None
    value = to_value(source)
    if not isinstance(value, dict):
        source.note((), f"expected a test file (mapping with tests:), got {found(value)}")
        return None
    return validate(CaseFile, value, source)


def _rule_paths(source: Source, file: Path, model: CaseFile | None) -> list[Path]:
    if model is None:
        return []
    if model.rules is None:
        path = file.with_name(Path(file.stem).stem + file.suffix)
        if not path.exists():
            source.note((), f'there is no "{path.name}" beside it, say with rules: which rules are meant')
        return [path]
    paths = [file.parent / name for name in model.rules]
    for index, path in enumerate(paths):
        if not path.exists():
            source.note(("rules", index), f'there is no file "{path}"')
    return paths


def _connections(model: CaseFile, case: Case) -> dict[str, ClientConnection]:
    """Return the connections of a case by name. The empty name is the default: for steps that name no connection, and
    for names that the file does not describe."""
    return {"": case.connection or model.connection or ClientConnection(), **(case.connections or {})}


def _check(source: Source, model: CaseFile, documents: list[Document]) -> None:
    """Note errors that the models cannot detect: undefined names, and bodies that do not fit."""
    rules = {one.rule.name: one.rule for document in documents for one in document.parsed_rules if one.rule is not None}
    names: dict[str, int] = {}
    for index, case in enumerate(model.tests):
        if (first := names.setdefault(case.name, index)) != index:
            line = source.place(("tests", first, "name"))[0]
            source.note(("tests", index, "name"), f'the name "{case.name}" is taken, in line {line}')
        for number, step in enumerate(case.steps):
            at = ("tests", index, "steps", number)
            for where, name in (((*at, "resume"), step.resume), *(((*at, "counts", each), each) for each in
                                                                  step.counts or ())):  # fmt: skip
                if name is not None and not isinstance(rules.get(name), LiveRule):
                    _note_rule(source, where, name, [rule for rule in rules if isinstance(rules[rule], LiveRule)])
            _check_bodies(source, step, at)


def _note_rule(source: Source, where: Where, name: str, live: list[str]) -> None:
    close = nearest(name, live)
    hint = f', did you mean "{close}"?' if close else f"; there are: {', '.join(live) or 'none'}"
    source.note(where, f'unknown rule "{name}" that has counters{hint}', key="counts" in where)


def _check_bodies(source: Source, step: CaseStep, at: Where) -> None:
    """Note the values in the bodies of a step that do not fit. Bodies of responses and of expected frames are checked
    only if the step has one for each request, since their API and version are those of the request."""
    sent = step.client or []
    for index, one in enumerate(sent):
        if one.hex is None:
            Reader(source).body(one.key, one.number, "request", one.body, (*at, "client", index, "body"))
    for word, direction, written in (
        ("to_broker", "request", step.to_broker), ("broker", "response", step.broker),
        ("to_client", "response", step.to_client),
    ):  # fmt: skip
        if written is None or len(written) != len(sent):
            continue
        for index, (each, asked) in enumerate(zip(written, sent, strict=True)):
            _check_body(source, each, asked, direction, (*at, word, index))


def _check_body(source: Source, written: object, asked: SentRequest, direction: str, at: Where) -> None:
    if asked.hex is not None:
        return
    for name in ("body", "exactly"):
        raw = getattr(written, name, None)
        changed = getattr(written, "api", None) is not None or getattr(written, "version", None) is not None
        if raw and not changed:
            reader = Reader(source, expected=hasattr(written, "exactly"))
            reader.body(asked.key, asked.number, direction, raw, (*at, name))


CORRELATION = slice(4, 8)
"""Position of the correlation id in a request without its length in front."""


def request(source: Source, sent: SentRequest, at: Where, correlation: int) -> bytes:
    """Return the request as a frame with its length. Raises EncodeError for a value that does not fit."""
    if sent.hex is not None:
        return from_hex(sent.hex, correlation)
    body = Reader(source).body(sent.key, sent.number, "request", sent.body, at)
    header = {"request_api_key": sent.key, "request_api_version": sent.number, "correlation_id": correlation}
    return encoded_frame(sent.key, sent.number, header | {"client_id": sent.client_id}, body)


def from_hex(text: str, correlation: int) -> bytes:
    """Return a frame that was captured, with the correlation id that it has in this dialogue. Raises EncodeError for a
    frame that is too short."""
    frame = bytearray.fromhex(text)
    if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4:
        del frame[:4]
    if len(frame) < 10:
        raise EncodeError(f"expected a request of at least 10 bytes, got {len(frame)}")
    frame[CORRELATION] = correlation.to_bytes(4, "big")
    return framed(bytes(frame))


def answer(source: Source, answered: SentAnswer, at: Where, key: int, version: int, correlation: int) -> bytes:
    """Return the response as a frame with its length. Raises EncodeError for a value that does not fit."""
    body = Reader(source).body(key, version, "response", answered.body, at)
    return encoded_frame(key, version, {"correlation_id": correlation}, body)


def encoded_frame(key: int, version: int, header: dict[str, Any], body: dict[str, Any]) -> bytes:
    """Return a frame with its length; fields that are left out get their defaults."""
    return framed(encode(Message(schema.load(key), version, header, body)))
