"""Counts what one connection did, minute by minute, for each API, and for each partition of Produce and Fetch.

    summary = Summary(wants, wall)
    observer = ConnectionObserver(who, interest, take, summary=summary)
    summary.drain(now)                      the lines of all minutes that are over
    summary.drain(now, everything=True)     and of the one that is not

    reader(summary) called before cells are discarded, and by readers in between

Strategy. An exchange belongs to the minute of its end, so no line follows after its minute was drained. The number of
cells is bounded: exchanges beyond that are counted in cells of less detail, and sums stay exact. An exchange of
thousands of partitions is counted in steps. A drain in between includes the finished steps.

docs/audit-reports.md defines the rules of counting: lines of a summary add up to the events of the same exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kproxy.base.cooperative import yield_now, yielding
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.record.exchange import Errors, ObservedExchange, Who

from .partition_rows import PartitionRow, ProducedRow, rows_of, share_codes
from .response_errors import in_order, throttle_of
from .summary_rows import OWN, ApiCounters, ApiKey, Ending, PartitionCounters, PartitionKey, SummaryRow

MINUTE = 60
MOST_CELLS = 2000
"""Cells of partitions of one connection and minute, some 300 bytes each. A consumer of more partitions is rare."""
MOST_FOLDED = 500
"""Further cells, for topics without cells for partitions."""
MOST_APIS = 500
"""Cells of APIs. A client uses twenty APIs in one version each, with some errors; more is unusual."""
MOST_LINES = 10_000
"""Lines that wait to be drained. While this many lines wait, the minute is extended."""
LONGEST = 501
"""Characters of a name that are kept: one more than in an event, so that it is cut there as everywhere."""
MANY = -2
"""Stands for error codes that are not told apart any more, since there are too many kinds."""
MOST_AT_ONCE = 512
"""Rows that are counted in one go: a millisecond."""
READS = (FETCH, SHARE_FETCH)
ROWS = (PRODUCE, FETCH, SHARE_FETCH)

LAST_OFFSET = (1 << 63) - 1
"""Largest offset; a batch that begins there ends beyond it."""


def since_1970(now: float) -> float:
    """Return `now` itself, for times that are seconds since 1970 already."""
    return now


SummaryReader = Callable[["Summary"], None]
"""Reads the cells of a summary, each of which stores its reported numbers (`reported`)."""


FOLD_AT = 256
"""Latencies that a template holds before they are folded into the summary: 8 KB on a busy connection."""


class ExchangeCounts:
    """Counts of exchanges that one template matched, until `fold` adds them to a summary.

    Latencies are kept singly, because buckets are filled faster from a sorted list. `silent`: exchanges without a
    response. `begun`, `last`: times of the first and the last request. Sizes are sums without the length fields;
    `response_sizes` lacks those of `size` bytes each. `records`: of the row with the batch. `throttle`:
    throttle_time_ms of each response. `empty`: the responses have no records.
    """

    __slots__ = ("api_key", "begun", "empty", "last", "latencies", "records", "request_sizes", "response_sizes",
                 "silent", "size", "throttle")  # fmt: skip

    def __init__(self, api_key: ApiKey) -> None:
        self.api_key = api_key
        self.latencies: list[float] = []
        self.silent = self.request_sizes = self.response_sizes = self.records = self.size = self.throttle = 0
        self.begun = self.last = 0.0
        self.empty = False

    def rows(self, count: int) -> list[PartitionRow]:
        """Return the summed rows of `count` exchanges, with the offsets of the last one."""
        raise NotImplementedError

    def fold(self, summary: Summary) -> None:
        """Add these counts to the cells of `summary`, and begin again from zero."""
        latencies, key = self.latencies, self.api_key
        answered = len(latencies)
        count = self.silent + answered
        if not count:
            return
        cell = summary.api(key, self.begun)
        cell.last = max(cell.last, self.last)
        cell.count += count
        cell.request_bytes += self.request_sizes + 4 * count
        cell.empty += count * self.empty
        if self.throttle:
            cell.throttled += count
            cell.throttle += count * self.throttle
            cell.throttle_seconds += count * self.throttle / 1000
        if answered:
            cell.response_bytes += self.response_sizes + (self.size + 4) * answered
            cell.answered_all(latencies)
            latencies.clear()
        rows = self.rows(count)
        if rows:
            summary.rows(key, rows, self.last, key[0] in READS, None, times=count, first=self.begun)
        self.silent = self.request_sizes = self.response_sizes = self.records = 0


class Summary:
    """Counters of the exchanges of one connection, in cells of the minute at hand and lines of those before.

    `wants(api key, version)`: True if such exchanges are counted. `wall(time)`: a time of the observer's clock as
    seconds since 1970. `who`: finds names for topic ids; without it lines have the ids only. `touched`: a cell has
    changed since it was last set to False.
    """

    def __init__(
        self,
        wants: Callable[[int, int], bool],
        wall: Callable[[float], float] = since_1970,
        *,
        who: Who | None = None,
        most: int = MOST_CELLS,
        lined: Callable[[int, int], bool] | None = None,
        reader: SummaryReader | None = None,
    ) -> None:
        """Begin without any counts. `most`: cells of partitions in one minute. `lined(api key, version)`: True if cells
        of such exchanges become lines; all do if left out. `reader`: reads the cells of a minute that is over."""
        self.wants, self.wall, self.who, self.most = wants, wall, who, most
        self.lined, self.reader, self.touched = lined, reader, False
        self.minute = float("-inf")  # start of the minute that the cells count, seconds since 1970
        self.until = float("-inf")  # end of that minute, by the observer's clock
        self.apis: dict[ApiKey, ApiCounters] = {}
        self.parts: dict[PartitionKey, PartitionCounters] = {}
        self.lines: list[SummaryRow] = []
        self.waiting: list[ExchangeCounts] = []  # templates with counts that are not in the cells yet

    def fold(self) -> None:
        """Add the counts of templates to the cells."""
        for counts in self.waiting:
            counts.fold(self)
        self.waiting.clear()

    def add(
        self,
        seen: ObservedExchange,
        errors: Errors,
        now: float,
        *,
        deep: bool = True,
        asked: list[ProducedRow] | None = None,
    ) -> None:
        """Count an exchange that was over at `now`. `errors`: of its response, without those of rows.

        `deep`: also count its partitions. `asked`: the rows of its request, where they were read already.
        """
        request, response = seen.request, seen.response
        begun = now if request is None else request.first
        size, latency = 0, None
        if response is not None and seen.outcome == "answered":
            size = response.size
            latency = None if request is None else response.last - request.first
        rows = None
        if deep and seen.key in ROWS and seen.outcome in ("answered", "no_answer_due"):
            known = seen.key == PRODUCE or seen.response_body is not None
            rows = rows_of(seen, asked) if known else None
        errors = errors_with_rows(seen, errors, rows)
        key = seen.key, seen.version, seen.client_id, ending(seen, errors), seen.acks
        asked_size = request.size if request is not None else 0
        self.count(key, begun, now, asked_size, size, latency, rows, seen, throttle=throttle_of(seen))

    def count(  # noqa: PLR0913  # the numbers of one exchange
        self,
        key: ApiKey,
        begun: float,
        now: float,
        request_size: int,
        response_size: int,
        latency: float | None,
        rows: list[PartitionRow] | None,
        seen: ObservedExchange | None = None,
        *,
        throttle: int = 0,
    ) -> None:
        """Count an exchange that began at `begun` and was over at `now`, from its numbers in bytes and seconds.

        `rows`: of its partitions; None: they are not known. `throttle`: throttle_time_ms of its response.

        `seen`: knows which errors kproxy made, and how long it held the frames; None: it made none, and held none.
        """
        reads = key[0] in READS
        empty = rows is not None and reads and not any(row[3] for row in yielding(rows))
        if now >= self.until:
            self.roll(now)
        cell = self.api(key, begun)
        cell.count += 1
        cell.request_bytes += request_size
        cell.response_bytes += response_size
        if latency is not None:
            cell.answered(latency)
        cell.empty += empty
        if throttle:
            cell.throttled += 1
            cell.throttle += throttle
        if seen is not None:
            cell.mute += seen.mute
            cell.throttle_seconds += sum(seen.rule_wait) if seen.throttler else 0.0
            cell.throttle_seconds += max(seen.mute, throttle / 1000)
            cell.rule += sum(seen.rule_wait)
            cell.wait += seen.kproxy_seconds
        else:
            cell.throttle_seconds += throttle / 1000
        if rows and not key[3].top:  # an error at the top means that no partition was written or read
            self.rows(key, rows[:MOST_AT_ONCE], begun, reads, seen)
            for first in range(MOST_AT_ONCE, len(rows), MOST_AT_ONCE):
                yield_now()  # others run here and may drain the minute: further rows belong to the next one
                self.rows(key, rows[first : first + MOST_AT_ONCE], begun, reads, seen)

    def rows(
        self, api_key: ApiKey, rows: list[PartitionRow], begun: float, reads: bool, seen: ObservedExchange | None,
        *, times: int = 1, first: float | None = None,
    ) -> None:  # fmt: skip
        """Add rows to the cells of their partitions, or to the API's where they have none. `reads`: of a fetch.

        `times`: exchanges that the rows are sums of; the `first` began at that time, and the last at `begun`.
        """
        api = self.api(api_key, begun)
        start, acks = (api_key[0], api_key[1], api.key[2]), api_key[4]
        for topic, partition, error, size, batches, records, codec, idempotent, last, mark in rows:
            if not size and reads and not error and mark is None:
                continue  # the response has no news of this partition: see `record.events.column.is_mentioned`
            name = topic[:LONGEST] if len(topic) > LONGEST else topic
            code = error + OWN if error and seen is not None and seen.kproxy_made(error) else error
            place = *start, name, partition, code, acks, codec, idempotent
            cell = self.part(place, begun if first is None else first) or api
            if error and isinstance(cell, ApiCounters):
                continue  # refused data was neither written nor read
            cell.records += records
            cell.bytes += size
            cell.batches += batches
            if isinstance(cell, ApiCounters):
                cell.told = True
                continue
            cell.count += times
            cell.last = max(cell.last, begun)
            if reads:
                cell.empty += times * (not size)
            if cell.key[4] is not None:  # a cell of several partitions has no last offset
                cell.update(last, mark, begun)

    # ---- cells

    def api(self, key: ApiKey, begun: float) -> ApiCounters:
        """Return the cell of this key; if there are too many cells, that of a key with less detail."""
        self.touched = True
        cell = self.apis.get(key)
        if cell is None:
            key = (*key[:2], key[2][:LONGEST] if key[2] else key[2], *key[3:])
            if key not in self.apis and len(self.apis) >= MOST_APIS:
                key = (*key[:2], None, *key[3:])
                if key not in self.apis and len(self.apis) >= 2 * MOST_APIS:
                    key = (
                        None,
                        None,
                        None,
                        key[3]._replace(codes=(MANY,) if key[3].codes else (), own=(), throttler=""),
                        None,
                    )
            cell = self.apis.get(key)
            if cell is None:
                cell = self.apis[key] = ApiCounters(key, begun, begun)
        if begun > cell.last:
            cell.last = begun
        elif begun < cell.first:
            cell.first = begun
        return cell

    def part(self, key: PartitionKey, begun: float) -> PartitionCounters | None:
        """Return the cell of this key, or of its topic if there are too many; None: none is left for that either."""
        cell = self.parts.get(key)
        if cell is None:
            if len(self.parts) >= self.most:
                key = (*key[:4], None, *key[5:])
                cell = self.parts.get(key)
                if cell is None and len(self.parts) >= self.most + MOST_FOLDED:
                    return None
            if cell is None:
                cell = self.parts[key] = PartitionCounters(key, begun, begun)
        if begun > cell.last:
            cell.last = begun
        elif begun < cell.first:
            cell.first = begun
        return cell

    # ---- minutes

    def roll(self, now: float) -> None:
        """Begin a minute at `now`. The cells of the previous minute become lines, unless `MOST_LINES` lines wait."""
        minute = self.wall(now) // MINUTE * MINUTE
        if len(self.lines) < MOST_LINES:
            self.flush()
            if self.until > now:
                return  # while the reader yielded, another caller began a minute
            self.minute = minute
        self.until = now + minute + MINUTE - self.wall(now)

    def flush(self) -> None:
        """Make lines of all cells that become such, and begin again without any."""
        self.fold()
        if self.reader is not None:
            self.reader(self)
        lined = self.lined
        apis = [cell for cell in self.apis.values() if lined is None or is_lined(cell.key, lined)]
        parts = [cell for cell in self.parts.values() if lined is None or is_lined(cell.key, lined)]
        self.lines += [self.api_line(cell) for cell in apis]
        self.lines += [self.part_line(cell) for cell in parts]
        self.apis, self.parts = {}, {}

    def drain(self, now: float, *, everything: bool = False) -> list[SummaryRow]:
        """Return the lines of minutes that are over at `now`, each line once. `everything`: also of the current one."""
        if everything:
            self.flush()
        elif now >= self.until:
            waiting, self.lines = self.lines, []
            self.roll(now)
            self.lines[:0] = waiting
        lines, self.lines = self.lines, []
        return lines

    def api_line(self, cell: ApiCounters) -> SummaryRow:
        key, version, client_id, ended, acks = cell.key
        line = SummaryRow(self.minute, self.wall(cell.first), self.wall(cell.last), api_name(key), version, client_id)
        line.outcome, line.responder, line.acks = ended.outcome, ended.responder or None, acks
        if ended.codes:
            line.errors = list(error_names(ended.codes))
            line.error, line.error_level = line.errors[0], "request" if ended.top else "part"
            line.kproxy_errors = list(error_names(ended.own)) or None
        line.count, line.request_bytes, line.response_bytes = cell.count, cell.request_bytes, cell.response_bytes
        line.latency_ms, line.latency_max_ms = cell.latency * 1000, cell.latency_max * 1000
        line.latency_buckets, line.rule_ms, line.wait_ms = cell.buckets, cell.rule * 1000, cell.wait * 1000
        line.empty = cell.empty if key in READS else None
        line.throttle_rule = ended.throttler or None
        if cell.throttled:
            line.throttled, line.throttle_ms = cell.throttled, cell.throttle
        line.mute_ms = cell.mute * 1000 if ended.throttler else None
        if cell.told:
            line.records, line.bytes, line.batches = cell.records, cell.bytes, cell.batches
        return line

    def part_line(self, cell: PartitionCounters) -> SummaryRow:
        key, version, client_id, topic, partition, code, acks, codec, idempotent = cell.key
        own = code >= OWN // 2
        line = SummaryRow(self.minute, self.wall(cell.first), self.wall(cell.last), api_name(key), version)
        line.client_id, line.partition, line.error, line.acks = client_id, partition, error_name(code - OWN * own), acks
        if own:
            line.error_by = "kproxy"
        if isinstance(topic, bytes):
            line.topic_id = str(UUID(bytes=topic))
            line.topic = self.who.topic_of(line.topic_id) if self.who is not None else None
        else:
            line.topic = topic
        line.codec, line.idempotent, line.count = codec or None, idempotent, cell.count
        line.records, line.bytes, line.batches = cell.records, cell.bytes, cell.batches
        line.last_offset = cell.last_offset if 0 <= cell.last_offset <= LAST_OFFSET else None
        line.high_watermark = None if cell.high_watermark < 0 else cell.high_watermark
        line.empty = cell.empty if key in READS else None
        return line


def is_lined(key: ApiKey | PartitionKey, lined: Callable[[int, int], bool]) -> bool:
    """Return True if the cell of this key becomes a line; a cell of several APIs always does."""
    return key[0] is None or key[1] is None or lined(key[0], key[1])


def api_name(key: int | None) -> str | None:
    if key is None:
        return None
    return schema.load(key).name if key in schema.paths() else f"unknown({key})"


def errors_with_rows(seen: ObservedExchange, errors: Errors, rows: list[PartitionRow] | None) -> Errors:
    """Return the errors in a response with those of its rows, which are None if they are not known."""
    if not rows:
        return errors
    codes = [row[2] for row in rows] if seen.key != SHARE_FETCH else share_codes(seen.version, seen.response_body)
    return in_order(errors.codes[0] if errors.top else 0, codes)


def ending(seen: ObservedExchange, errors: Errors) -> Ending:
    if seen.outcome != "answered":
        return Ending(seen.outcome, throttler=seen.throttler)
    by = "kproxy" if seen.answered_by_rule else "broker"
    own = tuple(code for code in errors.codes if seen.kproxy_made(code))
    return Ending("answered", by, errors.codes, own, errors.top, seen.throttler)


def error_names(codes: Iterable[int]) -> Iterable[str]:
    """Yield the names of error codes, `various` for MANY."""
    return ("various" if code == MANY else error_codes.error_name(code) for code in codes)


def error_name(code: int) -> str | None:
    """Return the name of an error code; None for 0, which is success."""
    return error_codes.error_name(code) if code else None
