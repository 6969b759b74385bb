"""Phases of a connection, in a module of their own: its sides and all who look after it ask for them."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """Phases of a connection, in the order in which it goes through them; see `connection`."""

    OPEN, CLOSING, LINGERING, CLOSED = range(4)
