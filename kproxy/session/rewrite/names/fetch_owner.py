"""Fetch sessions of clients that live in a part of the cluster (KIP-227).

A broker asks nobody whose a session is: whoever knows its number and its epoch is given the records of its partitions,
and may close it.

Strategy. A session belongs to the connection on which it began: the answer to a Fetch of epoch 0 tells its number. The
number of any other session is sent as 0, which is none. The broker then answers a request that continues one with
FETCH_SESSION_ID_NOT_FOUND, as after a restart of its own, and the client begins a new session; a client that connects
again has to do that once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import MAX_RESPONSE_HEADER, body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FETCH
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .remembered import FETCH_SESSIONS, MAX_FETCH_SESSIONS, recall, remember

SESSIONS_FROM: Final = 7  # the version of Fetch
NONE: Final = bytes(4)
OPENS: Final = "fetch_session_opens"
"""In the note of an exchange: its answer may tell the number of a new session."""
NUMBER_AT, HEAD_BYTES = 6, 10
"""Behind the header of the answer: throttle_time_ms and error_code, then the number."""
MAX_HEAD: Final = 4 + MAX_RESPONSE_HEADER + HEAD_BYTES  # bytes of a response up to the number's end


@dataclass(frozen=True, slots=True)
class OwnSessions:
    """Rewrite of the session number in a Fetch request: a session of another connection becomes none."""

    wanted: frozenset[str] = frozenset(("session_id", "session_epoch"))

    def bind(self, walk: Walk) -> Apply:
        number_mark, epoch_mark = (walk.find("value", path) for path in ("session_id", "session_epoch"))

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for mark, start, end in hits:
                if mark == number_mark:
                    number = bytes(buf[start:end])
                    if number != NONE and number not in recall(context.memory, FETCH_SESSIONS):
                        edits.replace(start, end, NONE)
                        context.count("fetch_sessions_unreachable")
                elif mark == epoch_mark:
                    if not any(buf[start:end]):
                        note = context.note = context.note or {}
                        note[OPENS] = True
                    return

        return apply


def learn_session(version: int, buf: Buffer, pos: int, n: int, end: int, context: Context) -> int:
    """Remember the session that the response at buf[pos:end] opens; the bytes before n have arrived.

    Return the bytes of the response, its size included, that have to arrive first, or 0 if no more are needed. Raises
    DecodeError.
    """
    header_version = schema.load(FETCH).header_version("response", version)
    here = min(n, end)
    body = body_start(buf, pos + 4, here, header_version, "response")
    if body is None or body + HEAD_BYTES > here:
        return min(max(2 * (here - pos), 32), end - pos, MAX_HEAD) if here < end else 0
    number = bytes(buf[body + NUMBER_AT : body + HEAD_BYTES])
    if number != NONE:
        remember(recall(context.memory, FETCH_SESSIONS), number, None, MAX_FETCH_SESSIONS)
    return 0
