"""Requests that begin like one before them, of which a first look has shown that no rule is about it.

Strategy. What a first look depends on stands at the beginning of most requests: the client id, and the name or id of
the only topic. As long as the next request begins with the same bytes, no rule is about it either, and nothing else of
it has to be there: it passes as if there were no rules. One beginning is remembered for each connection, for one step
of its plan; it is forgotten when something is heard of who the client is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from kproxy.wire.head import body_start, lone_topic, produce_acks

from .rewrite import Buffer
from .step import HEAD, Step

CLIENT_ID = 12
"""Bytes in front of the client id's length: the size, the API, its version, the correlation id, which changes."""
LONGEST = 1024
"""Bytes of a beginning that is remembered. Names and ids are far shorter."""
OF_ONE_TOPIC = frozenset((0, 1))
"""Produce, Fetch: whose first array is one of topics that begin with their name or id."""


class Familiar:
    """A beginning: `read(buf, pos + CLIENT_ID)` gives the bytes to be compared with `head`, once `end` bytes of the
    frame are there, size included. `answered`: such a request has a response."""

    __slots__ = ("answered", "end", "head", "read", "step")

    def __init__(self, step: Step, head: bytes, answered: bool) -> None:
        self.step, self.head, self.answered = step, head, answered
        self.end = CLIENT_ID + len(head)
        self.read = reader(len(head))


@cache
def reader(size: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """At most LONGEST of them are made."""
    return Struct(f"{size}s").unpack_from


def familiar(step: Step, buf: Buffer, pos: int, n: int) -> Familiar | None:
    """The beginning of the request at `pos`, size included, that no rule is about by what its screen reads. None: it
    does not tell enough, or the request's plain way needs more."""
    ruled, plain = step.ruled, step.plain
    if ruled is None or ruled.screen is None or not ruled.names_client or plain.request not in (None, HEAD):
        return None
    id_length = int.from_bytes(buf[pos + CLIENT_ID : pos + CLIENT_ID + 2], "big", signed=True)
    end = min(n, pos + 4 + int.from_bytes(buf[pos : pos + 4], "big"))
    if step.key in OF_ONE_TOPIC:
        body = body_start(buf, pos + 4, end, ruled.screen.header, "request")
        spans = None if body is None else lone_topic(step.key, step.version, "request")(buf, body, end)
        stop = 0 if spans is None else spans[-1][1]
    else:
        stop = 0 if ruled.screen.walk is not None else pos + CLIENT_ID + 2 + max(id_length, 0)
    start = pos + CLIENT_ID
    if not start < stop <= min(end, start + LONGEST):
        return None
    acks = produce_acks(step.version)(buf, pos + 4, end, id_length) if plain.request == HEAD else None
    return Familiar(step, bytes(buf[start:stop]), acks != 0)
