"""Sources of the view's exchanges: files, or a running proxy. Each reads in its own thread.

A source puts events into a bounded queue, and waits if the queue is full. The app empties the queue 20 times a second
for some milliseconds. The events are those of the view's stream (`hello`, `rows`, `left`, `gap`, `tick`, `held`,
`rules`, `captures`), and two more: `state`, a status text, and `refused`, the reason of a failure.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, NamedTuple, Protocol

from kproxy.base.bounded_map import BoundedMap, SharedBudget
from kproxy.base.errors import DocumentError, InputError, InternalError, KproxyError, plural
from kproxy.cli.admin_client import Admin, Refused, segment
from kproxy.cli.exchange_input import AnyView, Trouble, views
from kproxy.record.captures.pairs import MOST_IN_ALL, SideMatcher, is_at_broker
from kproxy.record.filters import ExchangeView, Filter
from kproxy.record.live_view.detail import detail_of
from kproxy.record.live_view.rows import COLUMNS, event_row, max_wait

MOST_WAITING = 64
"""Capacity of a source's event queue."""
LOOK = 0.2
"""Seconds between two checks of `wanted` while a thread waits."""


class SourceEvent(NamedTuple):
    """Event of a source with its name in the stream; `data` is its decoded JSON."""

    name: str
    data: Mapping[str, Any]


class Stopped(Exception):
    """Raised inside a source's thread after `stop`."""


class SourceThread(threading.Thread):
    """Thread that reads exchanges and queues events until `stop` is called."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)  # the program exits without waiting for the proxy
        self.events: queue.Queue[SourceEvent] = queue.Queue(MOST_WAITING)
        self.wanted = True

    def run(self) -> None:
        try:
            self.read()
        except Stopped:
            pass
        except (KproxyError, OSError) as error:
            self.end("refused", {"message": str(error), "over": True})

    def read(self) -> None:
        """Read to the end, and queue events. Raises KproxyError or OSError if the source cannot be read."""
        raise NotImplementedError

    def put(self, name: str, data: Mapping[str, Any]) -> None:
        """Queue an event; wait while the queue is full. Raises Stopped."""
        while self.wanted:
            try:
                self.events.put(SourceEvent(name, data), timeout=LOOK)
            except queue.Full:
                continue
            return
        raise Stopped

    def end(self, name: str, data: Mapping[str, Any]) -> None:
        """Queue the last event, unless the thread was stopped."""
        with suppress(Stopped):
            self.put(name, data)

    def stop(self) -> None:
        """End the thread at its next event, or at its next check of `wanted`."""
        self.wanted = False


class ExchangeSource(Protocol):
    """Source of exchanges: a running proxy, or files."""

    name: str
    """Name in the top line of the screen."""

    def open(self, text: str) -> SourceThread:
        """Return an unstarted thread that reads exchanges matching this filter. Raises FilterError for an invalid
        one."""
        ...

    def detail(self, ident: str) -> Mapping[str, Any]:
        """Return an exchange with its frames, as `GET /api/exchanges/{id}` does. Blocks, so not for the loop.

        Raises KproxyError if the exchange is not kept.
        """
        ...


SOURCE = "file"


def row_of(ident: str, view: AnyView, changed: bool = False) -> list[Any]:
    """Return the row of an exchange. `kept` is False for events: they have no frames. `changed`: the broker's bytes
    differ."""
    if isinstance(view, ExchangeView):
        seen = view.seen
        first = seen.request or seen.response
        return event_row(ident, None if first is None else first.first, view.data, wait=max_wait(seen), changed=changed)
    return event_row(ident, seconds(view.data.get("request_in")), view.data, kept=False)


def seconds(stamp: Any) -> float | None:
    """Return the seconds since 1970 of a timestamp in an event, None for an invalid one."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def details(ident: str, view: AnyView, behind: AnyView | None = None) -> Mapping[str, Any]:
    """Return the details of an exchange, for an event only its data. `behind`: the broker side, None if the same."""
    if isinstance(view, ExchangeView):
        seen = behind.seen if isinstance(behind, ExchangeView) else None
        return detail_of(ident, view.data, view.seen, seen, source=SOURCE)
    return {"id": ident, "source": SOURCE, "event": dict(view.data), "request": None, "response": None, "records": []}


KEPT = 64 << 20
"""Bytes of frames that are kept for details."""
SMALL = 1000
"""Bytes of an exchange without its frames."""
BATCH = 200
"""Rows of one event."""
NEAR = 200
"""Exchanges after the one found that are searched for its broker side."""
SOON = 0.1
"""Seconds until a smaller batch is queued."""


class KeptViews:
    """LRU cache of exchanges by id, and of their broker sides by `at_broker`. Their frames have `most` bytes at most.

    Threads of several filters may write at the same time. Readers use `views.get`.
    """

    def __init__(self, most: int = KEPT) -> None:
        self.budget = SharedBudget(most)
        self.views: BoundedMap[Hashable, AnyView] = BoundedMap(most // SMALL, budget=self.budget, weigh=frame_bytes)
        self.lock = Lock()

    def keep(self, key: Hashable, view: AnyView) -> None:
        with self.lock:
            self.views[key] = view


def frame_bytes(view: AnyView) -> int:
    if not isinstance(view, ExchangeView):
        return 2 * SMALL
    frames = (view.seen.request, view.seen.response)
    return SMALL + sum(len(frame.data) + len(frame.sketch) for frame in frames if frame is not None)


def numbered(path: str, trouble: Trouble) -> Iterator[tuple[int, AnyView, bool]]:
    """Yield each exchange of a file as (number from 1, exchange, False). In kproxy's own captures, the broker side may
    follow later as (the same number, exchange, True)."""
    number = 0
    matcher = SideMatcher[int, AnyView]()
    for view in views(path, trouble, side="both"):
        seen = view.seen if isinstance(view, ExchangeView) and trouble.captures[-1].own else None
        settled: list[tuple[int | None, AnyView | None]] = []
        if seen is not None and is_at_broker(seen):
            settled = matcher.behind(seen, view, frame_bytes(view))
        else:
            number += 1
            yield number, view, False
            if seen is not None:
                settled = matcher.front(seen, number)
        for front, behind in settled:
            if front is not None and behind is not None:
                yield front, behind, True


def at_broker(ident: str) -> Hashable:
    """Return the cache key of an exchange's broker side."""
    return ident, "at the broker"


class ViewedFiles:
    """Captures, event files and folders of event files, read one after the other."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        first = Path(files[0]).name
        self.name = first if len(files) == 1 else f"{first} and {len(files) - 1} more"
        self.kept = KeptViews()

    def open(self, text: str) -> SourceThread:
        return FileThread(self.files, Filter(text), self.kept)

    def detail(self, ident: str) -> Mapping[str, Any]:
        return details(ident, *self.view(ident))

    def view(self, ident: str) -> tuple[AnyView, AnyView | None]:
        """Return an exchange by its id with its broker side, None if that is missing. Reads the file again if the
        exchange is not in the cache. Raises KproxyError, OSError."""
        file, _, place = ident.partition("-")
        try:
            at, wanted = int(file), int(place)
            path = self.files[at]
        except (ValueError, IndexError):
            raise InputError(f"expected the id of a kept exchange, got {ident}") from None
        found = self.kept.views.get(ident)
        if found is not None:
            return found, self.kept.views.get(at_broker(ident))
        behind, more = None, NEAR
        for number, view, is_behind in numbered(path, Trouble()):
            if number == wanted and is_behind:
                behind = view
            elif number == wanted:
                found = view
            if found is not None:
                more -= 1
                if not more or behind is not None:
                    break
        if found is None:
            raise InputError(f"{path} has no exchange {wanted} any more")
        return found, behind


class FileThread(SourceThread):
    """Thread that reads files once, and queues the rows that match a filter."""

    def __init__(self, files: Sequence[str], wanted: Filter, kept: KeptViews) -> None:
        super().__init__("view of files")
        self.files, self.filter, self.kept = files, wanted, kept
        self.trouble = Trouble()
        self.rows: list[list[Any]] = []
        self.last: BoundedMap[str, None] = BoundedMap(MOST_IN_ALL)  # ids of rows that still lack their broker side
        self.sent = self.seen = self.matched = 0
        self.next = 0.0

    def read(self) -> None:
        self.put("hello", {"filter": str(self.filter), "columns": COLUMNS, "may_write": False, "workers": 0})
        try:
            for number, path in enumerate(self.files):
                for place, view, is_behind in numbered(path, self.trouble):
                    ident = f"{number}-{place}"
                    self.seen += not is_behind
                    if is_behind:
                        self.mark(ident, view)
                    elif self.filter.holds(view):
                        self.matched += 1
                        self.kept.keep(ident, view)
                        self.rows.append(row_of(ident, view))
                        self.last[ident] = None
                    if len(self.rows) >= BATCH or (not self.seen & 63 and time.monotonic() >= self.next):
                        self.flush()
        finally:
            self.flush()
        self.put("state", {"text": self.summary(), "good": not self.problems(), "over": True})

    def mark(self, ident: str, behind: AnyView) -> None:
        """Queue a row again as changed: the bytes at the broker differ."""
        view = self.kept.views.get(ident) if ident in self.last else None
        if view is not None:
            self.kept.keep(at_broker(ident), behind)
            self.rows.append(row_of(ident, view, changed=True))

    def flush(self) -> None:
        """Queue the rows read so far, and the progress."""
        rows, self.rows = self.rows, []
        self.next = time.monotonic() + SOON
        if rows:
            self.put("rows", {"rows": rows})
        self.put("progress", {"seen": self.seen, "matched": self.matched})

    def summary(self) -> str:
        """Return the number of exchanges read and the problems, in one line."""
        said = (
            f"{plural(self.seen, 'exchange')} read"
            if not self.filter
            else f"{self.matched} of {plural(self.seen, 'exchange')}"
        )
        return "; ".join((said, *self.problems()))

    def problems(self) -> list[str]:
        """Return the parts that could not be read or judged by the filter, as texts."""
        found = list(self.trouble.lines())
        if self.trouble.other:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.trouble.other.items()))
            found.append(f"skipped events: {kinds}")
        if self.filter.unknown:
            found.append(f"{self.filter.unknown} could not be judged by the filter, the last: {self.filter.why}")
        return found


STREAM = "/api/view"
ROWS = 400
"""Highest number of rows per second requested from the proxy."""
PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds before each reconnection of a broken stream: the first, the second …; the last value repeats."""


class ProxySource:
    """Running proxy, read through its admin API."""

    def __init__(self, admin: Admin) -> None:
        self.admin, self.name = admin, admin.url
        self.page = token_hex(16)

    def open(self, text: str) -> SourceThread:
        Filter(text)  # reports an invalid filter at once; the proxy parses it again
        return ProxyThread(self.admin, text, self.page)

    def detail(self, ident: str) -> Mapping[str, Any]:
        found = self.admin("GET", f"/api/exchanges/{segment(ident)}")
        if not isinstance(found, dict):
            raise self.admin.other_server("JSON that is not an object")
        return found


class ProxyThread(SourceThread):
    """Thread that reads the stream of a proxy, and reconnects when it breaks."""

    def __init__(self, admin: Admin, text: str, page: str) -> None:
        super().__init__("view of a proxy")
        self.admin, self.text, self.page = admin, text, page
        self.last = ""
        self.breaks = 0

    def read(self) -> None:
        while True:
            try:
                self.listen()
            except (Refused, DocumentError) as refusal:
                if not self.last or getattr(refusal, "code", "") not in ("too_many_listeners", "too_many_connections"):
                    raise
                self.wait(str(refusal))  # the proxy has not noticed the end of the old stream
            except InternalError as error:
                self.wait(str(error))

    def listen(self) -> None:
        """Read the stream until it breaks. Raises InternalError then, Refused if the proxy rejects the request."""
        query = {"filter": self.text or None, "rows": ROWS, "page": self.page}
        for event in self.admin.events(STREAM, query, self.last):
            if not self.wanted:
                raise Stopped
            if not event.name:
                continue
            try:
                data = json.loads(event.data)
            except (ValueError, RecursionError):
                raise self.admin.other_server("an event without JSON") from None
            if isinstance(data, dict):
                self.last, self.breaks = event.id, 0
                self.put(event.name, data)

    def wait(self, why: str) -> None:
        """Report the broken stream, and wait before the next connection. Raises Stopped."""
        pause = PAUSES[min(self.breaks, len(PAUSES) - 1)]
        self.breaks += 1
        self.put("state", {"text": f"{why}; again in {pause:g} s", "good": False})
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            if not self.wanted:
                raise Stopped
            time.sleep(min(LOOK, left))
