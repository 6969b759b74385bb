"""Phases of a session, and the transitions between them.

Strategy. A session is in one phase at a time, and moves only by `SessionPhase.to`, which refuses what the table does
not have. The diagram in ARCHITECTURE.md is drawn from the table, and a test drives real sessions through each line of
it. How far a client's login is, is a state of its own (protocol/sasl/mechanisms.py), for a login can go on while a
session drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kproxy.base.errors import InternalError


class SessionPhase(Enum):
    """Phase of a session; the value says what holds in it."""

    NEW = "no request for the broker has come, which is not dialled"
    LOGIN = "the client has to authenticate to kproxy, for the first time or again"
    OPEN = "requests go to the broker, responses to the client"
    DRAINING = "no more requests are taken; those in flight are answered"
    REFUSED = "the client could not authenticate, and hears of it before the end"
    STALLED = "a rule lets nothing more pass; both sides stay connected and are read"
    CLOSING = "the driver has been asked to close both sides"
    OVER = "the connection is gone, and has given back what it held"

    next: tuple[SessionPhase, ...]
    """Phases into which a session goes from this one, by TRANSITIONS: to look there takes a hash in Python."""

    def to(self, phase: SessionPhase) -> SessionPhase:
        """Return `phase`, into which a session goes from this one. Raises InternalError if the table does not have
        it."""
        if phase not in self.next:
            raise InternalError(f"a session that is {self.name} cannot become {phase.name}")
        return phase

    @property
    def ends(self) -> bool:
        """Return True in CLOSING and OVER, where nothing that comes is taken any more."""
        return self is CLOSING or self is OVER

    @property
    def takes_requests(self) -> bool:
        """Return True in NEW, LOGIN and OPEN."""
        return self is OPEN or self is NEW or self is LOGIN


NEW, LOGIN, OPEN, DRAINING = SessionPhase.NEW, SessionPhase.LOGIN, SessionPhase.OPEN, SessionPhase.DRAINING
REFUSED, STALLED, CLOSING, OVER = SessionPhase.REFUSED, SessionPhase.STALLED, SessionPhase.CLOSING, SessionPhase.OVER

_BEFORE_CLOSING = (NEW, LOGIN, OPEN, DRAINING, REFUSED, STALLED)

TRANSITIONS: Final[Mapping[tuple[SessionPhase, SessionPhase], str]] = MappingProxyType(
    {
        (NEW, LOGIN): "the listener wants it, or a session without requests has ended",
        (NEW, OPEN): "the header of the first request is good: the broker is dialled",
        (LOGIN, NEW): "the client has authenticated",
        (LOGIN, OPEN): "the client has authenticated again",
        (OPEN, LOGIN): "the client authenticates again, or its session has ended",
    }
    | dict.fromkeys([(phase, DRAINING) for phase in (NEW, LOGIN, OPEN)], "a drain was asked for")
    | dict.fromkeys([(phase, REFUSED) for phase in (LOGIN, OPEN, DRAINING)], "a wrong mechanism or token")
    | dict.fromkeys([(phase, STALLED) for phase in (NEW, LOGIN, OPEN, REFUSED)], "a rule stalls the connection")
    | dict.fromkeys([(phase, CLOSING) for phase in _BEFORE_CLOSING], "a side ended or was wrong, or all is done")
    | dict.fromkeys([(phase, OVER) for phase in (*_BEFORE_CLOSING, CLOSING)], "the driver has lost or closed it")
)
"""By the phases before and after: what takes a session from one into the other."""

for _phase in SessionPhase:
    _phase.next = tuple(after for before, after in TRANSITIONS if before is _phase)
