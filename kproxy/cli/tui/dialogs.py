"""Dialogs of the view: an input line, a confirmation, and the screen that lists the keys."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Input

from .details import TextList
from .host import Pane
from .keys import help_lines
from .widgets import LineList, TextPart

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
