"""Requests that begin like one before them, of which a first look has shown that no rule is about it.

Strategy. What a first look depends on stands at the beginning of most requests: the client id, and the name or id of
the only topic. As long as a request begins with the same bytes as one before, no rule is about it either, and nothing
else of it has to be there: it goes its plain way. Some beginnings are remembered for each connection; the last one is
compared where frames are scanned, if the plain way is to pass. All are forgotten when something is heard of who the
client is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from kproxy.wire.head import body_start, lone_topic, plain_head, produce_acks

from .rewrite import Buffer
from .step import HEAD, Step

CLIENT_ID = 12
"""Bytes in front of the client id's length: the size, the API, its version, the correlation id, which changes."""
LONGEST = 1024
"""Bytes of a beginning that is remembered. Names and ids are far shorter."""
MOST = 100
"""Beginnings that are remembered of a connection, 10 to 20 kB; with more of them, all are learnt anew."""
OF_ONE_TOPIC = frozenset((0, 1))
"""Produce, Fetch: whose first array is one of topics that begin with their name or id."""


class Familiar:
    """A beginning: `read(buf, pos + CLIENT_ID)` gives the bytes to be compared with `head`, once `end` bytes of the
    frame are there, size included. `answered`: such a request has a response. `passes`: it needs no second look."""

    __slots__ = ("answered", "end", "head", "passes", "read", "step")

    def __init__(self, step: Step, head: bytes, answered: bool) -> None:
        self.step, self.head, self.answered = step, head, answered
        self.end = CLIENT_ID + len(head)
        self.read = reader(len(head))
        self.passes = step.plain.request in (None, HEAD)


class Familiars(dict[tuple[Step, bytes], Familiar]):
    """The beginnings of one connection."""

    def recognise(self, step: Step, buf: Buffer, pos: int, n: int) -> Familiar | None:
        """How the request at `pos`, size included, begins, if it is known that no rule is about such a one."""
        head = beginning(step, buf, pos, n) if self else None
        return None if head is None else self.get((step, head))

    def remember(self, step: Step, buf: Buffer, pos: int, n: int) -> Familiar | None:
        """No rule is about the request at `pos` by what its screen reads. None: its beginning does not tell enough."""
        head = beginning(step, buf, pos, n)
        if head is None:
            return None
        id_length = int.from_bytes(head[:2], "big", signed=True)
        acks = produce_acks(step.version)(buf, pos + 4, n, id_length) if step.plain.request == HEAD else None
        if len(self) >= MOST:
            self.clear()
        made = self[step, head] = Familiar(step, head, acks != 0)
        return made


@cache
def reader(size: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """At most LONGEST of them are made."""
    return Struct(f"{size}s").unpack_from


def beginning(step: Step, buf: Buffer, pos: int, n: int) -> bytes | None:
    """What a first look at the request at `pos` depends on. None: more than its beginning, or that is not all here."""
    ruled = step.ruled
    if ruled is None or ruled.screen is None or not ruled.names_client:
        return None
    start = pos + CLIENT_ID
    end = min(n, pos + 4 + int.from_bytes(buf[pos : pos + 4], "big"))
    after = start + 2 + max(int.from_bytes(buf[start : start + 2], "big", signed=True), 0)
    if step.key in OF_ONE_TOPIC:
        topic = plain_head(step.key, step.version, "request").topic(buf, after, end)
        stop = lone_topic_end(step, ruled.screen.header, buf, pos, end) if topic is None else topic[1]
    elif ruled.screen.walk is None:
        stop = after
    else:
        return None
    return bytes(buf[start:stop]) if start < stop <= min(end, start + LONGEST) else None


def lone_topic_end(step: Step, header: int, buf: Buffer, pos: int, end: int) -> int:
    """Where the only topic's name or id ends in a request with anything in its head. 0: there is none, or not all."""
    body = body_start(buf, pos + 4, end, header, "request")
    spans = None if body is None else lone_topic(step.key, step.version, "request")(buf, body, end)
    return 0 if spans is None else spans[-1][1]
