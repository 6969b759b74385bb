"""Long responses that match a template before their end is here: counted once it is, from what their head said."""

from __future__ import annotations

from .exchanges import Entry, Open
from .hot import BATCH, FOLD_AT, Answer
from .summary import Summary


class Coming:
    """Response of one connection that matched `answer` and is not all here.

    `entry`: of its request. `records`, `offset`, `mark`: count, last offset and high watermark of its batch. `open`:
    its exchange, made only when a rule or a wait has to be noted in it.
    """

    __slots__ = ("answer", "entry", "mark", "offset", "open", "records", "size")

    def __init__(self, entry: Entry, answer: Answer, size: int, records: int, offset: int, mark: int) -> None:
        self.entry, self.answer, self.size = entry, answer, size
        self.records, self.offset, self.mark = records, offset, mark
        self.open: Open | None = None

    def count(self, summary: Summary, now: float) -> None:
        """Add the exchange to its Answer, since the response came to its end at `now`."""
        answer = self.answer
        if not answer.counted:
            return
        _, _, then, asked_size, _ = self.entry
        if not answer.latencies:
            answer.begun = then
            summary.waiting.append(answer)
        answer.latencies.append(now - then)
        answer.last = then
        answer.request_sizes += asked_size
        answer.sizes += self.size
        if answer.kind == BATCH:
            answer.records += self.records
            answer.offset, answer.mark = self.offset, self.mark
        if self.open is not None and self.open.seen is not None:
            cell = summary.api(answer.api_key, then)
            cell.rule += sum(self.open.seen.rule_wait)
            cell.wait += sum(self.open.seen.other_wait)
        if len(answer.latencies) > FOLD_AT:
            summary.fold()
