"""Interface of the app for its screens and keys, the base class of all screens, and the name of the terminal's user."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from textual.containers import Vertical

from kproxy.cli.admin_client import Admin

from .exchange_rows import ExchangeStore
from .sources import ExchangeSource
from .widgets import LineList, TextPart

T = TypeVar("T")
SEARCHED = 5000
"""Lines that one search looks at; `n` goes on."""


class ViewHost(Protocol):
    """App as its screens see it."""

    source: ExchangeSource
    store: ExchangeStore
    filter_text: str

    @property
    def admin(self) -> Admin | None:
        """Return the client of the proxy's admin API, None while files are shown."""
        ...

    def say(self, text: str, good: bool = True) -> None:
        """Show a line at the bottom, until the next one."""
        ...

    def work(self, what: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `what` in a thread, then `then` with its result in the loop; a KproxyError is shown instead."""
        ...

    def change(self, method: str, path: str, body: Any, then: Callable[[Any], None]) -> None:
        """Send a request that changes something in the proxy, with this JSON, and give the answer to `then`."""
        ...

    def prompt(self, label: str, value: str, then: Callable[[str], None]) -> None: ...

    def confirm(self, question: str, then: Callable[[], None], word: str = "") -> None:
        """Ask a question that only `y` answers, or this word."""
        ...

    def edited(self, text: str, suffix: str) -> str | None:
        """Return the text as it was left in $EDITOR, None if that failed or nothing was changed."""
        ...

    def show(self, screen: str) -> None: ...

    def set_filter(self, text: str) -> None:
        """Have the list show what this filter holds for, if it is a right one."""
        ...


class KeyHost(ViewHost, Protocol):
    """App as the keys see it that act on every screen."""

    shown: str
    """The name of the screen that is shown."""
    intercepting: bool
    """True while the rule that `i` has put is on."""

    @property
    def page(self) -> str:
        """Return the id of this view: rules that it adds end with its stream."""
        ...

    @property
    def proxy(self) -> ExchangeSource: ...

    def use(self, does: str) -> None:
        """Do something by its name: the list that has the focus is asked first, then its screen, then the app."""
        ...

    def leave(self) -> None:
        """End the app, whatever is under way."""
        ...

    def clear(self) -> None: ...

    def pause(self) -> None:
        """Stop the list, or let it go on."""
        ...

    def turn_theme(self) -> None:
        """Change from colours for a dark background to those for a light one, or back."""
        ...

    def change_source(self, source: ExchangeSource) -> None: ...


class Pane(Vertical, inherit_bindings=False):
    """Screen of the view: one of the seven that the keys 1 to 7 show."""

    hints = ""
    """Keys that the bottom line names."""

    def __init__(self, host: ViewHost, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self.host = host
        self.sought = ""

    def shown(self) -> None:
        """Take note that the screen is shown from now on."""

    def read(self) -> None:
        """Ask the proxy for the contents again. Only tables have contents of their own."""

    def tick(self) -> None:
        """Take note that a second has passed while the screen is shown."""

    def about(self) -> Sequence[TextPart]:
        return ()

    def searched(self) -> LineList:
        raise NotImplementedError

    def do_search(self) -> None:
        self.host.prompt("search:", self.sought, self.search)

    def search(self, text: str) -> None:
        self.sought = text
        self.look(1)

    def do_search_on(self) -> None:
        self.look(1)

    def do_search_back(self) -> None:
        self.look(-1)

    def look(self, step: int) -> None:
        """Go to the next line, or the one before, that has the text; of a long list some lines at a time."""
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
"""Letters of a name that the proxy takes."""


@cache
def user() -> str:
    try:
        return getpass.getuser()[:LONGEST]
    except (OSError, KeyError, ImportError):
        return "somebody"
