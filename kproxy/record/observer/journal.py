"""Records exchanges that match templates by one line each, without decoding them, many lines at a time.

Strategy. Where a line of text is all that somebody wants of each exchange (`Depth.LINES`), most of a line is the same
for exchanges that are alike. The first one is read as usual and handed out; then it is learnt: a template of its
request (`number_template.py`), below that one of its response, and with that the parts that its line is made of, as the
`Journal` gives them. Of an exchange that both templates match, the journal gets the numbers only, in one call for all
that ended in the same read, and nothing is decoded. A frame that no template matches, or that a rule acted on, is read
as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Protocol

from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import rest
from kproxy.protocol.primitives import Buffer
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange, Who

from .credentials import REQUEST, RESPONSE
from .exchange_builder import ExchangeBuilder, Interest
from .frames import SIZE_BYTES
from .line_counts import LineCounts
from .number_template import LearntFrame, NumberTemplate, has_one_place, learn_frame
from .observation import SMALL, Observation, code_of
from .open_exchanges import OpenEntry, OpenExchange
from .template_cache import Learner, make_room

CODE = Struct(">I").unpack_from
SMALLEST_REQUEST, SMALLEST_RESPONSE = 14, 8
"""Bytes, length field included, that are needed to know which templates to try."""
MOST_AT_ONCE = 32
"""Exchanges that are written in one call: a fifth of a millisecond."""
MOST_FORMS = 8
"""Templates that are tried for a frame. Clients have three: lengths of records take one byte, two or three."""
MOST_LINES = 512
"""Lines that are learnt on one connection until all are forgotten: 1 MB, or 10 MB at worst, with long names."""
AGAIN = 1 / 16
"""Part of the work of learning one template that is saved by each exchange that matches it."""
HIGHEST = 1 << 62
"""Frames with larger numbers are read as usual: an offset plus a count of records must not exceed 64 bits."""
NOTHING_WAITED = (0.0, 0.0)


JournalEntry = tuple[Any, float, tuple[int, ...], tuple[int, ...]]
"""Exchange that is over: the result of `Journal.learn`, when its request came, and the numbers of request and response,
of which the first two are the frame's size without its length field, and its correlation id."""
OpenRequest = tuple[Buffer, tuple[int, ...], int]
"""Request that matched: the frame without its length, its numbers, and the number of the exchange."""


class Journal(Protocol):
    """Recorder of the exchanges of one connection by their lines."""

    @property
    def standing(self) -> object:
        """Return a token; when it is another object, all lines that were learnt are out of date."""
        ...

    def learn(self, seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame) -> Any:
        """Return the parts that lines of exchanges like this one are made of, None if there can be no such parts."""
        ...

    def write(self, exchanges: Sequence[JournalEntry], now: float) -> None:
        """Make the lines of exchanges whose responses left at `now`."""
        ...


class JournalTemplates:
    """Templates of the requests of one API and version. `learner`: each exchange that matches one makes up for misses.
    The templates have it, too, and not their family, which would then live as long as they, and they as long as it.
    """

    __slots__ = ("forms", "learner")

    def __init__(self) -> None:
        self.learner = Learner()
        self.forms: list[NumberTemplate] = []


class JournalTemplate:
    """Template of requests that are alike on one connection, with the templates of their responses."""

    __slots__ = ("acks", "client_id", "learner", "responses", "wanted")
    response_template = None
    """Summaries do not count such requests, so the loop that matches for them finds no template here."""

    def __init__(self, learner: Learner, wanted: Observation, client_id: str | None, acks: int | None) -> None:
        self.learner, self.wanted, self.client_id, self.acks = learner, wanted, client_id, acks
        self.responses: list[NumberTemplate] = []

    def materialise(self, who: Who, entry: OpenEntry) -> OpenExchange:
        """Return the open exchange of an entry whose request matched this template, as if it had been read."""
        _, _, then, size, (data, numbers, number) = entry
        wanted, frame = self.wanted, Frame(size + SIZE_BYTES, then, then, bytes(data), Form.WHOLE)
        seen = ObservedExchange(who, number, wanted.key, wanted.version, numbers[1], self.client_id, frame)
        seen.acks = self.acks
        exchange = OpenExchange(numbers[1], wanted, seen)
        exchange.kept = frame.size
        return exchange


class JournalRecorder(ExchangeBuilder):
    """Builder of one connection's exchanges that gives the journal those that match templates, without building them.

    `journal`: takes, in place of `take`, exchanges of which only lines are wanted. `recorded`: templates by API key <<
    16 | version. `learnt`: lines that they were learnt with.
    """

    journal: Journal | None = None

    def refocus(self, interest: Interest) -> None:
        super().refocus(interest)
        self.recorded: dict[int, JournalTemplates] = {}
        self.learnt = 0

    def record_requests(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Open exchanges for the requests at `pos` that templates match; return the position behind them."""
        opened, known, count = self.open, self.recorded, self.awaited + self.requests
        before = count
        if type(buf) is memoryview:  # its memory is used again, but requests are kept
            buf = bytes(buf[:n])
        while n - pos >= SMALLEST_REQUEST:
            templates = known.get(CODE(buf, pos + 4)[0])
            if templates is None:
                break
            for form in templates.forms:
                if n - pos < form.reach:
                    continue
                fields = form.unpack(buf, pos)
                template = form.known.get(form.constants(fields))
                if template is None:
                    continue
                numbers = form.numbers(fields)
                end = pos + 4 + numbers[0]
                if end <= n and min(numbers) >= 0 and (not form.batch or form.fits(buf, end, fields, numbers)):
                    break
            else:
                break
            size = numbers[0] + 4
            if size > self.room or size > SMALL:
                break
            self.room -= size
            count += 1
            opened.append((numbers[1], template, now, numbers[0], (buf[pos + 4 : end], numbers, count)))
            pos = end
        self.requests += count - before
        return pos

    def record_responses(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Record the exchanges whose responses at `pos` match templates; return the position behind these."""
        journal, opened = self.journal, self.open
        assert journal is not None, "something was learnt"
        standing, count = journal.standing, 0
        batch: list[JournalEntry] = []
        while opened and n - pos >= SMALLEST_RESPONSE:
            correlation, template, begun, asked_size, request = opened[0]
            if type(template) is not JournalTemplate:
                break
            for form in template.responses:
                if n - pos < form.reach:
                    continue
                fields = form.unpack(buf, pos)
                answer = form.known.get(form.constants(fields))
                if answer is None or answer[0] is not standing:
                    continue
                numbers = form.numbers(fields)
                end = pos + 4 + numbers[0]
                if (
                    numbers[1] == correlation
                    and end <= n
                    and min(numbers) >= 0
                    and max(numbers) < HIGHEST
                    and (not form.batch or form.fits(buf, end, fields, numbers))
                ):
                    break
            else:
                break
            opened.popleft()
            self.room += asked_size + 4
            count += 1
            template.learner.misses -= AGAIN
            batch.append((answer[1], begun, request[1], numbers))
            if answer[2] is not None:
                answer[2].count(self.summary, begun, request[1], numbers, now)
            pos = end
            if len(batch) >= MOST_AT_ONCE:
                journal.write(batch, now)
                batch = []
                rest()
                standing = journal.standing
        if batch:
            journal.write(batch, now)
        self.responses += count
        return pos

    def learn_line(self, seen: ObservedExchange, wanted: Observation) -> None:
        """Learn the templates and the line of an exchange that has been handed out, if its like may come again."""
        request, response, journal = seen.request, seen.response, self.journal
        if journal is None or request is None or response is None or not may_come_again(seen):
            return
        code = code_of(seen.key, seen.version)
        family = self.recorded.get(code)
        if family is None:
            family = self.recorded[code] = JournalTemplates()
        requested, responded = seen.request_body, seen.response_body
        if requested is None or responded is None or not family.learner.worth_learning():
            return
        if not has_one_place(requested, seen.key, REQUEST) or not has_one_place(responded, seen.key, RESPONSE):
            return
        try:
            answered = learn_frame(response.data, seen.key, seen.version, RESPONSE, responded)
            if answered is None:
                return
            asked = learn_frame(request.data, seen.key, seen.version, REQUEST, requested)
        except DecodeError:
            return
        if asked is None:
            return
        standing, known = journal.standing, known_frames(family.forms, asked)
        template = known.get(asked.constants) or JournalTemplate(family.learner, wanted, seen.client_id, seen.acks)
        lines = known_frames(template.responses, answered)
        earlier = lines.get(answered.constants)
        if earlier is not None and earlier[0] is standing:  # a like exchange was in flight with this one
            return
        line = journal.learn(seen, asked, answered)
        if line is None:
            return
        counts = None
        if wanted.counted and self.summary is not None:
            counts = LineCounts(seen, asked, answered, deep=wanted.depth >= Depth.ROWS)
        lines[answered.constants] = standing, line, counts
        known[asked.constants] = template
        self.learnt += 1
        if self.learnt > MOST_LINES:
            self.recorded.clear()
            self.learnt = 0


def known_frames(forms: list[NumberTemplate], learnt: LearntFrame) -> dict[Any, Any]:
    """Return the known frames of the template of the same form as `learnt`, which is added to `forms` if it is new."""
    for template in forms:
        if template.form == learnt.template.form:
            if learnt.constants not in template.known:
                make_room(template.known)
            return template.known
    if len(forms) >= MOST_FORMS:
        forms.clear()
    forms.append(learnt.template)
    return learnt.template.known


def may_come_again(seen: ObservedExchange) -> bool:
    """Return True if two whole frames and their times give all that a line says about the exchange."""
    request, response = seen.request, seen.response
    return (
        seen.outcome == "answered"
        and seen.acks != 0
        and not (seen.rules or seen.answered_by_rule or seen.own_errors or seen.unread)
        and seen.rule_wait == NOTHING_WAITED == seen.other_wait
        and request is not None
        and request.form is Form.WHOLE
        and response is not None
        and response.form is Form.WHOLE
        and max(request.size, response.size) <= SMALL + SIZE_BYTES
    )
