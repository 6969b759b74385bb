"""Lane without a session, for tests of the memory for held frames."""

from __future__ import annotations

from typing import Any, cast

from kproxy.session.held_memory import HeldMemory, Hold


class MemoryLane:
    """Lane of one client network. `missing`: bytes of its frame that have not arrived."""

    source, target = 0, 1
    blocked = ""

    def __init__(self, network: str = "a", session: Any = None) -> None:
        self.network, self.session = network, session
        self.reserved: Hold | None = None
        self.reserved_at = 0.0
        self.missing = 0

    def ask(self, memory: HeldMemory, size: int, now: float = 0.0) -> bool:
        """Reserve memory for a frame of which no byte has arrived."""
        self.missing, self.reserved_at = size, now
        memory.reserve(cast("Any", self), size)
        return self.reserved is not None

    def __repr__(self) -> str:
        return f"<lane of {self.network}>"
