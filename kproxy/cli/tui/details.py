"""Details of one exchange: fields of a frame with their bytes, records, timing and event."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Container

from kproxy.cli.show import decoded_text, key_or_value, moment
from kproxy.cli.tail import milliseconds
from kproxy.record.filters import topics

from .exchange_actions import make_rule, named_request, save_detail, send_again
from .frame_fields import FrameField, TerminalFrame, batch_text, frame_of
from .host import Pane
from .widgets import Bar, LineList, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

ACROSS = 12
"""Bytes per line, as in `kproxy show`."""
PARTS = ("request", "response", "records", "timing", "event")
SIDES = ("client", "broker", "both")
MOST_PARTITIONS = 6
"""Partitions of a topic that a question lists."""


class FieldList(LineList):
    """Fields of a frame as a tree."""

    def __init__(self) -> None:
        super().__init__("fields")
        self.frame = TerminalFrame()

    def count(self) -> int:
        return len(self.frame.fields) + len(self.frame.notes)

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        fields = self.frame.fields
        if index >= len(fields):
            return [(self.frame.notes[index - len(fields)], "italic yellow")]
        one = fields[index]
        indent = " " * min(one.depth, 12)
        if not one.end and not one.text:
            return [(f"{indent}{one.name}", "bold")]
        mark = ("≠ ", "bold magenta") if one.changed else ("", "")
        return [mark, (f"{indent}{one.name} ", "cyan"), (one.text, "")]

    def field(self) -> FrameField | None:
        fields = self.frame.fields
        return fields[self.cursor] if self.cursor < len(fields) else None


class ByteList(LineList, can_focus=False):
    """Bytes of a frame in lines, with the bytes of one field marked."""

    def __init__(self, widget_id: str) -> None:
        super().__init__(widget_id)
        self.frame: TerminalFrame | None = None
        self.marked = (0, 0)

    def show(self, frame: TerminalFrame | None) -> None:
        self.frame, self.marked = frame, (0, 0)
        self.display = frame is not None
        self.to(0)

    def mark(self, start: int, end: int) -> None:
        """Mark these bytes, and scroll to the first of them."""
        self.marked = start, end
        self.to(0 if end <= start else 1 + start // ACROSS)

    def selects(self) -> bool:
        return False

    def count(self) -> int:
        return 0 if self.frame is None else 1 + -(-len(self.frame.data) // ACROSS)

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        assert self.frame is not None, "without a frame there are no lines"
        if not index:
            return [(f"{self.frame.side}, {self.frame.size} bytes", "bold")]
        first = (index - 1) * ACROSS
        here = self.frame.data[first : first + ACROSS]
        parts = [(f"{first:>5} ", "dim")]
        letters: list[TextPart] = [(" ", "")]
        for at, byte in enumerate(here, first):
            style = "reverse" if self.marked[0] <= at < self.marked[1] else ""
            parts += [(f"{byte:02x}", style), (" ", style if at + 1 < self.marked[1] else "")]
            letters.append((chr(byte) if 32 <= byte < 127 else "·", style or "dim"))
        if width < 6 + 3 * ACROSS + 1 + ACROSS:
            return parts
        return [*parts, ("   " * (ACROSS - len(here)), ""), *letters]


class TextList(LineList):
    """Lines of text, each with a style."""

    def __init__(self, widget_id: str = "text") -> None:
        super().__init__(widget_id)
        self.lines: Sequence[TextPart] = ()

    def show(self, lines: Sequence[TextPart]) -> None:
        self.lines = lines
        self.to(0)

    def count(self) -> int:
        return len(self.lines)

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        return [self.lines[index]]


class DetailPane(Pane):
    """Screen with the details of one exchange."""

    DEFAULT_CSS = """
    DetailPane #beside { layout: horizontal; height: 1fr; }
    DetailPane #bytes { layout: vertical; width: 42; height: 1fr; }
    DetailPane.wide #bytes { width: 56; }
    DetailPane.over #beside { layout: vertical; }
    DetailPane.over #bytes { width: 1fr; }
    """
    hints = "Tab next part  [ ] field  b bytes of  - layout  m rule  w save  q back  ? help"

    def __init__(self, host: ViewApp, widget_id: str = "details") -> None:
        super().__init__(host, widget_id)
        self.ident = ""
        self.detail: Mapping[str, Any] = {}
        self.part, self.side = 0, 2
        self.heading = ""
        self.tabs = Bar("tabs")
        self.fields, self.text = FieldList(), TextList()
        self.client, self.broker = ByteList("client"), ByteList("broker")

    def compose(self) -> ComposeResult:
        yield self.tabs
        with Container(id="beside"):
            yield self.fields
            with Container(id="bytes"):
                yield self.client
                yield self.broker
            yield self.text

    def on_mount(self) -> None:
        self.fields.on_move = self.moved
        self.redraw()

    def on_resize(self) -> None:
        self.set_class(self.size.width >= 120, "wide")

    def shown(self) -> None:
        self.focus_list()

    def focus_list(self) -> None:
        self.searched().focus()

    def searched(self) -> LineList:
        return self.text if self.text.display else self.fields

    # ---- what is shown

    def open(self, ident: str) -> None:
        """Request the exchange with this id, and show its details when they arrive."""
        self.ident = ident
        self.host.work(lambda: self.host.source.detail(ident), lambda found: self.take(ident, found))

    def take(self, ident: str, detail: Mapping[str, Any]) -> None:
        """Show these details, unless the user has opened another exchange since the request."""
        if ident == self.ident:
            self.detail = detail
            self.redraw()

    def redraw(self) -> None:
        event = self.detail.get("event")
        self.heading = title_of(event) if isinstance(event, Mapping) else self.waiting()
        if self.detail.get("again_of"):
            self.heading += f" · sent again from {self.detail['again_of']}"
        tabs: list[TextPart] = []
        for number, name in enumerate(PARTS):
            tabs += [(f" {name} ", "reverse" if number == self.part else ""), (" ", "")]
        name = PARTS[self.part]
        both = self.detail.get(name) if name in ("request", "response") else None
        is_frame = isinstance(both, Mapping)
        if is_frame:
            tabs.append((f" bytes of {SIDES[self.side]}", "dim"))
            self.show_frames(both or {})
        self.tabs.say(*tabs)
        self.query_one("#bytes").display = self.fields.display = is_frame
        self.text.display = not is_frame
        if not is_frame:
            self.text.show(list(self.lines(name)))
        if self.host_shows():
            self.focus_list()

    def host_shows(self) -> bool:
        return self.display and self.id == "details"

    def about(self) -> Sequence[TextPart]:
        return [(self.heading, "bold")]

    def waiting(self) -> str:
        return f"exchange {self.ident} …" if self.ident else "no exchange was opened yet: Enter in the list opens one"

    def show_frames(self, both: Mapping[str, Any]) -> None:
        """Show the frame of the selected side, and the bytes of one side or both."""
        changed = changed_paths(both.get("changed"))
        client, broker = frame_of(both.get("client"), changed), frame_of(both.get("broker"), changed)
        of_broker = SIDES[self.side] == "broker" and broker is not None
        self.fields.frame = (broker if of_broker else client) or TerminalFrame()
        self.fields.to(0)
        self.client.show(None if of_broker else client)
        self.broker.show(broker if self.side else None)
        self.moved()

    def lines(self, name: str) -> Iterator[TextPart]:
        if not self.detail:
            return
        match name:
            case "request" | "response":
                yield f"there is no {name}", "italic"
            case "records":
                yield from record_lines(self.detail)
            case "timing":
                yield from timing_lines(self.detail.get("event"))
            case _:
                text = json.dumps(self.detail.get("event"), indent=2, ensure_ascii=False)
                yield from ((line, "") for line in text.splitlines())

    # ---- keys

    def moved(self) -> None:
        """Mark the bytes of the field at the cursor."""
        one = self.fields.field()
        if one is None:
            return
        shown = self.fields.frame.side
        for pane in (self.client, self.broker):
            if pane.frame is None:
                continue
            twin = one if pane.frame.side == shown else next((f for f in pane.frame.fields if f.path == one.path), one)
            pane.mark(twin.start, twin.end)

    def turn(self, by: int) -> None:
        self.part = (self.part + by) % len(PARTS)
        self.redraw()

    def do_next_part(self) -> None:
        self.turn(1)

    def do_to_right(self) -> None:
        self.turn(1)

    def do_to_left(self) -> None:
        self.turn(-1)

    def do_next_field(self) -> None:
        self.fields.do_down()

    def do_field_before(self) -> None:
        self.fields.do_up()

    def do_bytes(self) -> None:
        self.side = (self.side + 1) % len(SIDES)
        self.redraw()
        self.host.say(f"bytes of {SIDES[self.side]}")

    def do_layout(self) -> None:
        self.toggle_class("over")

    def do_make_rule(self) -> None:
        place = self.host.store.place(self.ident)
        if place is None:
            self.host.say("its line is no longer in the list", good=False)
        else:
            make_rule(self.host, self.host.store.getter(place))

    def do_send_again(self) -> None:
        event = self.detail.get("event")
        if isinstance(event, Mapping):
            api = str(event.get("api"))
            what = named_request(api, topics(event, MOST_PARTITIONS), event.get("total_records"))
            send_again(self.host, self.ident, api, self.open, what)

    def do_save(self) -> None:
        if self.ident:
            save_detail(self.host, self.ident)


def changed_paths(said: Any) -> frozenset[str]:
    """Return the paths of the fields that differ between client and broker."""
    found = said if isinstance(said, list) else ()
    return frozenset(str(one.get("path")) for one in found if isinstance(one, Mapping))


MOST_LINES = 1000
"""Partitions of one exchange shown with their records."""


def title_of(event: Mapping[str, Any]) -> str:
    """Return an exchange in one line: API, connection, client, node, and its time with its parts."""
    said = [f"{event.get('api')} v{event.get('version')}"]
    if event.get("connection") is not None:
        said.append(f"connection {event['connection']}")
    if event.get("client_id"):
        said.append(str(event["client_id"]))
    if event.get("node") is not None:
        said.append(f"node {event['node']}")
    said.append(str(event.get("outcome")).replace("_", " "))
    if isinstance(event.get("latency_ms"), (int, float)):
        said.append(f"{milliseconds(event['latency_ms'])}{' = ' + parts if (parts := time_parts(event)) else ''}")
    return " · ".join(said)


def time_parts(event: Mapping[str, Any]) -> str:
    """Return the parts of an exchange's time as text: `rules 200ms + broker 52.8ms`."""
    named = (("rules", "rule_ms"), ("broker", "broker_ms"), ("kproxy", "wait_ms"))
    return " + ".join(
        f"{name} {milliseconds(event[key])}"
        for name, key in named
        if isinstance(event.get(key), (int, float)) and event[key]
    )


TIMES = (("request_in", "the request came"), ("request_out", "it went to the broker"),
         ("response_in", "the response came"), ("response_out", "it went to the client"))  # fmt: skip


def timing_lines(event: Any) -> Iterator[TextPart]:
    """Yield the arrival and departure of each frame, then the parts of the time."""
    if not isinstance(event, Mapping):
        return
    for name, words in TIMES:
        yield f"{words:24} {event.get(name, '-')}", ""
    yield "", ""
    for name, words in (("latency_ms", "from in to out"), ("rule_ms", "rules held it"), ("broker_ms", "at the broker"),
                        ("wait_ms", "kproxy held it"), ("throttle_ms", "throttle_time_ms"),
                        ("mute_ms", "channel muted")):  # fmt: skip
        value = event.get(name)
        yield f"{words:24} {milliseconds(value) if isinstance(value, (int, float)) else '-'}", ""
    rules = event.get("rules")
    if rules:
        yield "", ""
        yield f"{'rules that acted':24} {', '.join(map(str, rules))}", "magenta"


def record_lines(detail: Mapping[str, Any]) -> Iterator[TextPart]:
    """Yield the lines of an exchange's records: each partition, its batches, and their records."""
    found = detail.get("records")
    partitions = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    if not partitions:
        yield "there are no records", "italic"
    for one in partitions[:MOST_LINES]:
        if one.get("topic") is not None:
            yield f"{one['topic']}[{one.get('partition')}]: {one.get('bytes')} bytes of records", "bold"
        if one.get("why"):
            yield f"not shown: {one['why']}", "italic yellow"
        batches = one.get("batches")
        for batch in batches if isinstance(batches, list) else ():
            if isinstance(batch, Mapping):
                yield from batch_lines(batch)


def batch_lines(batch: Mapping[str, Any]) -> Iterator[TextPart]:
    """Yield the header of a batch as text, and a line for each of its records."""
    crc = f", crc {batch['crc']}" if batch.get("crc") else ""
    yield f"  {batch_text(batch)}{crc}", ""
    records = batch.get("records")
    for record in records if isinstance(records, list) else ():
        if isinstance(record, Mapping):
            yield f"    {record_text(record)}", ""
    omitted = batch.get("omitted", 0)
    if omitted != 0:
        yield f"    … {'more' if omitted is None else f'{omitted} more'}", "dim"
    if batch.get("why"):
        yield f"    cannot be read: {batch['why']}", "italic yellow"


def record_text(record: Mapping[str, Any]) -> str:
    """Return a record in one line, as in `kproxy show`: offset, time, key, value, headers."""
    when = record.get("time")
    headers = record.get("headers")
    pairs = [pair for pair in headers if isinstance(pair, list) and len(pair) == 2] if isinstance(headers, list) else []
    said = (
        f"{record.get('offset')!s:>6}", moment(when) if isinstance(when, int) else "-",
        *(decoded_part(record, part) or shown_bytes(record.get(part)) for part in ("key", "value")),
        " ".join(f"{name}={shown_bytes(value)}" for name, value in pairs),
    )  # fmt: skip
    return "  ".join(said).rstrip()


def decoded_part(record: Mapping[str, Any], part: str) -> str:
    """Return a key or value with a schema as `kproxy show` does; empty without a schema."""
    decoded = record.get("decoded")
    found = decoded.get(part) if isinstance(decoded, Mapping) else None
    return decoded_text(found) if isinstance(found, Mapping) else ""


def shown_bytes(encoded: Any) -> str:
    """Return base64 bytes as text, `null` for None."""
    try:
        return key_or_value(None if encoded is None else b64decode(encoded))
    except (ValueError, TypeError):
        return "?"
