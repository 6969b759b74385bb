"""The list of exchanges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult

from kproxy.rules.filter.parse import quoted

from .details import DetailPane
from .exchange_actions import make_rule, named_request, save_detail, send_again
from .exchange_rows import COLUMNS, ExchangeStore, StreamRow, cells, colour, heads, placed
from .host import Pane
from .widgets import LineList, Painted, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

ROOM = 20
"""Cells added to outcome and subject before more columns are shown."""
MOST_PENDING = 20_000
"""Rows that are kept while the list is paused. Beyond this number the oldest are dropped and counted."""
FOLLOWED = ("connection", "group", "member", "producer_id", "transactional_id", "topic", "partition", "client_id")


class ExchangeList(LineList):
    """Lines of exchanges, oldest at the top unless `reverse` is on."""

    def __init__(self, store: ExchangeStore, widget_id: str = "rows") -> None:
        super().__init__(widget_id)
        self.store = store
        self.following, self.reverse, self.first = True, False, 0

    def count(self) -> int:
        return len(self.store)

    def index(self, line: int) -> int:
        """Convert a line to an index in the store, or an index to a line."""
        return len(self.store) - 1 - line if self.reverse else line

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        place = self.index(index)
        get = self.store.getter(place)
        mark = "●" if self.store.ident(place) in self.store.marked else " "
        return [(mark, "bold yellow"), *cells(placed(COLUMNS, width - 1, self.first, ROOM), get)]

    def line_style(self, index: int) -> str:
        return colour(self.store.getter(self.index(index)))

    def text(self, index: int) -> str:
        return " ".join(str(value) for value in self.store.rows[self.index(index)] if value is not None)

    def heads(self, width: int) -> Sequence[TextPart]:
        return [(" ", ""), *heads(placed(COLUMNS, width - 1, self.first, ROOM))]

    def add(self, rows: Iterable[StreamRow]) -> None:
        """Add rows. The lines on the screen keep their place, unless the list follows new rows."""
        before = len(self.store)
        went = self.store.add(rows)
        came = len(self.store) + went - before
        shift = came if self.reverse else -went
        if self.following:
            self.to(0 if self.reverse else self.count() - 1)
            return
        self.top, self.cursor = max(0, self.top + shift), max(0, self.cursor + shift)
        self.changed()

    def current(self) -> int | None:
        """Return the store's index of the row at the cursor, None in an empty list."""
        return self.index(self.cursor) if len(self.store) else None

    def do_to_right(self) -> None:
        self.first = min(self.first + 1, 24)
        self.redraw()

    def do_to_left(self) -> None:
        self.first = max(self.first - 1, 0)
        self.redraw()

    def redraw(self) -> None:
        self.refresh()
        for line in self.screen.query(Heads):
            line.refresh()


class Heads(Painted):
    """Line with a list's column heads."""

    DEFAULT_CSS = "Heads { height: 1; }"

    def __init__(self, rows: ExchangeList) -> None:
        super().__init__(id="heads")
        self.rows = rows

    def parts(self, y: int, width: int) -> Sequence[TextPart]:
        return self.rows.heads(width)

    def base(self, y: int) -> str:
        return "bold"


class ExchangePane(Pane):
    """Screen with the list of exchanges. The layout key adds the details of one exchange below the list."""

    hints = "Enter open  f filter  / search  F follow  o only its…  m rule  i hold  ? help"

    def __init__(self, host: ViewApp, details: DetailPane) -> None:
        super().__init__(host, "exchanges")
        self.rows = ExchangeList(host.store)
        self.details = details
        self.below = DetailPane(host, "below")
        self.paused, self.missed = False, 0
        self.pending: deque[StreamRow] = deque(maxlen=MOST_PENDING)

    def compose(self) -> ComposeResult:
        yield Heads(self.rows)
        yield self.rows
        yield self.below

    def on_mount(self) -> None:
        self.below.display = False
        self.rows.on_move = self.moved

    def shown(self) -> None:
        self.rows.focus()
        self.rows.changed()

    def take(self, rows: list[Any]) -> None:
        """Show new rows, or keep them as pending while the list is paused."""
        if self.paused:
            self.missed += max(0, len(self.pending) + len(rows) - MOST_PENDING)
            self.pending.extend(rows)
        else:
            self.rows.add(rows)

    def pause(self) -> None:
        """Pause the list, or resume it with the pending rows."""
        self.paused = not self.paused
        if not self.paused:
            self.rows.add(self.pending)
            self.pending.clear()

    def clear(self) -> None:
        """Discard all rows, including the pending ones."""
        self.host.store.clear()
        self.pending.clear()
        self.missed = 0
        self.rows.changed()

    def about(self) -> Sequence[TextPart]:
        return [("filter ", "dim"), (self.host.filter_text or "none: everything", ""), *self.place()]

    def place(self) -> Iterator[TextPart]:
        """Yield the position of the cursor, and the numbers of rows that the list does not show."""
        store, rows = self.host.store, self.rows
        if len(store):
            yield f"  {rows.cursor + 1} of {len(store)}", "dim"
        else:
            yield "  nothing fits it so far" if self.host.filter_text else "  nothing yet", "dim"
        if store.gone + self.missed:
            yield f" · {store.gone + self.missed} older ones made room", "dim"
        if self.paused:
            yield f" · stopped, {len(self.pending)} wait", "bold yellow"
        elif rows.following:
            yield " · following", "dim"

    def moved(self) -> None:
        """Stop following when the cursor leaves the newest row, and update the details below the list."""
        newest = 0 if self.rows.reverse else self.rows.count() - 1
        if self.rows.count() and self.rows.cursor != newest:
            self.rows.following = False
        if self.below.display:
            self.open(self.below)

    def open(self, pane: DetailPane) -> None:
        place = self.rows.current()
        if place is not None:
            pane.open(self.host.store.ident(place))

    def do_enter(self) -> None:
        if self.rows.current() is None:
            self.host.say("no exchange yet")
            return
        self.rows.following = False
        self.open(self.details)
        self.host.show("details")

    def do_follow(self) -> None:
        self.rows.following = not self.rows.following
        if self.rows.following:
            self.rows.to(0 if self.rows.reverse else self.rows.count() - 1)
        self.host.say("following" if self.rows.following else "the list stays where it is")

    def do_reverse(self) -> None:
        rows = self.rows
        rows.reverse = not rows.reverse
        rows.to(max(0, rows.count() - 1 - rows.cursor))
        self.host.say("newest at the top" if rows.reverse else "newest at the bottom")

    def do_mark(self) -> None:
        place = self.rows.current()
        if place is not None:
            self.host.store.mark(self.host.store.ident(place))
            self.rows.refresh()

    def do_layout(self) -> None:
        self.below.display = not self.below.display
        if self.below.display:
            self.open(self.below)

    def searched(self) -> LineList:
        return self.rows

    def value(self, name: str) -> Any:
        """Return a value of the exchange at the cursor, None in an empty list."""
        place = self.rows.current()
        return None if place is None else self.host.store.getter(place)(name)

    def do_make_rule(self) -> None:
        place = self.rows.current()
        if place is not None:
            make_rule(self.host, self.host.store.getter(place))

    def do_save(self) -> None:
        place = self.rows.current()
        if place is not None:
            save_detail(self.host, self.host.store.ident(place))

    def do_send_again(self) -> None:
        place = self.rows.current()
        if place is not None:
            api, ident = str(self.value("api")), self.host.store.ident(place)
            send_again(
                self.host, ident, api, self.show_sent, named_request(api, self.value("about"), self.value("records"))
            )

    def show_sent(self, ident: str) -> None:
        self.details.open(ident)
        self.host.show("details")

    def do_its_connection(self) -> None:
        self.narrow("connection")

    def do_follow_what(self) -> None:
        there = [name for name in FOLLOWED if self.value(column_of(name)) is not None]
        if not there:
            self.host.say("there is nothing here to follow", good=False)
            return
        self.host.prompt(f"only its ({', '.join(there)}):", there[0], self.narrow)

    def narrow(self, name: str) -> None:
        """Narrow the filter to exchanges with the cursor's value of this field."""
        value = self.value(column_of(name.strip())) if name.strip() in FOLLOWED else None
        if value is None:
            self.host.say(f"this exchange has no {name.strip()}", good=False)
            return
        claim = f"{name.strip()} == {quoted(str(value))}"
        before = self.host.filter_text
        self.host.set_filter(f"({before}) and {claim}" if before else claim)


def column_of(field: str) -> str:
    """Return the column that contains a filter field's value."""
    return "client" if field == "client_id" else field
