"""Keys of the terminal view, their actions, the help and the input line. The app binds the keys; its
help and docs/live-view.md list them.

Where mitmproxy has a key for the same action, the view uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.widgets import Input

from kproxy.base.errors import plural
from kproxy.cli.admin_client import segment
from kproxy.cli.filters import is_file

from .details import TextList
from .host import Pane, user
from .sources import ViewedFiles
from .widgets import LineList, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

EVERYWHERE, LISTS, EXCHANGES, DETAILS = "everywhere", "in lists", "exchanges", "details"
HELD, RULES, CONNECTIONS, CAPTURES = "held", "rules", "connections", "captures"

SCREENS = ("exchanges", "details", "held", "rules", "connections", "captures", "help")
"""Names of the screens, in the order of the keys 1 to 7."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """Use of a key on some of the screens.

    `keys`: their names in Textual, separated by commas. `shown`: their names in the help. `does`: the method `do_…` of
    the screen, or of the app. `says`: help text. `changes`: the key changes the item at the cursor.
    """

    where: str
    keys: str
    shown: str
    does: str
    says: str
    changes: bool = False


KEYS = (
    KeyUse(EVERYWHERE, "1,2,3,4,5,6,7", "1 to 7", "screen", ", ".join(SCREENS)),
    KeyUse(EVERYWHERE, "question_mark", "?", "help", "this list"),
    KeyUse(EVERYWHERE, "q,escape", "q, Esc", "back", "back; from the exchanges: leave, asked back"),
    KeyUse(EVERYWHERE, "Q,ctrl+c", "Q", "leave", "leave at once"),
    KeyUse(EVERYWHERE, "colon", ":", "command", "do something by its name: clear, load FILE …"),
    KeyUse(EVERYWHERE, "f", "f", "filter", "set the filter; none: everything"),
    KeyUse(EVERYWHERE, "D", "D", "theme", "colours for a dark background, or a light one"),
    KeyUse(EVERYWHERE, "p", "p", "pause", "stop the list, go on; what comes meanwhile is kept and counted"),
    KeyUse(EVERYWHERE, "z", "z", "clear", "clear the list"),
    KeyUse(EVERYWHERE, "L", "L", "load", "read a file; without a name: back to the proxy"),
    KeyUse(EVERYWHERE, "i", "i", "intercept", "hold what a filter matches, for ten minutes or until the view ends"),
    KeyUse(EVERYWHERE, "I", "I", "intercepting", "turn that rule off, on, after a question"),
    KeyUse(EVERYWHERE, "A", "A", "resume_all", "resume all that is held, after a question"),
    KeyUse(EVERYWHERE, "K", "K", "faults", "disable all faults, after a question; again: enable them"),
    KeyUse(LISTS, "j,down", "j, ↓", "down", "a line down"),
    KeyUse(LISTS, "k,up", "k, ↑", "up", "a line up"),
    KeyUse(LISTS, "g,home", "g", "first", "to the first line"),
    KeyUse(LISTS, "G,end", "G", "last", "to the last line"),
    KeyUse(LISTS, "space,pagedown,ctrl+f", "space", "page_down", "a page down"),
    KeyUse(LISTS, "pageup,ctrl+b", "PgUp", "page_up", "a page up"),
    KeyUse(LISTS, "h,left", "h, ←", "to_left", "columns to the left; in details the part before"),
    KeyUse(LISTS, "l,right", "l, →", "to_right", "columns to the right; in details the next part"),
    KeyUse(LISTS, "enter", "Enter", "enter", "open: of an exchange the details, of a connection its exchanges"),
    KeyUse(LISTS, "slash", "/", "search", "search the lines for a text"),
    KeyUse(LISTS, "n", "n", "search_on", "search on"),
    KeyUse(LISTS, "N", "N", "search_back", "search backwards"),
    KeyUse(EXCHANGES, "F", "F", "follow", "follow what comes, or stay"),
    KeyUse(EXCHANGES, "v", "v", "reverse", "newest at the top, or at the bottom"),
    KeyUse(EXCHANGES, "M", "M", "mark", "mark it; again: unmark"),
    KeyUse(EXCHANGES, "minus", "-", "layout", "details below the list, or not; in details: bytes below or beside"),
    KeyUse(EXCHANGES, "m", "m", "make_rule", "make a rule of it, in $EDITOR"),
    KeyUse(EXCHANGES, "o", "o", "follow_what", "only the exchanges of its group, topic, client id …"),
    KeyUse(EXCHANGES, "c", "c", "its_connection", "only the exchanges of its connection"),
    KeyUse(EXCHANGES, "r", "r", "send_again", "send its request again; one that changes something, after a question"),
    KeyUse(EXCHANGES, "w", "w", "save", "save it as JSON, with its bytes"),
    KeyUse(DETAILS, "tab", "Tab", "next_part", "request, response, records, timing, event"),
    KeyUse(DETAILS, "right_square_bracket", "]", "next_field", "the next field"),
    KeyUse(DETAILS, "left_square_bracket", "[", "field_before", "the field before"),
    KeyUse(DETAILS, "b", "b", "bytes", "bytes of the client, of the broker, of both"),
    KeyUse(HELD, "a", "a", "resume", "resume it, with your edits; of a rule: all that it holds", True),
    KeyUse(HELD, "e", "e", "edit", "edit its fields in $EDITOR, as YAML, and hold it until that ends", True),
    KeyUse(HELD, "V", "V", "undo", "forget the edits"),
    KeyUse(HELD, "s", "s", "answer", "answer a request in the broker's place, with an error", True),
    KeyUse(HELD, "x", "x", "drop", "drop it", True),
    KeyUse(HELD, "X", "X", "close", "close its connection, after a question", True),
    KeyUse(HELD, "plus", "+", "extend", "hold it a minute more", True),
    KeyUse(RULES, "t", "t", "switch", "turn it off, on", True),
    KeyUse(RULES, "R", "R", "renew", "set its counters to 0; of a connection: recycle it, after a question", True),
    KeyUse(RULES, "d", "d", "remove", "remove it, after a question", True),
    KeyUse(CAPTURES, "S", "S", "start", "record what the filter holds for"),
    KeyUse(CAPTURES, "E", "E", "stop", "end a capture", True),
)  # fmt: skip
"""All keys. The help lists a key under one screen; it also acts on other screens that have its `do_…` method."""

CHANGES = frozenset(use.does for use in KEYS if use.changes)
CHOOSES = frozenset(use.does for use in KEYS if use.where == LISTS)
"""Actions that select a line. On a newly opened screen, keys of CHANGES do nothing before one of them."""


def help_lines() -> Iterator[tuple[str, str]]:
    """Yield (keys, action) for each line of the help; a heading has no keys."""
    for where, uses in groupby(KEYS, key=lambda use: use.where):
        yield "", where
        for use in uses:
            yield use.shown, use.says


def markdown() -> str:
    lines = ["| where | key | |", "|---|---|---|"]
    for use in KEYS:
        shown = ", ".join(f"`{key}`" for key in use.shown.split(", "))
        lines.append(f"| {use.where} | {shown} | {use.says.replace('|', '&#124;')} |")
    return "\n".join(lines) + "\n"


INTERCEPT_TTL = "10m"


class AppKeys:
    """Actions of the keys that act on every screen."""

    def __init__(self, app: ViewApp) -> None:
        self.app = app

    def do_help(self) -> None:
        self.app.show("help")

    def do_back(self) -> None:
        app = self.app
        if app.shown != "exchanges":
            app.show("exchanges")
        else:
            app.confirm("leave?", app.quit)

    def do_leave(self) -> None:
        self.app.quit()

    def do_command(self) -> None:
        self.app.prompt("do:", "", self.command)

    def command(self, text: str) -> None:
        """Run an action by name: that of a key, or a further one."""
        name, _, rest = text.strip().partition(" ")
        if name == "filter" and rest:
            self.app.set_filter(rest)
        elif name == "load" and rest:
            self.load(rest)
        elif name in {use.does for use in KEYS} | {"quit"}:
            self.app.use("leave" if name == "quit" else name)
        elif name:
            names = ", ".join(sorted({use.does for use in KEYS}))
            self.app.say(f'there is no "{name}"; there are {names}', good=False)

    def do_theme(self) -> None:
        self.app.turn_theme()

    def do_filter(self) -> None:
        self.app.prompt("filter:", self.app.filter_text, self.app.set_filter)

    def do_pause(self) -> None:
        self.app.pause()

    def do_clear(self) -> None:
        self.app.clear()

    def do_load(self) -> None:
        self.app.prompt("read the file (none: the proxy):", "", self.load)

    def load(self, name: str) -> None:
        """Read a file in place of the current source, or the proxy if the name is empty."""
        app, name = self.app, name.strip()
        try:
            there = not name or is_file(name)
        except Exception as error:  # noqa: BLE001 - click's own, for a name that looks like a file's
            app.say(str(getattr(error, "message", error)), good=False)
            return
        if not there or name == "-":
            app.say(f"file not found: {name}", good=False)
            return
        app.change_source(ViewedFiles([name]) if name else app.proxy)

    def do_intercept(self) -> None:
        self.app.prompt("hold what this filter holds for:", self.app.filter_text, self.intercept)

    def intercept(self, text: str) -> None:
        """Ask for confirmation, then add a rule that holds requests matching a filter."""
        rule: dict[str, Any] = {"name": self.rule_name(), "kind": "intercept"}
        if text.strip():
            rule["filter"] = text.strip()
        path = f"/api/rules?ttl={INTERCEPT_TTL}&replace=true&page={self.app.page}"

        def add() -> None:
            self.app.change("POST", path, {"rules": [rule]}, done)

        def done(answer: Any) -> None:
            self.app.intercepting = True
            self.app.say(f"held for ten minutes, or until this view ends: {text.strip() or 'everything'}; 3 shows it")

        self.app.confirm(f"hold {text.strip() or 'every request'} of all clients?", add)

    def rule_name(self) -> str:
        """Return the name of the rule that `i` adds from this terminal."""
        return f"hold for {user()}"

    def do_intercepting(self) -> None:
        app, name, on = self.app, self.rule_name(), not self.app.intercepting
        said = "on" if on else "off"
        path = f"/api/rules/{segment(name)}/{'enable' if on else 'disable'}"

        def turned(answer: Any) -> None:
            app.intercepting = on
            app.say(f'"{name}" is {said}')

        app.confirm(f'turn "{name}" {said}?', lambda: app.change("POST", path, None, turned), "yes")

    def do_resume_all(self) -> None:
        app = self.app

        def resume() -> None:
            app.change("POST", "/api/held/resume", {"who": user()},
                       lambda answer: app.say(f"{answer.get('resumed', '?')} resumed"))  # fmt: skip

        app.confirm("resume all that is held?", resume, "yes")

    def do_faults(self) -> None:
        app = self.app
        admin = app.admin
        if admin is None:
            app.say("files have no faults to turn off")
            return

        def then(found: Any) -> None:
            disabled = found.get("disabled") is True
            question = "enable all faults again?" if disabled else "disable all faults, for all clients?"
            path = f"/api/faults/{'enable' if disabled else 'disable'}"
            app.confirm(question, lambda: app.change("POST", path, None, done), "yes")

        def done(answer: Any) -> None:
            faults = answer.get("faults")
            count = plural(len(faults), "fault") if isinstance(faults, list) else "faults"
            app.say(f"{count} {'disabled' if answer.get('disabled') else 'enabled'}")

        app.work(lambda: admin("GET", "/api/faults"), then)


LONGEST_LINE = 4000
"""Characters of the longest input line."""


class Questions:
    """Questions to the user, one at a time. `say` shows a question; `done` is called when the input line closes."""

    def __init__(self, say: Callable[[str], None], done: Callable[[], None]) -> None:
        self.say, self.done = say, done
        self.input = Input(id="prompt", max_length=LONGEST_LINE, select_on_focus=False)
        self.input.display = False
        self.answer: Callable[[str], None] | None = None
        self.meant: Callable[[], None] | None = None

    @property
    def open(self) -> bool:
        return self.answer is not None

    def line(self, label: str, value: str, then: Callable[[str], None]) -> None:
        """Ask for a line of text, and pass it to `then`."""
        self.answer = then
        self.say(label)
        self.input.value, self.input.cursor_position = value, len(value)
        self.input.display = True
        self.input.focus()

    def answered(self, text: str) -> None:
        then = self.answer
        self.close()
        if then is not None:
            then(text)

    def close(self) -> None:
        self.answer = None
        self.say("")
        self.input.display = False
        self.done()

    def confirm(self, question: str, then: Callable[[], None], word: str = "") -> None:
        """Ask for confirmation, then call `then`. `word`: text that the user must type, so a stray key does nothing."""
        if word:
            self.line(f"{question} type {word}:", "", lambda text: then() if text.strip() == word else None)
            return
        self.meant = then
        self.say(f"{question} y does, any other key does not")

    def key(self, key: str) -> bool:
        """Use a key as the answer to an open confirmation. Return False if none is open."""
        then, self.meant = self.meant, None
        if then is None:
            return False
        self.say("")
        if key == "y":
            then()
        return True


class HelpPane(Pane):
    hints = "q back"

    def compose(self) -> ComposeResult:
        self.text = TextList("keys")
        yield self.text

    def on_mount(self) -> None:
        lines: list[TextPart] = []
        for keys, says in help_lines():
            lines.append((f"  {keys:10} {says}", "") if keys else (says, "bold"))
        self.text.show(lines)

    def searched(self) -> LineList:
        return self.text

    def shown(self) -> None:
        self.text.focus()
