"""What a session tells of an exchange that its bytes do not show: how long it was held, and which rules fired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

NO_ANSWER = -1
"""Stands for `older` where the request is due no answer."""


class Observer(Protocol):
    """Called while the session is at work; nothing that it does may touch the session.

    A client may use a correlation id twice at a time. `older` is how many exchanges with the same id had come before
    and were unanswered; NO_ANSWER for a request that is due none.
    """

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """A frame was held for so long, by a rule or for what had to be found out."""
        ...

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """These rules fired. `answered`: kproxy answers in the broker's place."""
        ...

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Rules put these error codes into the broker's answer, somewhere."""
        ...
