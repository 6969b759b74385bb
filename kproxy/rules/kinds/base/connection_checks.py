"""Checks of rules about whole connections: which selectors they can have, and when they are in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kproxy.rules.document.model import KEY, Wrong
from kproxy.rules.document.source import Where
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.match import ConnectionMatch

OPENING = (*ConnectionMatch.model_fields, "node")
"""Selectors about what is known when a connection opens."""
TIMES = ("after", "for")


def of_frames(raw: dict[Any, Any], known: Sequence[str] = OPENING) -> Iterator[tuple[str, Where]]:
    """Yield the selectors, as they are written, about something that a connection that opens does not have; their
    places. `known`: what it has."""
    for side in ("match", "not"):
        for name in raw[side] if isinstance(raw.get(side), dict) else ():
            if name in FrameMatch.model_fields and name not in known:
                yield name, (side, name, KEY)


def for_connections(raw: dict[Any, Any], what: str, known: Sequence[str] = OPENING) -> Iterable[Wrong]:
    """Yield a mistake for each selector of frames: a rule about whole connections has none."""
    for name, where in of_frames(raw, known):
        yield where, f'{what}, so that "{name}" cannot be selected on, only {", ".join(known)}'


def for_a_time(raw: dict[Any, Any], what: str) -> Iterable[Wrong]:
    """Yield a mistake for each word of `when` but times: a rule about how bytes flow has no requests to count."""
    when = raw.get("when")
    for word, value in when.items() if isinstance(when, dict) else ():
        if word not in TIMES:
            yield ("when", word, KEY), f'{what}, so that "{word}" cannot be said, only {" and ".join(TIMES)}'
        elif word == "after" and isinstance(value, int):
            yield ("when", word), f"{what}: a duration is wanted, such as {value}s"
