"""Facts of an exchange that its bytes do not show, told by the session: how long it was held, and which rules fired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

NO_ANSWER = -1
"""Stands for `older` where the request is due no answer."""


class Observer(Protocol):
    """Listener to one session, called while the session is at work; it must not touch the session.

    A client may use a correlation id twice at a time. `older` is how many exchanges with the same id had come before
    and were unanswered; NO_ANSWER for a request that is due none.
    """

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Add to the time that a frame waited in the session: for a rule, or for a lookup, memory or its rest.

        The time counts whether the frame itself was the cause or a frame before it. It may come in several parts.
        """
        ...

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """Note that these rules fired. `answered`: kproxy answers in the broker's place."""
        ...

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Note that rules put these error codes into the broker's answer, somewhere."""
        ...

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        """Note that this rule throttled the exchange, and that the channel is muted for `mute` seconds after it."""
        ...
