"""Counts in a summary of exchanges that a journal records by their lines, without reading them.

Strategy. Exchanges of one line differ in a few numbers only (`number_template.py`), and all that the cells of a summary
are made of is among these, or the same for all. The first exchange is read and counted as usual, and gives the keys of
the cells, and rows; of those like it sums are kept, and folded into the cells now and then.
"""

from __future__ import annotations

from kproxy.protocol.records.entry import OVERHEAD
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.record.exchange import ObservedExchange

from .frames import SIZE_BYTES
from .number_template import LearntFrame
from .partition_rows import PartitionRow, rows_of
from .response_errors import errors_of, has_errors_inside, throttle_of
from .summary import READS, ROWS, Summary, ending, errors_with_rows
from .summary_rows import ApiKey
from .summary_templates import FOLD_AT

BASE_OFFSET = "responses[].partition_responses[].base_offset", 0
HIGH_WATERMARK = "responses[].partitions[].high_watermark"
FIRST_TOLD = 2
"""Place of the first number that a template tells, behind the size and the correlation id; of a batch, its length."""


class LineCounts:
    """Counts of the exchanges of one line on one connection since the last `fold`.

    `rows`: those of the exchange that the line was learnt of; `written`, `read`: the one batch stands in the request,
    or in the response, and belongs to row `batch`. `base`, `marks`: places among the response's numbers of the base
    offset, 0 for none, and of the high watermark of each row.
    """

    __slots__ = ("answered", "api_key", "asked", "base", "batch", "begun", "bytes", "empty", "last", "latencies",
                 "marks", "read", "records", "request_sizes", "response_sizes", "rows", "throttle",
                 "written")  # fmt: skip

    def __init__(self, seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame, *, deep: bool) -> None:
        """Begin without exchanges; `seen` itself has been counted. `deep`: rows are counted, too."""
        rows = rows_of(seen) if deep and seen.key in ROWS else None
        errors = errors_of(seen) if has_errors_inside(seen.key, seen.version) else seen.known_errors
        errors = errors_with_rows(seen, errors, rows)
        self.api_key: ApiKey = seen.key, seen.version, seen.client_id, ending(seen, errors), seen.acks
        self.rows: list[PartitionRow] = [] if errors.top else rows or []
        self.empty = rows is not None and seen.key in READS and not any(row[3] for row in rows)
        self.written, self.read = asked.template.batch, answered.template.batch
        self.batch = next((at for at, row in enumerate(self.rows) if row[3]), -1)
        told = answered.told
        self.base = FIRST_TOLD + told.index(BASE_OFFSET) if BASE_OFFSET in told else 0
        marks = ((HIGH_WATERMARK, at) for at in range(len(self.rows)))
        self.marks = [FIRST_TOLD + told.index(one) if one in told else 0 for one in marks]
        self.throttle = throttle_of(seen)  # of each of them, in ms
        self.latencies: list[float] = []
        self.request_sizes = self.response_sizes = self.bytes = self.records = 0
        self.begun = self.last = 0.0
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

    def fold(self, summary: Summary) -> None:
        """Add what was counted here to the cells of `summary`, and begin again from zero."""
        latencies, key = self.latencies, self.api_key
        count = len(latencies)
        if not count:
            return
        cell = summary.api(key, self.begun)
        cell.last = max(cell.last, self.last)
        cell.count += count
        cell.request_bytes += self.request_sizes + SIZE_BYTES * count
        cell.response_bytes += self.response_sizes + SIZE_BYTES * count
        cell.empty += count * self.empty
        if self.throttle:
            cell.throttled += count
            cell.throttle += count * self.throttle
            cell.throttle_seconds += count * self.throttle / 1000
        cell.answered_all(latencies)
        latencies.clear()
        if self.rows:
            rows = [self.summed_row(at, count) for at in range(len(self.rows))]
            summary.rows(key, rows, self.last, key[0] in READS, None, times=count, first=self.begun)
        self.request_sizes = self.response_sizes = self.bytes = self.records = 0

    def summed_row(self, at: int, count: int) -> PartitionRow:
        """Return the row of all exchanges since the last fold, with the offsets of the last of them."""
        topic, partition, error, size, batches, records, codec, idempotent, last, mark = self.rows[at]
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
