"""Learns templates (`hot.Answer`) of responses, and finds the one that matches a response; see `learn.py` for requests.

Where exchanges are counted, only responses without errors have templates: each one with an error has to be read.
"""

from __future__ import annotations

from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.elements import only_partition
from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.sketch import decode_sketch
from kproxy.wire.table.api_keys import FETCH, PRODUCE

from .batch_places import CONSTANTS, MOST_LEARNT, batch_place, shortened, spans, worth_trying
from .cells import WELL
from .credentials import RESPONSE
from .error_places import error_at, errors_in, place
from .frames import SIZE_BYTES
from .hot import BATCH, EXACT, PLAIN, PRODUCED, ROWS, Answer, Answers, Ask, read_form
from .outgoing import HEAD
from .rows import topic_of
from .seen import NO_ERRORS, Depth
from .summary import LONGEST

MOST_ALIKE = 1024
"""Bytes of a response at most that becomes a template as a whole (kind EXACT)."""
BASE = frozenset(("responses[].partition_responses[].base_offset",))


def part_key(ask: Ask) -> Any:
    """Return the key of the summary's cell (`cells.PartKey`) of the partition that requests of `ask` write to."""
    assert ask.part is not None
    topic, partition, codec, idempotent = ask.part
    return ask.wanted.key, ask.wanted.version, ask.client_id, topic, partition, 0, ask.acks, codec, idempotent


def find_answer(ask: Ask, buf: Buffer, pos: int, size: int, n: int) -> Answer | None:
    """Return the Answer that matches the response at `pos`, learnt if need be; None: it has to be read as usual.

    `size` is its length field; no more of it is looked at than stands before `n`.
    """
    if ask.kind == ROWS:
        return None
    answers = ask.answers
    found = known_answer(answers, buf, pos, size, n)
    if found is None and worth_trying(answers):
        frame = to_learn(ask, buf, pos, size, n)
        found = None if frame is None else learn_answer(ask, frame, size)
    if found is not None:
        answers.misses = 0
    return found


def to_learn(ask: Ask, buf: Buffer, pos: int, size: int, n: int) -> bytes | None:
    """Return the response at `pos` without its length field, or as much as suffices to learn from one not all here.

    None if what is before `n` does not suffice.
    """
    end = pos + 4 + size
    if end <= n:
        return bytes(buf[pos + 4 : end])
    if ask.wanted.depths[1] < Depth.SKETCH:
        return bytes(buf[pos + 4 : pos + HEAD]) if n - pos >= HEAD else None
    return shortened(buf, pos, n, size, ask.code, RESPONSE) if ask.wanted.key == FETCH else None


def known_answer(answers: Answers, buf: Buffer, pos: int, size: int, n: int) -> Answer | None:
    """Return the known Answer that matches the response at `pos`, None if there is none."""
    whole = pos + 4 + size <= n
    for length in answers.lengths:
        found = answers.known.get(bytes(buf[pos + 8 : min(pos + 8 + length, n)]))
        if found is not None and (found.size == 0 or (whole and found.size == size)):
            return found
    for where, form in answers.places.items():
        if size + 4 < form.size or pos + form.size > n:
            continue
        _, _, same, _, middle, _, length, magic, attributes, _, _ = form.unpack_from(buf, pos)
        if size == length + where.overhead and magic == 2:
            found = answers.known.get((where, same, attributes, middle))
            if found is not None:
                return found
    return None


def learn_answer(ask: Ask, frame: bytes, size: int) -> Answer | None:
    """Return a new Answer of a response of `size` bytes; None if it has an error, or its form has no template.

    `frame`: the response without its length field; its records may have been cut out (`batch_places.shortened`).
    """
    wanted = ask.wanted
    where = place(wanted.key, wanted.version) if wanted.counted else None
    if where is not None and error_at(wanted.key, wanted.version, bytes(4) + frame[:20]) != 0:
        return None
    if wanted.depths[1] < Depth.SKETCH:
        prefix = frame[4 : where[0] - 2] if where is not None else b""
        return remember(ask, Answer(ask, PLAIN, prefix, api_key(ask)), 0)
    if wanted.nested:
        return learn_whole(ask, frame)
    try:
        body = decode_sketch(frame, wanted.key, wanted.version, RESPONSE)
    except DecodeError:
        return None
    return learn_produced(ask, frame, body) if wanted.key == PRODUCE else learn_read(ask, frame, size, body)


def api_key(ask: Ask) -> Any:
    """Return the key of the summary's cell (`cells.ApiKey`) of requests of `ask` that the broker answered well."""
    return ask.wanted.key, ask.wanted.version, ask.client_id, WELL, ask.acks


def remember(ask: Ask, answer: Answer, size: int, key: Any = None) -> Answer:
    """Add `answer` to the known ones of `ask`, and return it.

    `size`: bytes that a response must have to match; 0: any number. `key`: the place of its record batch and the bytes
    that stay; without it the prefix is the key.
    """
    answers = ask.answers
    if len(answers.known) >= MOST_LEARNT:
        answers.known.clear()
        answers.lengths.clear()
        answers.places.clear()
    answer.size = size
    answers.known[key or answer.prefix] = answer
    if key is None and len(answer.prefix) not in answers.lengths:
        answers.lengths.append(len(answer.prefix))
    return answer


def learn_produced(ask: Ask, frame: bytes, body: dict[str, Any]) -> Answer | None:
    """Return a new Answer of a Produce response about the one partition that was asked for; None if it is not so."""
    part = only_partition(PRODUCE, ask.wanted.version, RESPONSE, body)
    if part is None or ask.part is None or (topic_of(part), part.number) != ask.part[:2]:
        return None
    if part.error_code or part.fields["base_offset"] < 0:
        return None
    start = spans(frame, PRODUCE, ask.wanted.version, RESPONSE, BASE)[0][1]
    answer = Answer(ask, PRODUCED, frame[4:start], api_key(ask), part_key(ask))
    return remember(ask, answer, len(frame))


def learn_whole(ask: Ask, frame: bytes) -> Answer | None:
    """Return a new Answer of a short response without errors that may come again to the last byte, as for a commit."""
    buf = bytes(SIZE_BYTES) + frame
    if len(frame) > MOST_ALIKE or errors_in(ask.wanted.key, ask.wanted.version, buf, 0, len(buf)) is not NO_ERRORS:
        return None
    return remember(ask, Answer(ask, EXACT, frame[4:], api_key(ask)), len(frame))


def learn_read(ask: Ask, frame: bytes, size: int, body: dict[str, Any]) -> Answer | None:
    """Return a new Answer of a Fetch or ShareFetch response that is empty, or of a Fetch response with one batch."""
    if not body["responses"]:
        return remember(ask, Answer(ask, EXACT, frame[4:], api_key(ask)), len(frame))
    part = only_partition(FETCH, ask.wanted.version, RESPONSE, body) if ask.wanted.key == FETCH else None
    if part is None:
        return None
    name = topic_of(part)
    if part.error_code or part.fields["high_watermark"] < 0 or len(name) > LONGEST:
        return None
    where = batch_place(frame, ask.wanted.version, RESPONSE, part.records)
    if where is None:
        return None
    attributes, _ = CONSTANTS.unpack_from(frame, where.before + where.width)
    codec = part.records.codec
    key = FETCH, ask.wanted.version, ask.client_id, name, part.number, 0, None, codec, None
    answer = Answer(ask, BATCH, frame[4 : where.prefix], api_key(ask), key)
    middle = frame[where.before - where.middle : where.before]
    where = where.of_size(size)
    answer.of_batch(where, attributes, middle)
    ask.answers.places[where] = read_form(where)
    return remember(ask, answer, 0, (where, answer.prefix, attributes, middle))
