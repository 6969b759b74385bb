"""Learns templates of the responses to requests that are alike, and finds the one that matches a response.

Where exchanges are counted, only responses without errors have templates: each one with an error has to be read.
"""

from __future__ import annotations

from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.elements import only_partition
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.record.exchange import NO_ERRORS, Depth

from .credentials import RESPONSE
from .observation import SIZE_BYTES
from .partition_rows import topic_of
from .response_errors import error_at, errors_in, place, throttle_in
from .streams import ERROR_HEAD
from .summary import LONGEST
from .summary_templates import BATCH, EXACT, PLAIN, PRODUCED, ROWS, RequestTemplate, ResponseTemplate
from .template_cache import CONSTANTS, TemplateCache, batch_place, read_form, shortened, spans

MOST_ALIKE = 1024
"""Bytes of a response at most that becomes a template as a whole (kind EXACT)."""
BASE = frozenset(("responses[].partition_responses[].base_offset", "throttle_time_ms"))


def find_response_template(
    template: RequestTemplate, buf: Buffer, pos: int, size: int, n: int
) -> ResponseTemplate | None:
    """Return the template that matches the response at `pos`, learnt if need be; None: it has to be read as usual.

    `size` is its length field; bytes from `n` on are not read.
    """
    if template.kind == ROWS:
        return None
    responses = template.response_templates
    found = known_response(responses, buf, pos, size, n)
    if found is None and responses.worth_learning():
        frame = to_learn(template, buf, pos, size, n)
        found = None if frame is None else learn_response(template, frame, size)
    if found is not None:
        responses.misses = 0
    return found


def to_learn(template: RequestTemplate, buf: Buffer, pos: int, size: int, n: int) -> bytes | None:
    """Return the response at `pos` without its length field, or as much as suffices to learn from one not all here.

    None if what is before `n` does not suffice.
    """
    end = pos + 4 + size
    if end <= n:
        return bytes(buf[pos + 4 : end])
    if template.wanted.depths[1] < Depth.SKETCH:
        return bytes(buf[pos + 4 : pos + ERROR_HEAD]) if n - pos >= ERROR_HEAD else None
    return shortened(buf, pos, n, size, template.code, RESPONSE) if template.wanted.key == FETCH else None


def known_response(
    responses: TemplateCache[ResponseTemplate], buf: Buffer, pos: int, size: int, n: int
) -> ResponseTemplate | None:
    """Return the known template that matches the response at `pos`; None if missing."""
    whole = pos + 4 + size <= n
    found: ResponseTemplate | None
    for found in responses.with_prefix(buf, pos + 8, n):
        if found.size == 0 or (whole and found.size == size):
            return found
    for where, fields in responses.batches(buf, pos, size, n):
        _, _, same, _, middle, _, length, magic, attributes, _, _ = fields
        if size == length + where.overhead and magic == 2:
            found = responses.known.get((where, same, attributes, middle))
            if found is not None:
                return found
    return None


def learn_response(template: RequestTemplate, frame: bytes, size: int) -> ResponseTemplate | None:
    """Return a new template of a response of `size` bytes; None if it has an error, or its form has no template.

    `frame`: the response without its length field; its records may have been cut out (`batch_place.shortened`).
    """
    wanted = template.wanted
    where = place(wanted.key, wanted.version) if wanted.counted else None
    if where is not None and error_at(wanted.key, wanted.version, bytes(4) + frame[:20]) != 0:
        return None
    told = place(wanted.key, wanted.version, throttle=True) if wanted.counted else None
    if told is not None and (len(frame) < told[0] or (told[1] and frame[4])):
        return None  # a template of this few bytes would match responses with a throttle time
    if wanted.counted and throttle_in(wanted.key, wanted.version, bytes(4) + frame, 0, 4 + len(frame)):
        return None  # its throttle time is to be read
    if wanted.depths[1] < Depth.SKETCH:
        # The bytes that have to be the same: no error, and no throttle time.
        prefix = frame[4 : max(where[0] - 2 if where is not None else 0, told[0] if told is not None else 0)]
        return remember(template, ResponseTemplate(template, PLAIN, prefix, template.api_key), 0)
    if wanted.nested:
        return learn_whole(template, frame)
    try:
        body = decode_sketch(frame, wanted.key, wanted.version, RESPONSE)
    except DecodeError:
        return None
    return learn_produced(template, frame, body) if wanted.key == PRODUCE else learn_read(template, frame, size, body)


def remember(template: RequestTemplate, response: ResponseTemplate, size: int) -> ResponseTemplate:
    """Add a template of responses of `size` bytes (0: any number) that go on with its prefix, and return it."""
    response.size = size
    template.response_templates.remember_prefix(response.prefix, response)
    return response


def learn_produced(template: RequestTemplate, frame: bytes, body: dict[str, Any]) -> ResponseTemplate | None:
    """Return a new template of a Produce response about the one partition that was asked for; None if it is not so."""
    part = only_partition(PRODUCE, template.wanted.version, RESPONSE, body)
    if part is None or template.part is None or (topic_of(part), part.number) != template.part[:2]:
        return None
    if part.error_code or part.fields["base_offset"] < 0:
        return None
    found = spans(frame, PRODUCE, template.wanted.version, RESPONSE, BASE)
    start, throttle_at = found[0][1], found[1][1] if len(found) > 1 else 0
    response = ResponseTemplate(template, PRODUCED, frame[4:start], template.api_key, template.partition_key)
    response.of_produced(start, throttle_at)
    return remember(template, response, len(frame))


def learn_whole(template: RequestTemplate, frame: bytes) -> ResponseTemplate | None:
    """Return a new template of a short response without errors that may come again to the last byte."""
    buf = bytes(SIZE_BYTES) + frame
    if (
        len(frame) > MOST_ALIKE
        or errors_in(template.wanted.key, template.wanted.version, buf, 0, len(buf)) is not NO_ERRORS
    ):
        return None
    return remember(template, ResponseTemplate(template, EXACT, frame[4:], template.api_key), len(frame))


def learn_read(template: RequestTemplate, frame: bytes, size: int, body: dict[str, Any]) -> ResponseTemplate | None:
    """Return a new template of a Fetch or ShareFetch response that is empty, or of a Fetch response with one batch."""
    wanted = template.wanted
    if not body["responses"]:
        return remember(template, ResponseTemplate(template, EXACT, frame[4:], template.api_key), len(frame))
    part = only_partition(FETCH, wanted.version, RESPONSE, body) if wanted.key == FETCH else None
    if part is None:
        return None
    name = topic_of(part)
    if part.error_code or part.fields["high_watermark"] < 0 or len(name) > LONGEST:
        return None
    where = batch_place(frame, wanted.version, RESPONSE, part.records)
    if where is None:
        return None
    attributes, _ = CONSTANTS.unpack_from(frame, where.before + where.width)
    codec = part.records.codec
    key = FETCH, wanted.version, template.client_id, name, part.number, 0, None, codec, None
    response = ResponseTemplate(template, BATCH, frame[4 : where.prefix], template.api_key, key)
    middle = frame[where.before - where.middle : where.before]
    where = where.of_size(size)
    response.of_batch(where, attributes, middle)
    alike = where, response.prefix, attributes, middle
    template.response_templates.remember(alike, response, where, read_form(where))
    return response
