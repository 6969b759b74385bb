"""Verification of one view of a record, and the outcome of its checks.

facts → ordered by time → all checks → findings, clean checks, and checks that were not made with the reason
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from kproxy.base.errors import plural

from .candidate import Candidate
from .cluster import KnownServers
from .commits import CommitsCheck
from .connections import AnswerOrderCheck, ConformanceCheck, LeaderEpochsCheck, VersionsCheck
from .durability import AcknowledgedCheck, LogBoundsCheck
from .facts import Fact
from .finding import CheckDefinition, Finding, RecordView, checks
from .groups import BrokerGroupsCheck, ClassicGroupsCheck, MemberEpochsCheck
from .history_check import SHARE, CheckState, ErasCheck, FactHandler, HistoryCheck
from .options import MissingPart, RecordClock, VerifyTerms, of_apis
from .reading import ReadCounts
from .reads import AnswersCheck, CommittedReadsCheck, PositionsCheck
from .sequences import ConnectionOrderCheck, SequenceGapsCheck, SequencesCheck
from .stored_batches import SentBatchesCheck, StoredBatchesCheck
from .transactions import ProducersCheck, TransactionsCheck

# Order of the handlers of one fact: checks that add to a history precede those that read it.
CHECKS: tuple[type[HistoryCheck], ...] = (
    ErasCheck, AcknowledgedCheck, StoredBatchesCheck, SentBatchesCheck, SequencesCheck, SequenceGapsCheck,
    ConnectionOrderCheck, AnswersCheck, LogBoundsCheck, CommittedReadsCheck, TransactionsCheck, ProducersCheck,
    CommitsCheck, PositionsCheck, ClassicGroupsCheck, BrokerGroupsCheck, MemberEpochsCheck, VersionsCheck,
    LeaderEpochsCheck, ConformanceCheck, AnswerOrderCheck,
)  # fmt: skip
OF_MARKERS = frozenset({"aborted-read", "hidden-transaction", "torn-transaction"})  # checks that need markers
WINDOW = 10.0  # seconds by which an exchange may come late, as when several files are merged
# Bytes of the verification's memory for each held fact, or batch in one: a sixth of the memory in all.
FACT_SIZE = 2000


class TimeOrder:
    """Facts of exchanges, sorted by the ends of the exchanges and held for WINDOW seconds.

    An exchange without a response counts from its beginning, and comes when its connection ends. `late`: exchanges with
    a response that came after the window, as when a clock goes back.
    """

    __slots__ = ("clock", "count", "given", "held", "late", "most", "newest", "weight")

    def __init__(self, memory: int, clock: RecordClock) -> None:
        self.clock, self.weight = clock, 0
        self.limit(memory)
        self.held: list[tuple[float, int, list[Fact]]] = []
        self.count = self.late = 0
        self.newest = self.given = float("-inf")

    def limit(self, memory: int) -> None:
        self.most = max(memory // FACT_SIZE, 1)

    def take(self, time: float, facts: list[Fact], *, over: bool = True) -> Iterator[list[Fact]]:
        """Hold an exchange's facts; yield those of due exchanges. `over`: the exchange has a response."""
        self.count += 1
        if over and time < self.newest - WINDOW:
            self.late += 1
            self.clock.goes_back(self.newest - time)
        heappush(self.held, (time, self.count, facts))
        self.weight += weight(facts)
        self.newest = max(self.newest, time)
        while self.held and (self.held[0][0] < self.newest - WINDOW or self.weight > self.most):
            yield self._earliest()

    def flush(self) -> Iterator[list[Fact]]:
        while self.held:
            yield self._earliest()

    def _earliest(self) -> list[Fact]:
        self.given, _, due = heappop(self.held)
        self.weight -= weight(due)
        return due


def weight(facts: list[Fact]) -> int:
    return sum(one.weight for one in facts)


class ViewVerifier:
    """Verifier of the clients' view or of the brokers' view."""

    def __init__(self, view: RecordView, terms: VerifyTerms, memory: int, servers: KnownServers | None = None) -> None:
        self.view, self.terms = view, terms
        self.order = TimeOrder(memory, terms.clock)
        self.state = CheckState(terms, memory, servers or KnownServers())
        self.checks = [one(self.state) for one in CHECKS]  # all of them: checks use what others learn
        self.handlers: dict[type[Fact], list[FactHandler]] = {}
        for check in self.checks:
            for kind, handler in check.handlers().items():
                self.handlers.setdefault(kind, []).append(handler)

    def limit(self, memory: int) -> None:
        """Change the memory, in bytes."""
        self.order.limit(memory)
        self.state.partitions.limit(memory)
        self.state.budget.max_bytes = memory // SHARE

    def forgotten(self, check: str) -> int:
        """Return the number of evicted entries that a check needs."""
        state = self.state
        forgotten = state.forgot[check]
        forgotten += sum(one.evicted for each in self.checks if check in each.names for one in each.maps)
        histories = list(state.partitions.histories.values())
        if check in OF_MARKERS:
            forgotten += state.markers.by_producer.evicted + state.markers.forgotten
            forgotten += sum(one.covered.dropped for one in histories)
        if check == "order":
            forgotten += sum(one.producers.evicted for one in histories)
        return forgotten

    def obstacle(self, check: str) -> str:
        """Return why a check did not cover the whole record; empty if it did."""
        state = self.state
        if check == "answer-order" and state.strangers is None:
            return "kproxy closes such connections"
        if check == "phantom-record" and not self.terms.assume_complete:
            return "records may have been written past the record, which only --assume-complete excludes"
        forgotten = self.forgotten(check)
        if forgotten:
            return f"not all of it was remembered: {plural(forgotten, 'entry')} evicted for want of memory"
        if state.partitions.evicted and checks()[check].detail == "headers":
            evicted = plural(state.partitions.evicted, "batch")
            return f"compared with the newest batches only: {evicted} evicted for want of memory"
        if state.unread_markers and check in OF_MARKERS:
            return f"the end of {plural(state.unread_markers, 'transaction')} is not in the record"
        if state.recast and check == "inconsistent-offset" and not self.terms.records:
            return f"{plural(state.recast, 'batch')} stored in another form than sent, so headers cannot be compared"
        return ""

    def take(self, time: float, facts: list[Fact], *, over: bool = True) -> None:
        """Take the facts of an exchange that ended at `time`, or began then if it has no response (not `over`)."""
        self._check(self.order.take(time, facts, over=over))

    def end(self) -> None:
        """Check all held facts at the end of the record."""
        self._check(self.order.flush())

    def _check(self, due: Iterable[list[Fact]]) -> None:
        handlers = self.handlers
        for facts in due:
            for fact in facts:
                for handle in handlers.get(type(fact), ()):
                    handle(fact)

    def findings(self) -> list[Finding]:
        pending: list[Candidate] = []
        for check in self.checks:
            pending += check.pending()
        found = list(self.state.candidates.findings(pending))
        for finding in found:
            finding.view = self.view
        return found


def outcome(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts], found: set[str], *, events: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the clean checks, and the checks that were not made or not complete with the reason.

    A clean check needs a complete record and a comparison that could have proved a violation. `found`: checks with
    findings. `counts`: of both sides' readers. `events`: some exchanges are request events.
    """
    clean, not_checked = [], {}
    for name, check in checks().items():
        if not terms.wants(name):
            continue
        reason = obstacle(terms, views, counts, check, events=events)
        if not reason and name not in found and check.level == "proved":
            reasons = [view.state.compared.obstacle(name) for view in views if view.state.compared.made(name)]
            reason = "" if "" in reasons else reasons[0]
        if reason:
            not_checked[name] = reason
        elif name not in found:
            clean.append(name)
    return clean, not_checked


def obstacle(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts], check: CheckDefinition, *,
    events: bool,
) -> str:  # fmt: skip
    """Return why a check was not made or not complete; empty if it was."""
    for side in counts:
        lacking = not_in_record(side, check.name)
        if lacking:
            return lacking
    if events and check.events:
        return f"request events do not tell {check.events}"
    missing = terms.undecided(check.apis)
    if missing:
        return missing
    reasons = [reason for view in views if (reason := view.obstacle(check.name))]
    if reasons:
        return reasons[0]
    made = any(view.state.compared.made(check.name) for view in views)
    return "" if made else "there is nothing of it in the record"


def not_in_record(counts: ReadCounts, check: str) -> str:
    """Return which exchanges of a check's APIs are absent or unreadable; empty if none are."""
    for kept, says in (
        (counts.not_kept, "not kept, or not as much as is needed"),
        (counts.damaged, "cannot be read"),
    ):
        for api in checks()[check].apis:
            if kept[api]:
                return f"{kept[api]} of {kept[api] + counts.looked[api]} {api} {counts.side}are {says}"
    return ""


def reading_remarks(terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts]) -> list[str]:
    """Return sentences about unreadable exchanges, clocks that went back, and omitted findings."""
    remarks = [part.text for side in counts for part in not_read(side)]
    late = max((view.order.late for view in views), default=0)
    if late:
        remarks.append(f"{plural(late, 'exchange')} came more than ten seconds late, as with clocks that go back")
    if terms.clock.back:
        back = f"{terms.clock.back:.1f} s"
        remarks.append(
            f"the clock went back by {back}: of exchanges that are closer in time, none is known to be first"
        )
    dropped = sum(view.state.candidates.dropped + view.state.candidates.dropped_late for view in views)
    if dropped:
        remarks.append(f"{plural(dropped, 'finding')} at other places not shown")
    return remarks


def not_remembered(views: Sequence[ViewVerifier]) -> Iterator[MissingPart]:
    forgotten = sum(view.state.partitions.evicted + view.state.topics.by_name.evicted for view in views)
    forgotten += sum(view.forgotten(check) for view in views for check in checks())
    if forgotten:
        yield MissingPart("not all of it was remembered, for want of memory")


def not_read(counts: ReadCounts) -> Iterator[MissingPart]:
    for by_api, says in ((counts.not_kept, "were not kept"), (counts.damaged, "cannot be read")):
        yield from (of_apis(f"{count} {api} {counts.side}{says}", api) for api, count in by_api.items() if count)


def counts_of(views: Sequence[ViewVerifier]) -> dict[str, int]:
    """Return the figures of the report's line "checked". `views`: one of each cluster."""
    names = "acknowledged writes", "read afterwards", "not read", "commits", "groups", "transactions"
    figures = dict.fromkeys(names, 0)
    for view in views:
        counts = view.state.counts
        written, unread = counts["acknowledged writes"], min(counts["not read"], counts["acknowledged writes"])
        figures["acknowledged writes"] += written
        figures["read afterwards"] += written - unread
        figures["not read"] += unread
        for name in names[3:]:
            figures[name] += counts[name]
    return figures
