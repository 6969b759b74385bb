"""Depths to which a live rule has to see a frame."""

from __future__ import annotations

from enum import IntEnum


class Depth(IntEnum):
    """Depth to which a rule sees a frame. NOTHING: the rule does nothing there. HEADER: api, version, client id and
    length do, the frame streams on. BODY: the frame is held until it is whole, within the budget of held frames."""

    NOTHING, HEADER, BODY = range(3)
