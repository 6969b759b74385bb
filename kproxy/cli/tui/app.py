"""The app of `kproxy view`: seven screens with a status line above and a line of keys below.

Blocking calls run in threads, which put results into queues. A timer empties these queues 20 times a second for some
milliseconds, so keys respond while a hundred thousand rows arrive.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Input

from kproxy.base.errors import FilterError, plural
from kproxy.base.terminal import in_line
from kproxy.cli.admin_client import Admin
from kproxy.cli.tui.host import Errands, Readers, in_editor
from kproxy.cli.tui.keys import HelpPane, Questions

from .details import DetailPane
from .exchange_rows import ExchangeStore
from .exchanges import ExchangePane
from .held_pane import HeldPane
from .host import Pane
from .keys import CHANGES, CHOOSES, KEYS, SCREENS, AppKeys
from .sources import ExchangeSource, ProxySource, SourceThread
from .tables import CapturePane, ConnectionPane, RulePane
from .widgets import Bar, TextPart

LEFT_OUT = {
    "not_looked_at": "CPU limit",
    "too_many": "too many",
    "too_slow": "read too slowly",
    "unknown": "not judged",
}
"""Texts for the reasons in the stream's `left`."""


class StreamState:
    """State of a source: its columns, its filter in the long form, rates, and omitted exchanges."""

    def __init__(self) -> None:
        self.stream = self.filter = ""
        self.columns: tuple[str, ...] = ()
        self.workers = 0
        self.may_write = False
        self.good, self.said, self.over = False, "waits for an answer", False
        self.left: dict[str, int] = {}
        self.why = ""
        self.gaps: list[str] = []
        self.seen: int | None = None
        self.matched = 0
        self.rate: Mapping[str, float] = {}
        self.rules: Mapping[str, Any] = {}
        self.lost_events = 0

    @property
    def trouble(self) -> str:
        """Return the reason why exchanges are missing, in one line; "" if none are."""
        if not self.good and self.said:
            return self.said
        return f"rows are missing: {self.gaps[-1]}" if self.gaps else ""

    def take(self, name: str, data: Mapping[str, Any]) -> None:
        match name:
            case "hello":
                self._hello(data)
            case "state" | "refused":
                self.good = data.get("good") is True
                self.said = str(data.get("text") or data.get("message") or "")
                self.over = data.get("over") is True
            case "progress":
                self.seen, self.matched = number(data.get("seen")), number(data.get("matched"))
            case "left":
                for key in LEFT_OUT:
                    self.left[key] = self.left.get(key, 0) + number(data.get(key))
                self.why = str(data.get("why") or self.why)
            case "gap":
                self.gaps = [*self.gaps[-9:], f"{data.get('missing')}, {data.get('why')}"]
            case "tick":
                self._tick(data)

    def _hello(self, data: Mapping[str, Any]) -> None:
        columns = data.get("columns")
        self.columns = tuple(map(str, columns)) if isinstance(columns, list | tuple) else ()
        self.stream, self.filter = str(data.get("stream") or ""), str(data.get("filter") or "")
        self.workers, self.may_write = number(data.get("workers")), data.get("may_write") is True
        self.good, self.said = True, ""

    def _tick(self, data: Mapping[str, Any]) -> None:
        seconds = data.get("seconds")
        per = seconds if isinstance(seconds, (int, float)) and seconds > 0 else 1.0
        self.rate = {name: number(data.get(name)) / per for name in ("passed", "matched")}
        rules, audit = data.get("rules"), data.get("audit")
        self.rules = rules if isinstance(rules, Mapping) else {}
        self.lost_events = number(audit.get("lost")) if isinstance(audit, Mapping) else 0

    def head(self) -> str:
        """Return the state in one line: rates or the progress in a file, and omitted exchanges."""
        if not self.good and not self.columns:
            return "not connected"
        said: list[str] = []
        if self.seen is not None:
            said.append(f"{self.matched} of {plural(self.seen, 'exchange')}{'' if self.over else ', reading'}")
        elif not self.good:
            said.append("the stream broke")
        if self.rate:
            said.append(f"{self.rate['passed']:,.0f}/s, {self.rate['matched']:,.0f}/s match")
        left = sum(self.left.values())
        if left:
            parts = ", ".join(f"{count:,} {LEFT_OUT[key]}" for key, count in self.left.items() if count)
            said.append(f"skipped {left:,}: {parts}")
        if self.lost_events:
            said.append(f"the audit has lost {self.lost_events:,}")
        if self.workers > 1:
            said.append(f"{self.workers} workers")
        if self.seen is None and not self.may_write:
            said.append("read only")
        return " · ".join(said) or "connected"


def number(value: Any) -> int:
    """Return a count from an event; 0 for an invalid one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


T = TypeVar("T")
THEMES = ("ansi-dark", "ansi-light")
TURN = 0.05
"""Seconds between two checks of the queues."""
NO_CHANGE = "files are only looked at: a running proxy can be changed"
SHARE = 0.03
"""Seconds that one check takes at most."""


class ViewScreen(Screen[None], inherit_bindings=False):
    """The only screen of Textual. It binds the keys of KEYS."""

    BINDINGS = [
        Binding(key, f"app.use('{use.does}', '{key}')", use.says, show=False)
        for use in KEYS
        for key in use.keys.split(",")
    ]


class ViewApp(App[None], inherit_bindings=False):
    """Terminal view of a source of exchanges. `proxy`: the source that `L` without a name returns to."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #panes { height: 1fr; }
    #prompt { border: none; height: 1; padding: 0; dock: bottom; }
    #prompt:focus { border: none; }
    """

    def __init__(self, source: ExchangeSource, filter_text: str, proxy: ProxySource, light: bool = False) -> None:
        super().__init__(ansi_color=True)  # the colours are the terminal's own
        self.theme = THEMES[light]
        self.source, self.proxy = source, proxy
        self.filter_text = filter_text
        self.store = ExchangeStore()
        self.state = StreamState()
        self.readers = Readers()
        self.errands = Errands(lambda why: self.say(why, good=False))
        self.message: TextPart = ("", "")
        self.questions = Questions(self.say, self.refocus)
        self.intercepting = False
        self.keys = AppKeys(self)
        self.details = DetailPane(self)
        self.exchanges = ExchangePane(self, self.details)
        self.panes: dict[str, Pane] = {
            "exchanges": self.exchanges, "details": self.details, "held": HeldPane(self, "held"),
            "rules": RulePane(self, "rules"), "connections": ConnectionPane(self, "connections"),
            "captures": CapturePane(self, "captures"), "help": HelpPane(self, "help"),
        }  # fmt: skip
        self.shown = "exchanges"
        self.before = "exchanges"
        self.chosen = False  # True after a line was selected on this screen
        self.head, self.line, self.foot = Bar("head", "reverse"), Bar("filter"), Bar("foot", most=4)

    @property
    def pane(self) -> Pane:
        return self.panes[self.shown]

    @property
    def page(self) -> str:
        return self.proxy.page

    @property
    def admin(self) -> Admin | None:
        return self.proxy.admin if self.source is self.proxy else None

    def get_default_screen(self) -> Screen[None]:
        return ViewScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.line
        with Vertical(id="panes"):
            yield from self.panes.values()
        yield self.foot
        yield self.questions.input

    def on_mount(self) -> None:
        for name, pane in self.panes.items():
            pane.display = name == self.shown
        self.set_interval(TURN, self.turn)
        self.set_interval(1.0, self.second)
        self.pane.shown()
        self.read()

    def on_unmount(self) -> None:
        self.readers.stop()

    # ---- what comes

    def read(self) -> bool:
        """Start a reader of the source with the filter. The current reader stays in use until the new one has returned
        its first event. Return False for an invalid filter."""
        try:
            self.readers.begin(self.source.open(self.filter_text))
        except FilterError as error:
            self.say(f"{error.problem}, in column {error.at + 1}", good=False)
            return False
        return True

    def turn(self) -> None:
        """Process results of threads for SHARE seconds at most."""
        self.errands.turn()
        for reader, event in self.readers.events(time.monotonic() + SHARE):
            self.take(reader, event.name, event.data)
        self.draw()

    def take(self, reader: SourceThread, name: str, data: Mapping[str, Any]) -> None:
        """Process an event of a reader. Until the next reader is current, only its `hello` and `refused` count."""
        readers = self.readers
        if name == "hello":
            self.begin(reader, data)
        elif reader is readers.next and readers.present is not None:
            if name == "refused":
                readers.next = None
                self.say(str(data.get("message")), good=False)
                self.filter_text = self.state.filter
        elif name == "rows":
            rows = data.get("rows")
            self.exchanges.take(rows if isinstance(rows, list) else [])
        else:
            self.state.take(name, data)
            self.refresh_if_named(name)

    def begin(self, reader: SourceThread, data: Mapping[str, Any]) -> None:
        """Make a reader the current one. A reader that reconnects keeps its rows, unless its stream is a new one."""
        if reader is self.readers.next:
            self.readers.step()
            self.state = StreamState()
            self.clear()
        before = self.state.stream
        self.state.take("hello", data)
        if before and before != self.state.stream:
            self.clear()  # its exchange numbers start again
        self.store.begin(self.state.columns)
        self.filter_text = self.state.filter or self.filter_text

    def refresh_if_named(self, name: str) -> None:
        """Read the current screen again if the event names it. The focus stays: a question may be open."""
        if name == self.shown:
            self.pane.read()

    def second(self) -> None:
        self.pane.tick()

    def clear(self) -> None:
        self.exchanges.clear()

    def pause(self) -> None:
        self.exchanges.pause()

    # ---- what is drawn

    def draw(self) -> None:
        """Redraw the top and bottom lines that have changed."""
        number = SCREENS.index(self.shown) + 1
        self.head.say((f" {number} {self.shown} ", "bold"), (f"{self.source.name} · {self.state.head()}", ""))
        self.line.say(*self.pane.about())
        trouble = self.state.trouble
        if self.message[0]:
            self.foot.say(self.message)
        elif trouble:
            self.foot.say((trouble, "bold yellow"))
        else:
            self.foot.say((self.pane.hints, "dim"))

    # ---- what the screens ask for

    def say(self, text: str, good: bool = True) -> None:
        """Show a message in the bottom line."""
        self.message = (in_line(" ".join(text.split())), "" if good else "bold red")

    def work(self, what: Callable[[], T], then: Callable[[T], None]) -> None:
        """Call `what` in a thread, then `then` with its result in the loop. A KproxyError is shown instead."""
        self.errands.start(what, then)

    def change(self, method: str, path: str, body: Any, then: Callable[[Any], None]) -> None:
        """Send a request that changes the proxy, with this JSON body, and pass the response to `then`."""
        admin = self.admin
        if admin is None:
            self.say(NO_CHANGE, good=False)
            return
        data = None if body is None else json.dumps(body).encode()
        self.work(lambda: admin(method, path, data), then)

    def prompt(self, label: str, value: str, then: Callable[[str], None]) -> None:
        self.questions.line(label, value, then)

    def confirm(self, question: str, then: Callable[[], None], word: str = "") -> None:
        """Ask a question. Only `y`, or `word` if given, confirms it."""
        if word and self.admin is None:
            self.say(NO_CHANGE, good=False)
        else:
            self.questions.confirm(question, then, word)

    def refocus(self) -> None:
        self.pane.shown()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.questions.answered(event.value)

    def on_key(self, event: events.Key) -> None:
        """Use a key as the answer to an open confirmation before its normal action."""
        if self.questions.key(event.key):
            event.stop()
            event.prevent_default()

    def edited(self, text: str, suffix: str) -> str | None:
        """Return the text after $EDITOR; None if that failed or the text is unchanged."""
        return in_editor(self, text, suffix)

    def show(self, screen: str) -> None:
        if screen != self.shown:
            self.before = self.shown
            self.chosen = False
            self.pane.display = False
            self.shown = screen
            self.pane.display = True
            self.message = ("", "")
        self.pane.shown()

    def set_filter(self, text: str) -> None:
        before, self.filter_text = self.filter_text, text.strip()
        if not self.read():
            self.filter_text = before

    # ---- keys

    def action_use(self, does: str, key: str = "") -> None:
        """Run the action of a key. While an input line is open, only `back` acts, and closes it."""
        if self.questions.open:
            if does == "back":
                self.questions.close()
            else:
                self.questions.input.focus()  # a click on a list has moved the focus
            return
        self.message = ("", "")
        if does == "screen":
            self.show(SCREENS[int(key or 1) - 1])
        elif does in CHANGES and self.shown not in ("exchanges", "details") and not self.chosen:
            # a second key right after the one that opened the screen must not change anything
            self.say("choose a line first: j or k", good=False)
        else:
            self.chosen |= does in CHOOSES
            self.use(does)

    def on_click(self) -> None:
        self.chosen = True

    def use(self, does: str) -> None:
        """Run an action by name: of the focused list, otherwise of its screen, otherwise of the app."""
        for who in (self.focused, self.pane, self.keys):
            method = getattr(who, f"do_{does}", None)
            if method is not None:
                method()
                return
        self.say("that does nothing on this screen")

    def quit(self) -> None:
        self.exit()

    def turn_theme(self) -> None:
        self.theme = THEMES[self.theme == THEMES[0]]

    def change_source(self, source: ExchangeSource) -> None:
        self.readers.stop()
        self.source, self.state = source, StreamState()
        self.clear()
        self.show("exchanges")
        self.read()
