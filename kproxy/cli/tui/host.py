"""Base class of the screens, and their background work: jobs in threads, the reader of a source, the user's editor.

After a change of the filter, the old reader stays in use until the new one has returned its first event.
"""

from __future__ import annotations

import getpass
import os
import queue
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import SuspendNotSupported
from textual.containers import Vertical

from kproxy.base.errors import KproxyError

from .sources import SourceEvent, SourceThread
from .widgets import LineList, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

SEARCHED = 5000
"""Lines per search; `n` continues it."""


class Pane(Vertical, inherit_bindings=False):
    """Screen of the view; the keys 1 to 7 open one each."""

    hints = ""
    """Keys listed in the bottom line."""

    def __init__(self, host: ViewApp, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self.host = host
        self.sought = ""

    def shown(self) -> None:
        """Called when the screen opens."""

    def read(self) -> None:
        """Read the contents from the proxy again. Only tables have contents of their own."""

    def tick(self) -> None:
        """Called once a second while the screen is shown."""

    def about(self) -> Sequence[TextPart]:
        return ()

    def searched(self) -> LineList:
        raise NotImplementedError

    def do_search(self) -> None:
        self.host.prompt("search:", self.sought, self.search)

    def search(self, text: str) -> None:
        self.sought = text
        self.find_next(1)

    def do_search_on(self) -> None:
        self.find_next(1)

    def do_search_back(self) -> None:
        self.find_next(-1)

    def find_next(self, step: int) -> None:
        """Move to the next line (or the previous one) with the text, within SEARCHED lines."""
        wanted, lines = self.sought.lower(), self.searched()
        if not wanted:
            self.host.say("there is nothing to search for: / first", good=False)
            return
        line = lines.cursor
        for _ in range(SEARCHED):
            line += step
            if not 0 <= line < lines.count():
                self.host.say(f'no more "{self.sought}" in the list', good=False)
                return
            if wanted in lines.text(line).lower():
                lines.to(line)
                return
        lines.to(line)
        self.host.say(f'no "{self.sought}" in {SEARCHED} lines: n searches on')


LONGEST = 100
"""Characters of the longest name that the proxy accepts."""


@cache
def user() -> str:
    try:
        return getpass.getuser()[:LONGEST]
    except (OSError, KeyError, ImportError):
        return "somebody"


T = TypeVar("T")
MOST = 8
"""Errands that run at the same time."""


class Errands:
    """Threads for one blocking call each. `turn` runs in the loop and passes their results to callbacks.

    `failed` gets the message of a KproxyError or an OSError.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self.failed = failed
        self.done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.under_way = 0

    def start(self, what: Callable[[], T], then: Callable[[T], None]) -> None:
        """Call `what` in a thread, then `then` with its result in the loop."""
        if self.under_way >= MOST:
            self.failed("what was asked before has not been answered yet")
            return
        self.under_way += 1

        def run() -> None:
            try:
                found = what()
            except (KproxyError, OSError) as error:
                why = str(error)
                self.done.put(lambda: self.failed(why))
            else:
                self.done.put(lambda: then(found))

        threading.Thread(target=run, name="view asks", daemon=True).start()  # the program exits without waiting for it

    def turn(self) -> None:
        """Run the callbacks of all finished calls."""
        while not self.done.empty():
            self.under_way -= 1
            self.done.get()()


class Readers:
    """Readers of a source: the current one, and the next."""

    def __init__(self) -> None:
        self.present: SourceThread | None = None
        self.next: SourceThread | None = None

    def begin(self, reader: SourceThread) -> None:
        """Start the next reader. It replaces the current one after its first event."""
        if self.next is not None:
            self.next.stop()
        self.next = reader
        reader.start()

    def step(self) -> None:
        """Replace the current reader by the next one."""
        if self.present is not None:
            self.present.stop()
        self.present, self.next = self.next, None

    def stop(self) -> None:
        for reader in (self.present, self.next):
            if reader is not None:
                reader.stop()
        self.present = self.next = None

    def events(self, until: float) -> Iterator[tuple[SourceThread, SourceEvent]]:
        """Yield queued events with their readers until the monotonic clock reaches `until`."""
        for reader in (self.next, self.present):
            while reader is not None and time.monotonic() < until:
                try:
                    yield reader, reader.events.get_nowait()
                except queue.Empty:
                    break


def in_editor(app: Any, text: str, suffix: str) -> str | None:
    """Return the text after $VISUAL or $EDITOR. If the editor fails, show the error and return None."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="kproxy-view-") as folder:  # readable only by its owner
        file = Path(folder) / f"edit{suffix}"
        file.write_text(text)
        try:
            with app.suspend():
                code = subprocess.run([*command, str(file)], check=False).returncode
            after = file.read_text(errors="replace")
        except (OSError, SuspendNotSupported) as error:
            app.say(f"{command[0]} cannot be run: {error}; set EDITOR", good=False)
            return None
    if code:
        app.say(f"{command[0]} ended with {code}: nothing was done", good=False)
        return None
    return after
