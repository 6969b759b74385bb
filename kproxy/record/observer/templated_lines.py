"""Records exchanges that match templates by one line each, without decoding them, many lines at a time.

If only a line of text is needed for each exchange (`Depth.LINES`), most of a line is equal for similar exchanges. The
first one is read as usual and handed out. Then it is learned: a template of its request (`number_template.py`), below
that one of its response, and the constant parts of its line (`RequestLines.learn`). For an exchange that both templates
match, `RequestLines.write` gets only the numbers, in one call for all that ended in the same read. A frame without a
template, or with an effect of a rule, is read as usual.

Summaries count these exchanges from the same numbers. The first exchange gives the keys of the cells, and rows. Sums
are kept for the others, and folded into the cells now and then.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from kproxy.base.cooperative import yield_now
from kproxy.base.errors import DecodeError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.entry import OVERHEAD
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange, Who

from .credentials import REQUEST, RESPONSE
from .exchange_builder import ExchangeBuilder, Interest, OpenEntry, OpenExchange
from .number_template import Learner, LearntFrame, TemplateFamily, has_one_place, learn_frame
from .observation import SIZE_BYTES, SMALL, Observation, code_of
from .partition_rows import PartitionRow, rows_of
from .response_errors import errors_of, has_errors_inside, throttle_of
from .summary import FOLD_AT, READS, ROWS, ExchangeCounts, Summary, ending, errors_with_rows

if TYPE_CHECKING:
    from kproxy.record.audit.audit_sink import RequestLines

BASE_OFFSET = "responses[].partition_responses[].base_offset", 0
HIGH_WATERMARK = "responses[].partitions[].high_watermark"
FIRST_TOLD = 2
"""Index of the first reported number of a template, after the size and the correlation id; for a batch, of its
length."""


class LineCounts(ExchangeCounts):
    """Counts of the exchanges of one line on one connection since the last `fold`.

    `learned_rows`: rows of the exchange that the line was learned from. `written`, `read`: the batch is in the request,
    or in the response, and belongs to row `batch`; `bytes`: sum of its lengths. `base`, `marks`: indices in the
    response's numbers of the base offset, 0 for none, and of the high watermark of each row. `asked`, `answered`:
    numbers of the last exchange.
    """

    __slots__ = ("answered", "asked", "base", "batch", "bytes", "learned_rows", "marks", "read",
                 "written")  # fmt: skip

    def __init__(self, seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame, *, deep: bool) -> None:
        """Begin without exchanges; `seen` itself has been counted. `deep`: rows are counted as well."""
        rows = rows_of(seen) if deep and seen.key in ROWS else None
        errors = errors_of(seen) if has_errors_inside(seen.key, seen.version) else seen.known_errors
        errors = errors_with_rows(seen, errors, rows)
        super().__init__((seen.key, seen.version, seen.client_id, ending(seen, errors), seen.acks))
        self.learned_rows: list[PartitionRow] = [] if errors.top else rows or []
        self.empty = rows is not None and seen.key in READS and not any(row[3] for row in rows)
        self.written, self.read = asked.template.batch, answered.template.batch
        self.batch = next((at for at, row in enumerate(self.learned_rows) if row[3]), -1)
        told = answered.told
        self.base = FIRST_TOLD + told.index(BASE_OFFSET) if BASE_OFFSET in told else 0
        marks = ((HIGH_WATERMARK, at) for at in range(len(self.learned_rows)))
        self.marks = [FIRST_TOLD + told.index(one) if one in told else 0 for one in marks]
        self.throttle = throttle_of(seen)
        self.bytes = 0
        self.asked: tuple[int, ...] = ()
        self.answered: tuple[int, ...] = ()

    def count(
        self, summary: Summary, begun: float, asked: tuple[int, ...], answered: tuple[int, ...], now: float
    ) -> None:
        """Count an exchange with these numbers that was over at `now`."""
        latencies = self.latencies
        if not latencies:
            self.begun = begun
            summary.waiting.append(self)
        latencies.append(now - begun)
        self.last, self.asked, self.answered = begun, asked, answered
        self.request_sizes += asked[0]
        self.response_sizes += answered[0]
        if self.written:
            self.bytes += asked[2]
            self.records += asked[3]
        elif self.read:
            self.bytes += answered[2]
            self.records += answered[3]
        if len(latencies) > FOLD_AT:
            summary.fold()

    def rows(self, count: int) -> list[PartitionRow]:
        rows = [self.summed_row(at, count) for at in range(len(self.learned_rows))]
        self.bytes = 0
        return rows

    def summed_row(self, at: int, count: int) -> PartitionRow:
        """Return the row of all exchanges since the last fold, with the offsets of the last of them."""
        topic, partition, error, size, batches, records, codec, idempotent, last, mark = self.learned_rows[at]
        if at == self.batch:
            if self.written or self.read:
                size, records = self.bytes + OVERHEAD * count, self.records
            if self.api_key[0] == PRODUCE and self.base:
                last = self.answered[self.base] + self.asked[3] - 1
            elif self.api_key[0] == FETCH:
                last = self.answered[4] + self.answered[5]
        if self.marks[at]:
            mark = self.answered[self.marks[at]]
        return topic, partition, error, size, batches * count, records, codec, idempotent, last, mark


CODE = Struct(">I").unpack_from
SMALLEST_REQUEST, SMALLEST_RESPONSE = 14, 8
"""Bytes, length field included, that are needed to know which templates to try."""
MOST_AT_ONCE = 32
"""Exchanges that are written in one call: a fifth of a millisecond."""
MOST_LINES = 512
"""Lines that are learnt on one connection until all are forgotten: 1 MB, or 10 MB at worst, with long names."""
AGAIN = 1 / 16
"""Part of the work of learning one template that is saved by each exchange that matches it."""
HIGHEST = 1 << 62
"""Frames with larger numbers are read as usual: an offset plus a count of records must not exceed 64 bits."""
NOTHING_WAITED = (0.0, 0.0)


LineEntry = tuple[Any, float, tuple[int, ...], tuple[int, ...]]
"""Finished exchange: the result of `RequestLines.learn`, the time of its request, and the numbers of request and
response. The first two are the size of the frame without its length field, and its correlation id."""
OpenRequest = tuple[Buffer, tuple[int, ...], int]
"""Request that matched: the frame without its length, its numbers, and the number of the exchange."""


class FrameLineTemplate:
    """Template of requests that are alike on one connection, with the templates of their responses."""

    __slots__ = ("acks", "client_id", "learner", "responses", "wanted")
    response_template = None
    """Summaries do not count such requests, so the loop that matches for them finds no template here."""

    def __init__(self, learner: Learner, wanted: Observation, client_id: str | None, acks: int | None) -> None:
        self.learner, self.wanted, self.client_id, self.acks = learner, wanted, client_id, acks
        self.responses = TemplateFamily()

    def materialise(self, who: Who, entry: OpenEntry) -> OpenExchange:
        """Return the open exchange of an entry whose request matched this template, as after a full read."""
        _, _, then, size, (data, numbers, number) = entry
        wanted, frame = self.wanted, Frame(size + SIZE_BYTES, then, then, bytes(data), Form.WHOLE)
        seen = ObservedExchange(who, number, wanted.key, wanted.version, numbers[1], self.client_id, frame)
        seen.acks = self.acks
        exchange = OpenExchange(numbers[1], wanted, seen)
        exchange.kept = frame.size
        return exchange


class TemplatedBuilder(ExchangeBuilder):
    """Builder of one connection's exchanges. Those that match templates go to `request_lines` and are not built.

    `request_lines`: takes exchanges of which only lines are needed, in place of `take`. `recorded`: templates by API
    key << 16 | version. `learnt`: lines that they were learnt with.
    """

    request_lines: RequestLines | None = None

    def refocus(self, interest: Interest) -> None:
        super().refocus(interest)
        self.recorded: dict[int, TemplateFamily] = {}
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
        """Record the exchanges whose responses at `pos` match templates; return the position after these."""
        request_lines, opened = self.request_lines, self.open
        assert request_lines is not None, "something was learnt"
        standing, count = request_lines.standing, 0
        batch: list[LineEntry] = []
        while opened and n - pos >= SMALLEST_RESPONSE:
            correlation, template, begun, asked_size, request = opened[0]
            if type(template) is not FrameLineTemplate:
                break
            for form in template.responses.forms:
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
                request_lines.write(batch, now)
                batch = []
                yield_now()
                standing = request_lines.standing
        if batch:
            request_lines.write(batch, now)
        self.responses += count
        return pos

    def learn_line(self, seen: ObservedExchange, wanted: Observation) -> None:
        """Learn the templates and the line of an exchange that has been handed out, if its like may come again."""
        request, response, request_lines = seen.request, seen.response, self.request_lines
        if request_lines is None or request is None or response is None or not may_come_again(seen):
            return
        code = code_of(seen.key, seen.version)
        family = self.recorded.get(code)
        if family is None:
            family = self.recorded[code] = TemplateFamily()
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
        standing, known = request_lines.standing, family.known_frames(asked.template, asked.constants)
        template = known.get(asked.constants) or FrameLineTemplate(family.learner, wanted, seen.client_id, seen.acks)
        lines = template.responses.known_frames(answered.template, answered.constants)
        earlier = lines.get(answered.constants)
        if earlier is not None and earlier[0] is standing:  # a like exchange was in flight with this one
            return
        line = request_lines.learn(seen, asked, answered)
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


def may_come_again(seen: ObservedExchange) -> bool:
    """Return True if two whole frames and their times determine the line of the exchange."""
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
