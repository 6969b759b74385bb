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
