"""The screen that lists the keys."""

from __future__ import annotations

from textual.app import ComposeResult

from .details import TextList
from .host import Pane
from .keys import help_lines
from .paint import LineList, TextPart


class HelpPane(Pane):
    """Screen with all keys."""

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
