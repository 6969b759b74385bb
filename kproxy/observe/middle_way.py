"""Whole frames that no template matches, or whose bytes somebody takes: rows are read of them, or they are copied.

Strategy. This stands between the templates (`hot.py`) and the streams, which take frames byte by byte and cost most
(`incoming.py`, `outgoing.py`). Where only numbers are wanted, Produce requests are read for their rows
(`row_reader.py`) and enter `open` as those do that match a template; responses are counted from their first bytes and
their rows. Where frames are wanted, they are copied as they are. Frames that need more care are left to the streams:
those with credentials, and those that are long or not all here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.wire.breath import each
from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.frames import REQUEST_HEAD, RESPONSE_BEGINS
from kproxy.wire.table.api_keys import PRODUCE, SHARE_FETCH

from .cells import SILENT, WELL, Ending
from .credentials import REQUEST, RESPONSE
from .error_places import error_at, errors_in, in_order
from .exchanges import Open
from .journal import RequestTemplate, learn
from .outgoing import HEAD
from .row_reader import read_rows
from .rows import produce_rows
from .seen import NO_ERRORS, Depth, Form, Frame
from .wanted import SMALL, Wanted

if TYPE_CHECKING:
    from .short_way import ShortWay

HEADER = REQUEST_HEAD.unpack_from
"""Size, API key << 16 | version, correlation id, length of the client id of a request."""
SHORT = RESPONSE_BEGINS.unpack_from
"""Size and correlation id of a response."""


def take_request(watcher: ShortWay, buf: Buffer, pos: int, n: int, now: float) -> int:
    """Take the request at `pos` and return the position behind it; -1 if the stream has to read it."""
    if n - pos < 14:
        return -1
    size, code, correlation, length = HEADER(buf, pos)
    asks, end = watcher.asks.get(code), int(pos + 4 + size)
    if asks is None or size < 10 or end > n or length > size - 10:
        return -1
    if asks.wanted.plain[0]:
        return keep_request(watcher, asks.wanted, buf, pos, now)
    if not asks.rows or not asks.usable:
        return -1
    found = read_rows(PRODUCE, asks.wanted.version, REQUEST, buf, pos, end)
    if found is None:
        return -1
    rows, acks = found
    client = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
    ask = asks.of_rows(client, acks)
    watcher.requests += 1
    if acks:
        watcher.open.append((correlation, ask, now, size, rows))
    elif watcher.summary is not None:
        key = PRODUCE, asks.wanted.version, ask.client_id, SILENT, 0
        watcher.summary.count(key, now, now, size + 4, 0, None, produce_rows(rows, {}))
    return end


def take_response(watcher: ShortWay, buf: Buffer, pos: int, n: int, now: float) -> int:
    """Take the response at `pos` and return the position behind it; -1 if the stream has to read it."""
    if not watcher.open or n - pos < 8:
        return -1
    correlation, ask, then, asked_size, asked_count = watcher.open[0]
    size, found = SHORT(buf, pos)
    end = int(pos + 4 + size)
    if found != correlation or size < 4 or end > n:
        return -1
    if isinstance(ask, RequestTemplate):
        ask = watcher.slowly(watcher.open[0])
        watcher.open[0] = correlation, ask, then, 0, 0
    if isinstance(ask, Open):
        return keep_response(watcher, ask, buf, pos, now) if ask.wanted.plain[1] else -1
    if watcher.summary is None or not ask.wanted.counted:
        return -1
    wanted, rows, top = ask.wanted, None, 0
    if wanted.nested:
        errors = errors_in(wanted.key, wanted.version, buf, pos, end)
    else:
        top = error_at(wanted.key, wanted.version, buf[pos : min(pos + HEAD, end)]) or 0
        errors = in_order(top, ()) if top else NO_ERRORS
    if wanted.depths[1] >= Depth.SKETCH and not wanted.nested:
        read = read_rows(wanted.key, wanted.version, RESPONSE, buf, pos, end)
        if read is None:
            return -1
        rows = read[0]
        share = wanted.key == SHARE_FETCH
        if wanted.key == PRODUCE:
            answers = {(topic, index): (error, base) for topic, index, error, base in each(rows)}
            rows = produce_rows(ask.asked(asked_size, asked_count) or [], answers)
        codes = [row[2] for row in each(rows) if row[2]]
        if codes:
            errors = errors_in(SHARE_FETCH, wanted.version, buf, pos, end) if share else in_order(top, codes)
    watcher.open.popleft()
    watcher.responses += 1
    ended = WELL if errors is NO_ERRORS else Ending("answered", "broker", errors.codes, (), errors.top)
    key = wanted.key, wanted.version, ask.client_id, ended, ask.acks
    watcher.summary.count(key, then, now, asked_size + 4, size + 4, now - then, rows)
    return end


def keep_request(watcher: ShortWay, wanted: Wanted, buf: Buffer, pos: int, now: float) -> int:
    """Open an exchange with a copy of the whole request at `pos`, which has no credentials in it.

    Returns the position behind it; -1 if it is too long, or its acks cannot be read.
    """
    size, _, correlation, length = HEADER(buf, pos)
    end, acks = int(pos + 4 + size), None
    if size > (SMALL - 4 if wanted.small[0] else watcher.most):
        return -1
    if wanted.acks is not None:
        acks = wanted.acks(buf, pos + 4, end, length)
        if acks is None:
            return -1
    client_id = str(buf[pos + 14 : pos + 14 + length], "utf-8", "replace") if length >= 0 else None
    if size + 4 > watcher.room:
        return -1
    watcher.requests += 1
    found = watcher.begin(correlation, wanted, client_id, now)
    watcher.reserve(found, size + 4)
    seen = found.seen
    assert seen is not None, "somebody takes it"
    seen.request = Frame(size + 4, now, now, bytes(buf[pos + 4 : end]), Form.WHOLE)
    seen.acks = acks
    if acks == 0:
        watcher.open.pop()  # no response will find it
        watcher.over(found, "no_answer_due", now)
    return end


def keep_response(watcher: ShortWay, found: Open, buf: Buffer, pos: int, now: float) -> int:
    """End an exchange with a copy of the whole response at `pos`, which has no credentials in it.

    Returns the position behind it; -1 if it is too long to be kept.
    """
    size, wanted, seen = SHORT(buf, pos)[0], found.wanted, found.seen
    end = int(pos + 4 + size)
    if seen is None or size > (SMALL - 4 if wanted.small[1] else watcher.most) or not watcher.reserve(found, size + 4):
        return -1
    watcher.open.popleft()
    watcher.responses += 1
    seen.known_errors = in_order(error_at(wanted.key, wanted.version, buf[pos : min(pos + HEAD, end)]) or 0, ())
    seen.response = Frame(size + 4, now, now, bytes(buf[pos + 4 : end]), Form.WHOLE)
    watcher.over(found, "answered", now)
    if wanted.lined:
        learn(watcher, seen, wanted)
    return end
