"""Widgets that draw their own lines. They create only the visible lines, so long lists are as fast as short ones.

Clients and brokers choose names and values. So all text passes `strip_of`, which escapes control characters and
bidirectional or invisible letters, as `kproxy tail` does.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kproxy.base.terminal import in_line

TextPart = tuple[str, str]
"""Text and its rich style; "" is the style of the line."""
WHEEL = 3
"""Lines per step of the mouse wheel."""


@lru_cache(maxsize=200)
def style_of(words: str) -> Style:
    return Style.parse(words)


def fit(text: str, width: int) -> str:
    """Return the text cut or padded to `width` cells. A negative `width` aligns to the right."""
    text, most = in_line(text), abs(width)
    length = len(text) if text.isascii() else cell_len(text)
    if length > most:
        return f"{set_cell_size(text, most - 1)}…" if most else ""
    blank = " " * (most - length)
    return blank + text if width < 0 else text + blank


def strip_of(parts: Iterable[TextPart], width: int, base: Style) -> Strip:
    """Return a line of exactly `width` cells with escaped texts. `…` marks a cut line."""
    segments, left = [], width
    for text, words in parts:
        clean = in_line(text)
        length = len(clean) if clean.isascii() else cell_len(clean)
        if length > left:
            clean, length = fit(clean, left), left
        segments.append(Segment(clean, base + style_of(words) if words else base))
        left -= length
        if not left:
            break
    if left:
        segments.append(Segment(" " * left, base))
    return Strip(segments, width)


def nothing() -> None:
    """Default of `on_move`."""


class Painted(Widget, inherit_bindings=False):
    """Widget that builds its lines from parts when it is drawn."""

    def parts(self, y: int, width: int) -> Sequence[TextPart]:
        """Return the parts of line `y`, counted from the top."""
        raise NotImplementedError

    def base(self, y: int) -> str:
        """Return the rich style of the whole line."""
        return ""

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        words = self.base(y)
        base = self.rich_style + style_of(words) if words else self.rich_style
        return strip_of(self.parts(y, width), width, base)


class Bar(Painted):
    """Line of text at the top or the bottom of the screen. `most`: highest number of lines for a long text."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, widget_id: str, style: str = "", most: int = 1) -> None:
        super().__init__(id=widget_id)
        self.style_words, self.most = style, most
        self.said: list[TextPart] = []

    def say(self, *parts: TextPart) -> None:
        if list(parts) == self.said:
            return
        self.said = list(parts)
        if self.most > 1:
            self.styles.height = max(1, min(self.most, len(self.wrapped(self.size.width))))
        self.refresh()

    def wrapped(self, width: int) -> list[str]:
        text = in_line("".join(text for text, _ in self.said))
        return textwrap.wrap(text, max(width, 20)) if len(text) > width > 0 else [text]

    def parts(self, y: int, width: int) -> Sequence[TextPart]:
        if self.most == 1:
            return self.said
        lines = self.wrapped(width)
        return [(lines[y], self.said[0][1])] if y < len(lines) and self.said else ()

    def base(self, y: int) -> str:
        return self.style_words


class LineList(Painted, can_focus=True):
    """List of lines with a cursor. Only visible lines are created."""

    DEFAULT_CSS = "LineList { height: 1fr; width: 1fr; }"

    def __init__(self, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self.top = self.cursor = 0
        self.on_move: Callable[[], None] = nothing

    def count(self) -> int:
        raise NotImplementedError

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        raise NotImplementedError

    def line_style(self, index: int) -> str:
        return ""

    def text(self, index: int) -> str:
        """Return the text of a line, for a search."""
        return "".join(text for text, _ in self.line(index, 400))

    def parts(self, y: int, width: int) -> Sequence[TextPart]:
        index = self.top + y
        return self.line(index, width) if index < self.count() else ()

    def base(self, y: int) -> str:
        index = self.top + y
        if index >= self.count():
            return ""
        words = self.line_style(index)
        return f"{words} reverse".strip() if index == self.cursor and self.selects() else words

    def selects(self) -> bool:
        """Return True if the line at the cursor is shown as selected."""
        return True

    def changed(self) -> None:
        """Redraw with the cursor on an existing, visible line."""
        self.to(self.cursor)

    def to(self, index: int) -> None:
        """Move the cursor to this line or the nearest existing one, and scroll to it."""
        count, height, before = self.count(), max(self.size.height, 1), self.cursor
        self.cursor = max(0, min(index, count - 1))
        self.top = max(0, min(self.top, self.cursor, count - 1))
        if self.cursor >= self.top + height:
            self.top = self.cursor - height + 1
        self.refresh()
        if self.cursor != before:
            self.on_move()

    def scroll_by(self, lines: int) -> None:
        """Scroll, and keep the cursor on a visible line."""
        count, height = self.count(), max(self.size.height, 1)
        self.top = max(0, min(self.top + lines, count - height))
        self.to(max(self.top, min(self.cursor, self.top + height - 1)))

    def on_resize(self) -> None:
        self.changed()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_by(WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_by(-WHEEL)

    def on_click(self, event: events.Click) -> None:
        self.to(self.top + event.y)

    def do_down(self) -> None:
        self.to(self.cursor + 1)

    def do_up(self) -> None:
        self.to(self.cursor - 1)

    def do_first(self) -> None:
        self.to(0)

    def do_last(self) -> None:
        self.to(self.count() - 1)

    def do_page_down(self) -> None:
        self.to(self.cursor + max(self.size.height - 1, 1))

    def do_page_up(self) -> None:
        self.to(self.cursor - max(self.size.height - 1, 1))
