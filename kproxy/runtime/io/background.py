"""Tasks that run beside the traffic until they are told to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio


class Background:
    """Task that can be stopped. `spawn` starts a function in some nursery, `run` is what the task does."""

    def __init__(self, spawn: Callable[..., object], run: Callable[[], Awaitable[object]]) -> None:
        self.scope = trio.CancelScope()
        spawn(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[object]], *given: Any) -> None:
        with self.scope:
            await run()

    def stop(self) -> None:
        """Stop the task, at the next point where it waits."""
        self.scope.cancel()
