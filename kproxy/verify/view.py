"""Verification of one view of a record: its facts in the order of time, given to all checks."""

from __future__ import annotations

from collections.abc import Iterable

from .acknowledged import AcknowledgedCheck, AnswersCheck
from .checks import checks
from .commits import CommitsCheck
from .committed_reads import CommittedReadsCheck
from .connections import AnswerOrderCheck, ConformanceCheck, LeaderEpochsCheck, VersionsCheck
from .consumers import PositionsCheck
from .facts import Fact
from .finding import Finding, RecordView
from .groups import BrokerGroupsCheck, ClassicGroupsCheck, MemberEpochsCheck
from .history_check import SHARE, CheckState, ErasCheck, FactHandler, HistoryCheck
from .log_bounds import LogBoundsCheck
from .order import TimeOrder
from .sequences import ConnectionOrderCheck, SequenceGapsCheck, SequencesCheck
from .servers import KnownServers
from .stored_batches import SentBatchesCheck, StoredBatchesCheck
from .suspicion import Suspicion
from .terms import VerifyTerms
from .transactions import ProducersCheck, TransactionsCheck

CHECKS: tuple[type[HistoryCheck], ...] = (
    ErasCheck, AcknowledgedCheck, StoredBatchesCheck, SentBatchesCheck, SequencesCheck, SequenceGapsCheck,
    ConnectionOrderCheck, AnswersCheck, LogBoundsCheck, CommittedReadsCheck, TransactionsCheck, ProducersCheck,
    CommitsCheck, PositionsCheck, ClassicGroupsCheck, BrokerGroupsCheck, MemberEpochsCheck, VersionsCheck,
    LeaderEpochsCheck, ConformanceCheck, AnswerOrderCheck,
)  # fmt: skip
"""Checks in the order in which they are told of a fact: what covers a stretch of a log comes before what asks."""

OF_MARKERS = frozenset({"aborted-read", "hidden-transaction", "torn-transaction"})
"""Checks that need what markers of transactions say."""


class ViewVerifier:
    """Verifier of what clients saw, or of what brokers did."""

    def __init__(self, view: RecordView, terms: VerifyTerms, memory: int, servers: KnownServers | None = None) -> None:
        self.view, self.terms = view, terms
        self.order = TimeOrder(memory, terms.clock)
        self.state = CheckState(terms, memory, servers or KnownServers())
        self.checks = [one(self.state) for one in CHECKS]  # each, since one knows what another asks for
        self.handlers: dict[type[Fact], list[FactHandler]] = {}
        for check in self.checks:
            for kind, handler in check.handlers().items():
                self.handlers.setdefault(kind, []).append(handler)

    def limit(self, memory: int) -> None:
        """Have what comes from now on take so many bytes at most."""
        self.order.limit(memory)
        self.state.partitions.limit(memory)
        self.state.room.most = memory // SHARE

    def forgotten(self, check: str) -> int:
        """Return how much of what a check needs was forgotten, as there was no room for it."""
        state = self.state
        forgotten = state.forgot[check]
        forgotten += sum(one.dropped for each in self.checks if check in each.names for one in each.maps)
        histories = list(state.partitions.histories.values())
        if check in OF_MARKERS:
            forgotten += state.markers.by_producer.dropped + state.markers.forgotten
            forgotten += sum(one.covered.dropped for one in histories)
        if check == "order":
            forgotten += sum(one.producers.dropped for one in histories)
        return forgotten

    def obstacle(self, check: str) -> str:
        """Return why a check of what is in the record is not one of all of it; empty if it is."""
        state = self.state
        if check == "phantom-record" and not self.terms.complete:
            return "records may have been written past the record, which only --complete excludes"
        forgotten = self.forgotten(check)
        if forgotten:
            return f"not all of it was remembered: {forgotten} entries were forgotten for want of memory"
        if state.partitions.evicted and checks()[check].detail == "headers":
            return (
                f"compared with the newest batches only: {state.partitions.evicted} were forgotten for want of memory"
            )
        if state.unread_markers and check in OF_MARKERS:
            return f"the record does not tell which end {state.unread_markers} markers of transactions are"
        if state.recast and check == "inconsistent-offset" and not self.terms.records:
            return (
                f"{state.recast} batches are stored in another form than they were sent in, so that headers do not tell"
            )
        return ""

    def take(self, time: float, facts: list[Fact], *, over: bool = True) -> None:
        """Take the facts of an exchange that was over at `time`, or has begun then and was never over."""
        for due in self.order.take(time, facts, over=over):
            self.tell(due)

    def tell(self, facts: Iterable[Fact]) -> None:
        """Tell all checks of facts, now that it is their turn."""
        handlers = self.handlers
        for fact in facts:
            for handle in handlers.get(type(fact), ()):
                handle(fact)

    def end(self) -> None:
        """Tell the checks of all that is still held, since the record is over."""
        for due in self.order.rest():
            self.tell(due)

    def answers_without_requests(self, count: int) -> None:
        for check in self.checks:
            if isinstance(check, AnswerOrderCheck):
                check.strangers = count

    def findings(self) -> list[Finding]:
        """Return what is found as of now."""
        pending: list[Suspicion] = []
        for check in self.checks:
            pending += check.pending()
        found = list(self.state.suspicions.findings(pending))
        for finding in found:
            finding.view = self.view
        return found
