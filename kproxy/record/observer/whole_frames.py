"""Whole frames without a matching template, or with a sink for their bytes: their rows are read, or they are copied.

Strategy. This is the layer between the templates and the streams, which take frames in pieces and cost most
(`streams.py`). If only numbers are needed, Produce requests are read for their rows (`partition_rows.py`) and enter
`open` like those with a template. Responses are counted from their first bytes and their rows. If frames are needed,
they are copied unchanged. Frames that need more care are left to the streams: those with credentials, long ones, and
those that are not all here.
"""

from __future__ import annotations

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import REQUEST_HEAD, RESPONSE_BEGINS
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import PRODUCE, SHARE_FETCH
from kproxy.record.exchange import NO_ERRORS, Depth, Form, Frame

from .credentials import REQUEST, RESPONSE
from .exchange_builder import OpenExchange
from .observation import SMALL, Observation
from .partition_rows import produce_rows, read_rows
from .response_errors import ERROR_HEAD, error_at, errors_in, in_order, throttle_at, throttle_in
from .summary_rows import WELL, Ending
from .summary_templates import RequestTemplates
from .templated_lines import FrameLineTemplate, TemplatedBuilder

HEADER = REQUEST_HEAD.unpack_from
"""Size, API key << 16 | version, correlation id, length of the client id of a request."""
SHORT = RESPONSE_BEGINS.unpack_from
"""Size and correlation id of a response."""


def take_request(
    builder: TemplatedBuilder, templates: dict[int, RequestTemplates], buf: Buffer, pos: int, n: int, now: float
) -> int:
    """Take the request at `pos` and return the position behind it; -1 if the stream has to read it.

    `templates`: by API key << 16 | version; they find one for requests of the same client id and acks.
    """
    if n - pos < 14:
        return -1
    size, code, correlation, length = HEADER(buf, pos)
    family, end = templates.get(code), int(pos + 4 + size)
    if family is None or size < 10 or end > n or length > size - 10:
        return -1
    if family.wanted.plain[0]:
        return keep_request(builder, family.wanted, buf, pos, now)
    if not family.rows or not family.usable:
        return -1
    found = read_rows(PRODUCE, family.wanted.version, REQUEST, buf, pos, end)
    if found is None:
        return -1
    rows, acks = found
    client = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
    template = family.of_client(client, acks)
    builder.requests += 1
    if acks:
        builder.open.append((correlation, template, now, size, rows))
    else:
        builder.end_silently((correlation, template, now, size, rows))
    return end


def take_response(builder: TemplatedBuilder, buf: Buffer, pos: int, n: int, now: float) -> int:
    """Take the response at `pos` and return the position behind it; -1 if the stream has to read it."""
    if not builder.open or n - pos < 8:
        return -1
    correlation, template, then, asked_size, asked_count = builder.open[0]
    size, found = SHORT(buf, pos)
    end = int(pos + 4 + size)
    if found != correlation or size < 4 or end > n:
        return -1
    if isinstance(template, FrameLineTemplate):
        template = builder.materialise(builder.open[0])
        builder.open.replace(0, (correlation, template, then, 0, 0))
    if isinstance(template, OpenExchange):
        return keep_response(builder, template, buf, pos, now) if template.wanted.plain[1] else -1
    if builder.summary is None or not template.wanted.counted:
        return -1
    wanted, rows, top = template.wanted, None, 0
    if wanted.nested:
        errors = errors_in(wanted.key, wanted.version, buf, pos, end)
    else:
        top = error_at(wanted.key, wanted.version, buf[pos : min(pos + ERROR_HEAD, end)]) or 0
        errors = in_order(top, ()) if top else NO_ERRORS
    if wanted.depths[1] >= Depth.SKETCH and not wanted.nested:
        read = read_rows(wanted.key, wanted.version, RESPONSE, buf, pos, end)
        if read is None:
            return -1
        rows = read[0]
        share = wanted.key == SHARE_FETCH
        if wanted.key == PRODUCE:
            responses = {(topic, index): (error, base) for topic, index, error, base in yielding(rows)}
            rows = produce_rows(template.asked(asked_size, asked_count) or [], responses)
        codes = [row[2] for row in yielding(rows) if row[2]]
        if codes:
            errors = errors_in(SHARE_FETCH, wanted.version, buf, pos, end) if share else in_order(top, codes)
    builder.open.popleft()
    builder.responses += 1
    ended = WELL if errors is NO_ERRORS else Ending("answered", "broker", errors.codes, (), errors.top)
    key = wanted.key, wanted.version, template.client_id, ended, template.acks
    # A response that arrives in pieces is kept, and its throttle time found anywhere, under the same condition.
    if wanted.nested or wanted.depths[1] >= Depth.SKETCH:
        throttle = throttle_in(wanted.key, wanted.version, buf, pos, end)
    else:
        throttle = throttle_at(wanted.key, wanted.version, buf[pos : min(pos + ERROR_HEAD, end)])
    builder.summary.count(key, then, now, asked_size + 4, size + 4, now - then, rows, throttle=throttle)
    yield_point()
    return end


def keep_request(builder: TemplatedBuilder, wanted: Observation, buf: Buffer, pos: int, now: float) -> int:
    """Open an exchange with a copy of the whole request at `pos`, of an API without credentials.

    Return the position after it, or -1 if it is too long or its acks cannot be read.
    """
    size, _, correlation, length = HEADER(buf, pos)
    end, acks = int(pos + 4 + size), None
    if size > min(builder.most, SMALL - 4 if wanted.small[0] else size):
        return -1
    if wanted.acks is not None:
        try:
            acks = wanted.acks(buf, pos + 4, end, length)
        except DecodeError:
            return -1
        if acks is None:
            return -1
    client_id = str(buf[pos + 14 : pos + 14 + length], "utf-8", "replace") if length >= 0 else None
    if size + 4 > builder.room:
        return -1
    builder.requests += 1
    found = builder.begin(correlation, wanted, client_id, now)
    builder.reserve(found, size + 4)
    seen = found.seen
    assert seen is not None, "somebody takes it"
    seen.request = Frame(size + 4, now, now, bytes(buf[pos + 4 : end]), Form.WHOLE)
    seen.acks = acks
    if acks == 0:
        builder.open.pop()  # no response will find it
        builder.finish(found, "no_answer_due", now)
    return end


def keep_response(builder: TemplatedBuilder, found: OpenExchange, buf: Buffer, pos: int, now: float) -> int:
    """End an exchange with a copy of the whole response at `pos`, of an API without credentials.

    Return the position after it, or -1 if it is too long.
    """
    size, wanted, seen = SHORT(buf, pos)[0], found.wanted, found.seen
    end = int(pos + 4 + size)
    most = min(builder.most, SMALL - 4 if wanted.small[1] else size)  # as `ExchangeBuilder.keep`
    if seen is None or size > most or not builder.reserve(found, size + 4):
        return -1
    builder.open.popleft()
    builder.responses += 1
    head = buf[pos : min(pos + ERROR_HEAD, end)]
    seen.known_errors = in_order(error_at(wanted.key, wanted.version, head) or 0, ())
    seen.known_throttle = throttle_at(wanted.key, wanted.version, head)
    seen.response = Frame(size + 4, now, now, bytes(buf[pos + 4 : end]), Form.WHOLE)
    builder.finish(found, "answered", now)
    if wanted.lined:
        builder.learn_line(seen, wanted)
    return end
