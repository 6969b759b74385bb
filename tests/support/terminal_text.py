"""Text of the terminal view's screen, for tests that compare it with a file.

`KPROXY_UPDATE_SCREENS=1` writes the files anew; then look at the difference.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.keys import _character_to_key

from kproxy.cli.tui.app import ViewApp


def screen_text(app: App[Any]) -> str:
    """Return what is on the screen, line by line, without blanks at the ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips).rstrip() + "\n"


def said(app: App[Any]) -> str:
    """Return what is on the screen in one line, with single blanks: words may be on any line of it."""
    return " ".join(screen_text(app).split())


def same_screen(app: App[Any], file: Path) -> None:
    found = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9190", screen_text(app))
    if os.environ.get("KPROXY_UPDATE_SCREENS"):
        file.write_text(found)
    assert found == file.read_text(), f"the screen is not as in {file.name}:\n{found}"


async def press(app: ViewApp, *keys: str) -> None:
    """Press keys, each when the one before has had its effect. A text of several letters that is no key's name is put
    into the line that is asked for."""
    for key in keys:
        if key.startswith("="):
            app.questions.input.value = key[1:]
            app.questions.input.cursor_position = len(key) - 1
            continue
        named = _character_to_key(key) if len(key) == 1 else key
        app.post_message(events.Key(named, key if len(key) == 1 else None))
        await idle()
    app.turn()
    await drawn()


async def idle() -> None:
    """Let messages go through the app: each hop from one widget to the next takes some turns of the loop."""
    for _ in range(60):
        await asyncio.sleep(0)


async def drawn() -> None:
    """Let the app lay out and draw what has changed, which it does sixty times a second."""
    await idle()
    await asyncio.sleep(0.04)
    await idle()


async def settled(app: ViewApp, condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until the condition holds, and what it led to is drawn."""
    limit = time.monotonic() + seconds
    while not condition() or app.errands.under_way:
        assert time.monotonic() < limit, screen_text(app)
        await asyncio.sleep(0.005)
        app.turn()
    app.turn()
    await drawn()
