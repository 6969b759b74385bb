"""The middle way: frames that are here as a whole and of which only numbers are wanted, but that are like none before.

Strategy. Requests to write are read for their rows (`row_reader.py`) and remembered as those of the short way are.
Responses, whatever they bring, are counted from their first bytes and their rows. What cannot be read in this way is
left to the slow one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kproxy.wire.primitives import Buffer

from .credentials import REQUEST, RESPONSE
from .error_places import error_at
from .hot import Ask
from .outgoing import HEAD
from .row_reader import read_rows
from .rows import produce_rows
from .seen import Depth
from .wanted import PRODUCE

if TYPE_CHECKING:
    from .short_way import ShortWay

HEADER = Struct(">iIih").unpack_from
"""Size, api key << 16 | version, correlation id, length of the client id."""
SHORT = Struct(">ii").unpack_from
"""Size and correlation id."""


def take_request(watcher: ShortWay, buf: Buffer, pos: int, n: int, now: float) -> int:
    """Take the Produce request at `pos`; the position behind it, -1 if it does not go this way."""
    if n - pos < 14:
        return -1
    size, code, correlation, length = HEADER(buf, pos)
    asks, end = watcher.asks.get(code), int(pos + 4 + size)
    if asks is None or not asks.rows or not asks.usable or end > n or length > size - 10:
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
        key = PRODUCE, asks.wanted.version, ask.client_id, None, 0
        watcher.summary.count(key, now, now, size + 4, 0, None, produce_rows(rows, {}))
    return end


def take_response(watcher: ShortWay, buf: Buffer, pos: int, n: int, now: float) -> int:
    """Take the response at `pos`; the position behind it, -1 if it does not go this way."""
    if not watcher.open or n - pos < 8 or watcher.summary is None:
        return -1
    correlation, ask, then, asked_size, asked_count = watcher.open[0]
    size, found = SHORT(buf, pos)
    end = int(pos + 4 + size)
    if found != correlation or not isinstance(ask, Ask) or not ask.wanted.counted or size < 4 or end > n:
        return -1
    wanted, rows = ask.wanted, None
    if wanted.depths[1] >= Depth.SKETCH:
        read = read_rows(wanted.key, wanted.version, RESPONSE, buf, pos, end)
        if read is None:
            return -1
        rows = read[0]
        if wanted.key == PRODUCE:
            answers = {(topic, index): (error, base) for topic, index, error, base in rows}
            rows = produce_rows(ask.asked(asked_size, asked_count) or [], answers)
    watcher.open.popleft()
    watcher.responses += 1
    error = error_at(wanted.key, wanted.version, buf[pos : min(pos + HEAD, end)])
    key = wanted.key, wanted.version, ask.client_id, error or None, ask.acks
    watcher.summary.count(key, then, now, asked_size + 4, size + 4, now - then, rows)
    return end
