"""Exchanges of captures and event files, read in a thread; the last ones are kept whole for their details.

Strategy: a filter is asked while the files are read, so another filter reads them again. What is asked for in detail
and is not kept any more is found by reading its file up to there.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from kproxy.base.errors import InputError
from kproxy.cli.exchange_input import AnyView, Trouble, views
from kproxy.record.captures.pairs import MOST_IN_ALL, SideMatcher, is_at_broker
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView
from kproxy.record.live_view.rows import COLUMNS

from .file_exchange import details, row_of
from .sources import SourceThread

KEPT = 64 << 20
"""Bytes of frames that are kept for details."""
BATCH = 200
"""Rows that are handed out at a time."""
NEAR = 200
"""Exchanges behind one in which what passed of it at the broker is looked for."""
SOON = 0.1
"""Seconds after which fewer are."""


class KeptViews:
    """Exchanges by their ids, and what passed at the broker of them by `at_broker`: the last ones, as long as their
    frames have at most `most` bytes together."""

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.size = most, 0
        self.kept: OrderedDict[Hashable, tuple[AnyView, int]] = OrderedDict()
        self.lock = Lock()

    def keep(self, key: Hashable, view: AnyView) -> None:
        size = frame_bytes(view)
        with self.lock:
            _, before = self.kept.pop(key, (None, 0))
            self.kept[key] = view, size
            self.size += size - before
            while self.size > self.most and self.kept:
                _, (_, gone) = self.kept.popitem(last=False)
                self.size -= gone

    def get(self, key: Hashable) -> AnyView | None:
        with self.lock:
            found = self.kept.get(key)
        return found and found[0]


def frame_bytes(view: AnyView) -> int:
    """Return about how much memory an exchange needs."""
    if not isinstance(view, ExchangeView):
        return 2000
    frames = (view.seen.request, view.seen.response)
    return 1000 + sum(len(frame.data) + len(frame.sketch) for frame in frames if frame is not None)


def numbered(path: str, trouble: Trouble) -> Iterator[tuple[int, AnyView, bool]]:
    """Yield the exchanges of a file with their numbers, from 1 on, and False. Of those of kproxy's own captures also,
    somewhere behind it, what passed at the broker, with the same number and True."""
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
    """Return the key of what passed at the broker of an exchange."""
    return ident, "at the broker"


class ViewedFiles:
    """Captures, event files and folders of event files, one after the other."""

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
        """Return an exchange by its id, and what passed of it at the broker, None where that is not there. Reads its
        file once more if it is not kept. Raises KproxyError, OSError."""
        file, _, place = ident.partition("-")
        try:
            at, wanted = int(file), int(place)
            path = self.files[at]
        except (ValueError, IndexError):
            raise InputError(f"there is no exchange {ident}") from None
        found = self.kept.get(ident)
        if found is not None:
            return found, self.kept.get(at_broker(ident))
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
    """Thread that reads files once, and hands out the rows that a filter holds for."""

    def __init__(self, files: Sequence[str], wanted: Filter, kept: KeptViews) -> None:
        super().__init__("view of files")
        self.files, self.filter, self.kept = files, wanted, kept
        self.trouble = Trouble()
        self.rows: list[list[Any]] = []
        self.last: OrderedDict[str, None] = OrderedDict()  # ids of rows whose other side may still come
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
                        if len(self.last) > MOST_IN_ALL:
                            self.last.popitem(last=False)
                    if len(self.rows) >= BATCH or (not self.seen & 63 and time.monotonic() >= self.next):
                        self.flush()
        finally:
            self.flush()
        self.put("state", {"text": self.summary(), "good": not self.problems(), "over": True})

    def mark(self, ident: str, behind: AnyView) -> None:
        """Hand out a row once more: what passed at the broker was something else."""
        view = self.kept.get(ident) if ident in self.last else None
        if view is not None:
            self.kept.keep(at_broker(ident), behind)
            self.rows.append(row_of(ident, view, changed=True))

    def flush(self) -> None:
        """Hand out the rows that were read, and how far the reading is."""
        rows, self.rows = self.rows, []
        self.next = time.monotonic() + SOON
        if rows:
            self.put("rows", {"rows": rows})
        self.put("progress", {"seen": self.seen, "matched": self.matched})

    def summary(self) -> str:
        """Return what was read, and what could not be, in a line."""
        said = f"{self.seen} exchanges read" if not self.filter else f"{self.matched} of {self.seen} exchanges"
        return "; ".join((said, *self.problems()))

    def problems(self) -> list[str]:
        """Return what could not be read or judged, in words."""
        found = list(self.trouble.lines())
        if self.trouble.other:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.trouble.other.items()))
            found.append(f"other events passed over: {kinds}")
        if self.filter.unknown:
            found.append(f"{self.filter.unknown} could not be judged by the filter, the last: {self.filter.why}")
        return found
