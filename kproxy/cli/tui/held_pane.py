"""The screen of held frames: resume, edit, answer, drop, close, and hold them longer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult

from kproxy.base.errors import KproxyError
from kproxy.cli.admin_client import Admin, segment

from .details import FieldList
from .exchange_rows import ReadValue, TerminalColumn, named, sized
from .frame_fields import TerminalFrame, as_yaml, changes, frame_of, values_of
from .host import user
from .tables import ListedItem, TablePane
from .widgets import TextPart

if TYPE_CHECKING:
    from .app import ViewApp

CLAIM = 10.0
"""Seconds between two claims of an edited frame; each claim lasts 30 seconds."""
MOST_EDITS = 100
"""Frames with kept edits."""


def _exchange(name: str) -> Any:
    def text(get: ReadValue) -> str | None:
        found = (get("exchange") or {}).get(name)
        return None if found is None else str(found)

    return text


def _left(get: ReadValue) -> str | None:
    left = get("ends_in")
    return None if left is None else f"{left:.0f} s"


class HeldPane(TablePane):
    """Screen with the frames that rules hold, and the fields of one frame."""

    DEFAULT_CSS = """
    HeldPane TableList { height: 1fr; max-height: 12; }
    HeldPane #fields { height: 1fr; border-top: solid ansi_blue; }
    """
    hints = "a resume  e edit  V undo  s answer  x drop  X close  + longer  A all  ? help"
    path, listed, key, every = "/api/held", "held", "id", 1
    columns = (
        TerminalColumn("id", 8, 1, named("id")),
        TerminalColumn("at", 8, 2, named("at")),
        TerminalColumn("api", 13, 0, lambda get: f"{_exchange('api')(get)} v{_exchange('version')(get)}", 24),
        TerminalColumn("conn", -4, 5, _exchange("connection")),
        TerminalColumn("rules", 12, 4, named("rules"), 30),
        TerminalColumn("left", -5, 3, _left),
        TerminalColumn("then", 5, 7, named("on_timeout")),
        TerminalColumn("bytes", -6, 8, sized("bytes")),
        TerminalColumn("behind", -6, 9, named("behind")),
        TerminalColumn("edits", 6, 6, lambda get: "edited" if get("edited") else "" if get("editable") else "no"),
        TerminalColumn("by", 8, 10, named("claimed_by")),
        TerminalColumn("client", 6, 11, lambda get: "ended" if get("client_ended") else ""),
    )  # fmt: skip

    def __init__(self, host: ViewApp, widget_id: str) -> None:
        super().__init__(host, widget_id)
        self.edits: dict[str, list[dict[str, Any]]] = {}
        self.drafts: dict[str, str] = {}
        self.frame = FieldList()
        self.open = ""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.frame

    def on_mount(self) -> None:
        self.table.on_move = self.moved

    def take(self, answer: Any) -> None:
        super().take(answer)
        there = [str(one.get("id")) for one in self.table.items]
        for kept in (self.edits, self.drafts):
            for ident in [one for one in kept if one not in there]:
                del kept[ident]
        self.table.show([{**one, "edited": str(one.get("id")) in self.edits} for one in self.table.items])
        self.moved()

    def more(self) -> Iterator[TextPart]:
        if self.answer.get("passed_over"):
            most, passed = self.answer.get("max_frames"), self.answer["passed_over"]
            yield f" · {passed} forwarded at the limit of {most} held frames", "yellow"

    def moved(self) -> None:
        """Show the fields of the frame at the cursor, unless they are already shown."""
        one = self.table.current()
        ident = "" if one is None else str(one.get("id"))
        if ident == self.open:
            return
        self.open = ident
        self.show_frame(None)
        admin = self.host.admin
        if ident and admin is not None:
            self.host.work(lambda: admin("GET", f"{self.path}/{segment(ident)}"), lambda held: self.opened(ident, held))

    def opened(self, ident: str, held: Any) -> None:
        if ident == self.open and isinstance(held, Mapping):
            self.show_frame(held.get("frame"))

    def show_frame(self, said: Any) -> None:
        self.frame.frame = frame_of(said) or TerminalFrame()
        self.frame.changed()

    # ---- edits

    def do_edit(self) -> None:
        one, admin = self.chosen(), self.host.admin
        if one is None or admin is None:
            return
        if not one.get("editable"):
            self.host.say(f"not editable: {one.get('why_not') or 'its rule does not decode it'}", good=False)
            return
        ident = str(one.get("id"))

        def ask() -> Any:
            self.claim(admin, ident)
            return admin("GET", f"{self.path}/{segment(ident)}")

        self.host.work(ask, lambda held: self.edit(ident, held))

    def edit(self, ident: str, held: ListedItem) -> None:
        """Open a frame in the editor, then let the proxy preview the changes."""
        before = values_of(held)
        with self.held_on(ident):
            text = self.host.edited(self.drafts.get(ident) or as_yaml(heading(held), before), ".yaml")
        if text is None:
            return
        self.drafts[ident] = text
        try:
            wanted = changes(text, before)
        except KproxyError as error:
            self.host.say(f"{error}; e continues the edit", good=False)
            return
        if not wanted:
            self.host.say("no changes")
            return

        def then(frame: Any) -> None:
            if len(self.edits) < MOST_EDITS:
                self.edits[ident] = wanted
            self.show_frame(frame.get("frame", frame) if isinstance(frame, Mapping) else None)
            self.host.say(f"{len(wanted)} changes: a resumes with them, V discards them")

        asked = {"revision": held.get("revision"), "set": wanted}
        self.host.change("POST", f"{self.path}/{segment(ident)}/preview", asked, then)

    def claim(self, admin: Admin, ident: str) -> None:
        admin("POST", f"{self.path}/{segment(ident)}/claim", json.dumps({"who": user()}).encode())

    @contextmanager
    def held_on(self, ident: str) -> Iterator[None]:
        """Extend the hold of a frame by claims until the context ends; the proxy limits the total."""
        admin, over = self.host.admin, threading.Event()

        def run() -> None:
            while admin is not None and not over.wait(CLAIM):
                with suppress(KproxyError, OSError):
                    self.claim(admin, ident)

        threading.Thread(target=run, name="view holds", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def do_undo(self) -> None:
        one = self.chosen()
        if one is not None:
            ident = str(one.get("id"))
            was = self.edits.pop(ident, None)
            self.drafts.pop(ident, None)
            self.open = ""
            self.moved()
            self.host.say("edits discarded" if was else "no edits")

    # ---- decisions

    def decide(self, what: str, said: str, **body: Any) -> None:
        one = self.chosen()
        if one is None:
            return
        whole = {"revision": one.get("revision"), "who": user(), **body}

        def then(answer: Any) -> None:
            self.host.say(said)
            self.read()

        self.host.change("POST", f"{self.path}/{segment(one.get('id'))}/{what}", whole, then)

    def do_resume(self) -> None:
        one = self.table.current()
        wanted = self.edits.get(str(one.get("id"))) if one is not None else None
        if wanted:
            self.decide("resume", f"resumed with {len(wanted)} changes", set=wanted)
        else:
            self.decide("resume", "resumed unchanged")

    def do_answer(self) -> None:
        one = self.chosen()
        if one is not None and one.get("at") != "request":
            self.host.say("expected a request, got a response", good=False)
        elif one is not None:
            self.host.prompt("answer with the error:", "REQUEST_TIMED_OUT", self.answer_with)

    def answer_with(self, error: str) -> None:
        self.decide("answer", f"answered with {error.strip()}", error=error.strip())

    def do_drop(self) -> None:
        if self.chosen() is not None:
            self.host.prompt("drop, then (stall, close, continue):", "stall", self.drop)

    def drop(self, connection: str) -> None:
        self.decide("drop", "dropped", connection=connection.strip())

    def do_close(self) -> None:
        if self.chosen() is not None:
            self.host.confirm("close its connection?", lambda: self.decide("close", "closed", close_with="fin"), "yes")

    def do_extend(self) -> None:
        one = self.chosen()
        if one is None:
            return

        def then(answer: Any) -> None:
            self.host.say("held for one more minute")
            self.read()

        self.host.change("POST", f"{self.path}/{segment(one.get('id'))}/extend", {"by": "60s", "who": user()}, then)


def heading(held: ListedItem) -> str:
    exchange = held.get("exchange")
    said = exchange if isinstance(exchange, Mapping) else {}
    longest = held.get("longest")
    most = f"; held while this editor is open, {longest:.0f} s at most" if isinstance(longest, (int, float)) else ""
    return (
        f"{said.get('api')} v{said.get('version')} {held.get('at')} of connection {said.get('connection')}, "
        f'held by "{held.get("rule")}"{most}'
    )
