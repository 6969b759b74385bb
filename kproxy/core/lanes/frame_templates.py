"""Beginnings of requests that were met before, with what was concluded about all requests that begin so.

Strategy. What most rules select by stands at the beginning of most requests: the client id, and the name or id of the
only topic. As long as a request begins with the same bytes as one before, the same rules match it, and nothing else of
it has to be there: if no rule does, or the triggers of those that do say that it is not their turn, it goes its plain
way. Some beginnings are kept for each connection; the last one is compared where frames are scanned, if the plain way
is to pass. All are forgotten when something is heard of who the client is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from kproxy.core.rewrite import Buffer
from kproxy.core.step import HEAD, Step
from kproxy.wire.scan.head import plain_head, single_topic
from kproxy.wire.table.api_keys import (
    FETCH,
    PRODUCE,
)

if TYPE_CHECKING:
    from kproxy.rules.running import Running

    from .frame import RequestView

CLIENT_ID = 12
"""Bytes in front of the client id's length: the size, the API, its version, the correlation id, which changes."""
LONGEST = 1024
"""Bytes of a beginning that is remembered. Names and ids are far shorter."""
MOST = 100
"""Beginnings that are remembered of a connection, 10 to 20 kB; with more of them, all are learnt anew."""
OF_ONE_TOPIC = frozenset((PRODUCE, FETCH))
"""Produce, Fetch: whose first array is one of topics that begin with their name or id, then the array of partitions."""


class FrameTemplate:
    """Beginning of requests of one step, client id to topic, and the rules that match each request that begins so.

    `read(buf, pos + CLIENT_ID)` gives the bytes to be compared with `head`, once `end` bytes of the frame are there,
    size included. `answered` is False for acks=0, `passes` True if the request needs no second look, `waiting` the
    rules in file order whose triggers have to be asked; it is empty where no rule matches.
    """

    __slots__ = ("answered", "client_id", "end", "head", "passes", "read", "step", "waiting")

    def __init__(self, step: Step, head: bytes, answered: bool) -> None:
        self.step, self.head, self.answered = step, head, answered
        self.end = CLIENT_ID + len(head)
        self.read = reader(len(head))
        self.passes = step.plain.request in (None, HEAD)
        self.waiting: tuple[Running, ...] = ()
        self.client_id: str | None = None


class FrameTemplates(dict[tuple[Step, bytes], FrameTemplate]):
    """Templates of one connection."""

    def recognise(self, frame: RequestView) -> FrameTemplate | None:
        """Return the template of the request, None if it is the first that begins so."""
        head = beginning(frame) if self else None
        return None if head is None else self.get((frame.step, head))

    def learn(self, frame: RequestView) -> FrameTemplate | None:
        """Return a new template for requests like this one, or None if its beginning does not tell enough."""
        head = beginning(frame)
        if head is None:
            return None
        if len(self) >= MOST:
            self.clear()
        template = self[frame.step, head] = FrameTemplate(frame.step, head, frame.answered)
        return template

    def learn_waiting(self, frame: RequestView, waiting: tuple[Running, ...]) -> FrameTemplate | None:
        """Return a new template for requests that `waiting` match, whose turn it need not be; None as for `learn`.

        Only for requests that pass if it is nobody's turn: a rewrite may look at a frame again, and rules count once.
        """
        template = self.learn(frame) if frame.step.plain.request in (None, HEAD) else None
        if template is not None:
            template.waiting, template.client_id = waiting, frame.client_id
        return template


@cache
def reader(size: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """Return a reader of `size` bytes, at most LONGEST; so at most as many are ever made."""
    return Struct(f"{size}s").unpack_from


def beginning(frame: RequestView) -> bytes | None:
    """Return what the selectors of all rules look at in the request; None: they look at more, or it is not all here."""
    step, buf, end = frame.step, frame.buf, frame.have
    program = step.program
    if program is None or not program.names_client or not (program.prefilter is not None or program.told_by_header):
        return None
    if program.prefilter is not None and program.prefilter.scan is not None:  # names may stand anywhere
        return None
    start = frame.start + CLIENT_ID
    after = start + 2 + max(frame.id_length, 0)
    if step.key in OF_ONE_TOPIC:
        head = plain_head(step.key, step.version, "request")
        topic = head.topic(buf, after, end)
        stop = single_topic_end(frame) if topic is None else topic[1]
        stop = after_count(buf, stop, end, compact=head.compact)
    elif program.prefilter is None or program.prefilter.walk is None:
        stop = after
    else:
        return None
    return bytes(buf[start:stop]) if start < stop <= min(end, start + LONGEST) else None


def single_topic_end(frame: RequestView) -> int:
    """Return where the only topic's name or id ends in a request with anything in its head, 0 if there is no such."""
    body, step = frame.body, frame.step
    spans = None if body is None else single_topic(step.key, step.version, "request")(frame.buf, body, frame.have)
    return 0 if spans is None else spans[-1][1]


def after_count(buf: Buffer, pos: int, end: int, *, compact: bool) -> int:
    """Return where the number of partitions ends that stands at `pos`; 0 if it is none or many, or not all here."""
    stop = pos + (1 if compact else 4)
    if not pos or stop > end:
        return 0
    count = buf[pos] - 1 if compact else int.from_bytes(buf[pos:stop], "big", signed=True)
    return stop if 0 < count < 0x7F else 0
