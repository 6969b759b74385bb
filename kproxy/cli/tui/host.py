"""Base class of the screens, and the name of the terminal's user."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from textual.containers import Vertical

from .widgets import LineList, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

SEARCHED = 5000
"""Lines that one search looks at; `n` goes on."""


class Pane(Vertical, inherit_bindings=False):
    """Screen of the view: the keys 1 to 7 show one each."""

    hints = ""
    """Keys that the bottom line names."""

    def __init__(self, host: ViewApp, widget_id: str) -> None:
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
        self.find_next(1)

    def do_search_on(self) -> None:
        self.find_next(1)

    def do_search_back(self) -> None:
        self.find_next(-1)

    def find_next(self, step: int) -> None:
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
