"""`kproxy show`: prints an exchange of a capture as a tree with its bytes, or one of an event file as its columns.

The tree has the hex of each field before its value. For long values, only the first bytes are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import click

from kproxy.base.errors import DecodeError, RecordsError, plural
from kproxy.base.terminal import in_line, output_option, say
from kproxy.cli.exchange_input import AnyView, Trouble, tell, views
from kproxy.cli.tail import unjudged
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import is_utf8
from kproxy.protocol.codec.structs import find
from kproxy.protocol.codec.trace import TraceStep
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, check_crc, decode, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.table.errors import numbers
from kproxy.protocol.table.schema import Api, load, paths
from kproxy.record.captures.reader import MOST_FRAME
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.filters import ExchangeView, Filter
from kproxy.record.live_view.frame_steps import ShownRecords
from kproxy.record.observer.credentials import SECRET_KINDS
from kproxy.record.observer.records import MOST_BYTES, NotKept, RecordsField, record_fields
from kproxy.rules.content.schemas import SchemaCache
from kproxy.rules.filter.record_fields import Part

from .decode import Row, as_json, rows, shown
from .filters import is_file, make_filter
from .registries import FileRegistries
from .tail import milliseconds


@click.command("show")
@click.argument("file")
@click.argument("which", metavar="[NUMBER | FILTER]", nargs=-1)
@click.option("-n", "--number", type=click.IntRange(min=1), default=1, help="Number of exchanges (default: 1).")
@click.option("--records", type=click.IntRange(min=0), default=20, help="Records shown of a partition (default 20).")
@click.option("--most", type=click.IntRange(min=1), default=MOST_FRAME, help="Bytes kept of a frame (default 1 MiB).")
@click.option("--config", metavar="FILE", help="Config document with the schema registries that decode records.")
@output_option("tree", "json")
def command(
    *, file: str, which: tuple[str, ...], number: int, records: int, most: int, config: str | None, output: str
) -> None:
    """Print one exchange of FILE with all its fields: the one with this number, counted from 1, or the first that
    matches FILTER."""
    if not is_file(file):
        raise click.UsageError(f"file not found: {file}")
    first, wanted = selection(which)
    trouble, left = Trouble(), number
    registries = FileRegistries(config)
    with closing(chosen(file, first, wanted, trouble, most)) as found:
        for place, view in found:
            show(place, view, output, records, registries)
            left -= 1
            if not left:
                break
    unjudged(wanted.unknown, wanted.why)
    registries.tell()
    if left == number:
        tell(trouble)
        asked = f"number {first}" if first > 1 else "exchange" if not wanted else f"exchange that fits {wanted}"
        say(f"kproxy: found no {asked} in {file}", err=True)
        raise click.exceptions.Exit(1)


def selection(words: tuple[str, ...]) -> tuple[int, Filter]:
    """Return the number (from 1) of the first exchange that is considered, and the filter. Raises UsageError for 0."""
    if len(words) == 1 and words[0].isdecimal():
        if not int(words[0]):
            raise click.UsageError("exchanges are counted from 1")
        return int(words[0]), Filter()
    return 1, make_filter(" ".join(words))


def chosen(file: str, first: int, wanted: Filter, trouble: Trouble, most: int) -> Any:
    """Yield number and view of each exchange from `first` on that matches the filter."""
    for place, view in enumerate(views(file, trouble, most), 1):
        if place >= first and wanted.holds(view):
            yield place, view


def show(place: int, view: AnyView, output: str, records: int, registries: FileRegistries) -> None:
    if not isinstance(view, ExchangeView):
        say(json.dumps(view.data, indent=2, ensure_ascii=False))
    elif output == "json":
        say(writable(json.dumps(json_of(place, view.seen), ensure_ascii=False)))
    else:
        for line in tree_of(place, view, records, registries.cache(view.seen.who.cluster)):
            say(writable(line))


def writable(line: str) -> str:
    r"""Return a text with bytes that are not UTF-8 written as `\udcff`, which JSON also takes for one letter."""
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode()


def tree_of(place: int, view: ExchangeView, records: int, cache: SchemaCache | None = None) -> Iterator[str]:
    """Yield the lines of an exchange: its client and broker, times and outcome, then both frames, then the records."""
    seen, get = view.seen, view.get
    node = "" if get("node") is None else f" (node {get('node')})"
    yield (
        f"exchange {place}: {seen.api} v{seen.version}, correlation id {seen.correlation_id}, connection "
        f"{get('connection')}, {get('client_address')}:{get('client_port')} → {get('broker') or '?'}{node}, "
        f"client id {json.dumps(seen.client_id, ensure_ascii=False)}"
    )
    yield f"{view.data.get('request_in', '?')}, {outcome_of(view)}"
    for direction, frame in (("request", seen.request), ("response", seen.response)):
        yield ""
        if frame is None:
            yield f"{direction}: none"
            continue
        yield f"{direction}: {frame.size} bytes with the 4 of its length"
        yield from hex_tree(seen, direction, frame)
    yield from records_of(seen, records, cache)


def outcome_of(view: ExchangeView) -> str:
    """Return the outcome of an exchange as text: `answered after 12ms, errors …, rules …`."""
    said = [str(view.get("outcome")).replace("_", " ")]
    if view.get("latency_ms") is not None:
        said[0] += f" after {milliseconds(view.get('latency_ms'))}"
    if view.get("responder") == "kproxy":
        said.append("by kproxy in the broker's place")
    if view.get("errors") or view.get("error"):
        said.append(f"errors {', '.join(view.get('errors') or [view.get('error')])}")
    if view.get("rules"):
        said.append(f"rules {', '.join(view.get('rules'))}")
    if view.get("decode_error"):
        said.append(f"decode error: {view.get('decode_error')}")
    return ", ".join(said)


def records_of(seen: ObservedExchange, most: int, cache: SchemaCache | None = None) -> Iterator[str]:
    """Yield the lines of an exchange's records, each partition after a blank line; none for APIs without records."""
    try:
        fields = record_fields(seen)
    except NotKept as error:
        yield ""
        yield f"records: not shown, {error}"
        return
    for field in fields:
        yield ""
        yield from record_lines(field, most, cache)


def json_of(place: int, seen: ObservedExchange) -> dict[str, Any]:
    """Return an exchange with both frames in the form of `kproxy decode --json`; a missing frame is None."""
    return {
        "number": place,
        "outcome": seen.outcome,
        "request": _frame_json(seen, "request", seen.request),
        "response": _frame_json(seen, "response", seen.response),
    }


def _frame_json(seen: ObservedExchange, direction: str, frame: Frame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    said: dict[str, Any] = {"bytes": frame.size, "kept": len(frame.data)}
    if frame.withheld:
        said["withheld"] = frame.withheld
    if frame.form is Form.WHOLE:
        try:
            if direction == "request":
                message = decode_request(frame.data, trailing=True)
            else:
                message = decode_response(frame.data, seen.key, seen.version, trailing=True)
            said.update(json.loads(as_json(message)))
        except DecodeError as error:
            said["decode_error"] = str(error)
    return said


ACROSS = 12
"""Bytes per line: with the offset they take half of a terminal."""
MOST_LINES = 4
"""Lines of hex per value."""
BLANK = " " * (3 * ACROSS - 1)


def hex_tree(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[str]:
    """Yield lines `offset  hex  field` of a frame. Offsets count from the first byte after the length field."""
    data, kept = frame.data, len(frame.data)
    for row in _frame_rows(seen, direction, frame):
        if isinstance(row, str):
            yield f"{'':>8}  {BLANK}  {row}"
        else:
            yield from _byte_lines(row, data)
    missing = frame.size - 4 - kept
    if frame.withheld and missing:
        yield f"{kept:>8}  {plural(missing, 'byte')} withheld: {frame.withheld}"
    elif missing:
        yield f"{kept:>8}  {plural(missing, 'byte')} not kept"
    elif frame.withheld:
        yield f"{'':>8}  overwritten with *: {frame.withheld}"


def _frame_rows(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[Row | str]:
    """Yield the rows of a frame as far as it can be read, then a line with the decode error, if any."""
    if frame.form is Form.NONE:
        return
    try:
        api = find(seen.key)
        version = seen.version if direction == "request" else answered_version(api, seen, frame)
        yield from rows(api, version, direction, frame.data, brief)
    except (DecodeError, KeyError) as error:
        if frame.form is Form.WHOLE:
            yield f"it cannot be read further: {error.args[0]}"


def brief(step: TraceStep) -> str:
    """Return a value's text next to its bytes: errors and APIs with their names, bytes as their number."""
    if isinstance(step.value, bytes | memoryview) and (step.slot is None or step.slot.kind not in SECRET_KINDS):
        return "empty" if not step.value else plural(len(step.value), "byte")
    text = shown(step, secrets=False)
    if step.slot is not None and step.what == "value":
        if step.slot.kind == "error_code" and step.value in numbers():
            return f"{text} {numbers()[step.value].name}"
        if step.slot.name == "request_api_key" and step.value in paths():
            return f"{text} {load(step.value).name}"
    return text


def answered_version(api: Api, seen: ObservedExchange, frame: Frame) -> int:
    """Return the version of a response, which may be lower than the request's for ApiVersions (KIP-511)."""
    try:
        return decode_response(frame.data, api.key, seen.version, trailing=True).version
    except DecodeError:
        return seen.version


def _byte_lines(row: Row, data: bytes) -> Iterator[str]:
    if row.end is None:
        yield f"{row.start:>8}  {BLANK}  {'  ' * row.depth}{row.text}"
        return
    seen = data[row.start : min(row.end, row.start + ACROSS * MOST_LINES)]
    for at in range(0, max(len(seen), 1), ACROSS):
        text = f"{'  ' * row.depth}{row.text}" if not at else ""
        yield f"{row.start + at:>8}  {seen[at : at + ACROSS].hex(' '):{len(BLANK)}}  {text}".rstrip()
    if row.end - row.start > len(seen):
        yield f"{'':>8}  … {row.end - row.start - len(seen)} more"


MOST_SHOWN = 60
"""Characters of a key or value in one line."""


def record_lines(field: RecordsField, most: int, cache: SchemaCache | None = None) -> Iterator[str]:
    """Yield the lines of one partition's batches, and of the first `most` of its records. `cache`: schemas of the
    registry."""
    shown = ShownRecords(cache)
    yield f"{in_line(field.topic)}[{field.partition}]: {len(field.data)} bytes of records"
    left = most
    try:
        for entry in entries(field.data):
            yield f"  {header_line(entry)}"
            if isinstance(entry, Cut):
                continue
            count = 0
            try:
                for record in decode(entry, MOST_BYTES):
                    count += 1
                    if left:
                        left -= 1
                        decoded = {} if cache is None else shown.values(record)
                        yield f"    {record_line(record, {part: decoded_text(one) for part, one in decoded.items()})}"
                if not left and count > most:
                    yield f"    … {most} of {plural(count, 'record')} shown"
            except RecordsError as error:
                yield f"    cannot be read: {error}"
    except RecordsError as error:
        yield f"  cannot be read further: {error}"


def header_line(entry: Entry) -> str:
    """Return a batch's header as text: offsets, number of records, codec, producer, checksum."""
    if isinstance(entry, Cut):
        return f"the beginning of a batch, {len(entry.raw)} bytes; brokers cut the last one off (KIP-74)"
    codec = CODECS.get(entry.codec, f"codec {entry.codec}")
    if isinstance(entry, LegacyEntry):
        return f"message at offset {entry.offset}, magic {entry.magic}, {codec}, {_crc(entry)}"
    said = [f"batch at offset {entry.base_offset} to {entry.last_offset}", plural(entry.count, "record"), codec]
    if entry.producer_id >= 0:
        said.append(f"producer {entry.producer_id} epoch {entry.producer_epoch} sequence {entry.base_sequence}")
    said += ["transactional"] if entry.is_transactional else []
    said += ["control"] if entry.is_control else []
    return ", ".join((*said, f"leader epoch {entry.partition_leader_epoch}", _crc(entry)))


def _crc(entry: Batch | LegacyEntry) -> str:
    try:
        check_crc(entry)
    except RecordsError as error:
        return str(error).partition(": ")[2]
    return "crc right"


def record_line(record: Record, decoded: Mapping[Part, str]) -> str:
    """Return a record in one line: offset, time, key, value, headers. `decoded`: key and value as text, empty if they
    have no schema."""
    headers = " ".join(f"{in_line(name)}={key_or_value(value)}" for name, value in record.headers)
    when = "-" if record.timestamp < 0 else moment(record.timestamp)
    key = decoded.get("key") or key_or_value(record.key)
    value = decoded.get("value") or key_or_value(record.value)
    return f"{record.offset:>6}  {when}  {key}  {value}  {headers}".rstrip()


MOST_DECODED = 2000
"""Characters of a decoded key or value in one line."""


def decoded_text(shown: Mapping[str, Any]) -> str:
    """Return a decoded key or value in one line, after the name and id of its schema; empty without a schema."""
    if "schema_id" not in shown:
        return ""
    named = f"{shown.get('schema') or 'schema'}#{shown['schema_id']}"
    if "format" not in shown:
        return f"{in_line(named)} ({'pending' if 'pending' in shown else shown.get('why')})"
    text = json.dumps(shown["value"], ensure_ascii=False)
    return f"{in_line(named)} {in_line(text[:MOST_DECODED])}{'…' if len(text) > MOST_DECODED else ''}"


def moment(milliseconds: int) -> str:
    """Return a timestamp (milliseconds since 1970) in UTC, or the number itself if it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def key_or_value(data: bytes | None) -> str:
    """Return a key or value, truncated if long: UTF-8 text in quotes, other bytes in hex, `null` for None."""
    if data is None:
        return "null"
    if is_utf8(data):
        text = data.decode()
        cut = f"{text[:MOST_SHOWN]}…" if len(text) > MOST_SHOWN else text
        return json.dumps(cut, ensure_ascii=False)
    cut = data[: MOST_SHOWN // 3].hex(" ")
    return f"{len(data)} bytes: {cut}{' …' if len(data) > MOST_SHOWN // 3 else ''}"
