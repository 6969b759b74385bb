"""What a session tells of an exchange that its bytes do not show: how long it was held, and which rules fired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Observer(Protocol):
    """Called while the session is at work; nothing that it does may touch the session."""

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool) -> None:
        """A frame was held for so long, by a rule or for what had to be found out."""
        ...

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False) -> None:
        """These rules fired. `answered`: kproxy answers in the broker's place."""
        ...

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Rules put these error codes into the broker's answer, somewhere."""
        ...
