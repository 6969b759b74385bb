"""Checks of the bounds of a log, which do not go back, and of deleted records, which do not return."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from .facts import ALL_REPLICAS, Fact, OffsetToldFact, ReadFact, RecordsDeletedFact, Witness, WriteFact
from .history_check import CheckState, FactHandler, HistoryCheck
from .lru_map import RecentMap

MOST_BOUNDS = 100_000
LATEST_IS_FENCED = 5
"""Version of ListOffsets since a new leader reports no end before it knows the high watermark (KIP-207)."""
START, END, WATERMARK = "log start", "end", "high watermark"
ANYWHERE = "any node"
BoundFact = ReadFact | WriteFact | OffsetToldFact | RecordsDeletedFact
Scope = tuple[Hashable, tuple[str, ...]]
"""Exchanges whose bounds are compared, None for none, with the doubts about such a comparison."""


class LogBoundsCheck(HistoryCheck):
    """Checks of the bounds of a log in all responses that contain them.

    Each replica deletes old records by itself and learns the high watermark after its leader. So bounds of one
    connection or node are compared. A broker process lowers a bound only for a new leader.
    """

    names = ("log-goes-back", "deleted-read")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        # Highest offset and its exchange, by partition, era, bound and scope (connection, node, or anywhere).
        self.highest: RecentMap[tuple[Hashable, ...], list[tuple[int, Witness]]] = self.recent(
            MOST_BOUNDS, list[tuple[int, Witness]]
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        return {ReadFact: self.read, WriteFact: self.written, OffsetToldFact: self.listed,
                RecordsDeletedFact: self.records_deleted}  # fmt: skip

    def read(self, read: ReadFact) -> None:
        """Compare the bounds and the batches of a Fetch response with earlier bounds."""
        if read.shared:
            return
        self.start(read, read.log_start)
        node, scope = read.witness.node, (read.witness.connection, read.leader_epoch)
        # A leader never lowers its watermark. A follower does if its new leader has a lower one.
        scopes: list[Scope] = [(scope, ("anew",))] if self.state.leads(read.place, read.leader_epoch, node) else []
        scopes.append((node, ("follower", "anew", "unclean")))
        self.compare(read, WATERMARK, read.high_watermark, scopes)
        self.raise_to(read, END, read.high_watermark, ANYWHERE)
        self.not_deleted(read)

    def listed(self, fact: OffsetToldFact) -> None:
        """Compare a bound in a ListOffsets response, which only leaders send, with earlier ones."""
        if fact.bound == "start":
            self.start(fact, fact.offset)
        elif fact.bound is not None:
            kind = "end in ListOffsets" if fact.bound == "end" else "last stable offset"
            fenced = (
                ("anew", "unclean") if fact.witness.version >= LATEST_IS_FENCED else ("follower", "anew", "unclean")
            )
            scopes: list[Scope] = [(fact.witness.node, fenced), (ANYWHERE, ("follower", "anew", "unclean"))]
            self.compare(fact, kind, fact.offset, scopes)
            self.raise_to(fact, END, fact.offset, ANYWHERE)

    def written(self, write: WriteFact) -> None:
        """Compare the log start, and the offset of a write, with the bounds before it was sent.

        An idempotent producer also receives the offset of an earlier attempt.
        """
        if write.result != "ok" or write.base is None:
            return
        self.start(write, write.log_start)
        known = self.known(write, END, ANYWHERE)
        if known and write.batches and all(one.identity.producer_id < 0 and one.comparable for one in write.batches):
            (end, earlier), witness = known[0], write.witness
            if not earlier.before(witness):
                return
            doubts = ("anew", "unclean", *(("truncation",) if write.acks != ALL_REPLICAS else ()))
            self.compared("log-goes-back", earlier, witness, place=write.place, doubts=doubts)
            if write.base < end:
                says = f"a write was given offset {write.base}, after the log had an end of at least {end}"
                self.violation("log-goes-back", write.place, says, doubts,
                               (earlier, f"{end}"), (witness, f"base_offset {write.base}"))  # fmt: skip

    def records_deleted(self, fact: RecordsDeletedFact) -> None:
        """Take in the lowest log start of all live replicas after DeleteRecords."""
        for kind, scope in ((START, fact.witness.node), ("deleted", ANYWHERE)):
            self.raise_to(fact, kind, fact.low_watermark, scope)

    def not_deleted(self, read: ReadFact) -> None:
        """Add a suspicion if a response contains a batch that ends below the offset of an earlier DeleteRecords."""
        known, witness = self.known(read, "deleted", ANYWHERE), read.witness
        if not known or not known[0][1].before(witness):
            return
        offset, deletion = known[0]
        doubts = ["anew", "unclean"] + ["old-start"] * (deletion.connection != witness.connection)
        doubts += ["follower"] * (witness.node is None or deletion.node != witness.node)
        for batch in read.batches[:1]:
            self.compared("deleted-read", deletion, witness, place=read.place, doubts=tuple(doubts))
            if batch.last < offset:
                says = f"records below {offset} were deleted, and a later response has the batch at {batch.base}"
                self.violation("deleted-read", read.place, says, doubts, (deletion, f"deleted below {offset}"),
                               (witness, f"a batch from {batch.base} to {batch.last}"))  # fmt: skip

    def start(self, fact: ReadFact | WriteFact | OffsetToldFact, offset: int) -> None:
        """Compare a log start with earlier ones of the same node.

        A broker saves it from time to time, not with each change. A replica that is assigned again begins at the log
        start of its leader, which may be lower.
        """
        self.compare(fact, START, offset, [(fact.witness.node, ("old-start", "anew", "unclean"))])

    def known(self, fact: BoundFact, kind: str, scope: Hashable) -> list[tuple[int, Witness]] | None:
        """Return the highest earlier bound in a scope, with its exchange."""
        return self.highest.get((fact.place, self.partitions.era(fact.place.topic), kind, scope))

    def raise_to(self, fact: BoundFact, kind: str, offset: int, scope: Hashable) -> None:
        """Keep a bound if it is higher than all earlier ones in its scope."""
        if offset >= 0 and scope is not None:
            highest = self.highest[fact.place, self.partitions.era(fact.place.topic), kind, scope]
            if not highest or offset > highest[0][0]:
                highest[:] = [(offset, fact.witness)]

    def compare(self, fact: BoundFact, kind: str, offset: int, scopes: list[Scope]) -> None:
        """Compare a bound with the highest earlier one in each scope, and take it in. -1: the response has none."""
        found = False
        for scope, doubts in scopes:
            known = self.known(fact, kind, scope)
            if known and offset >= 0 and known[0][1].before(fact.witness):
                highest, earlier = known[0]
                self.compared("log-goes-back", earlier, fact.witness, place=fact.place, doubts=doubts)
                if offset < highest:
                    if not found:
                        says = f"the {kind} went back from {highest} to {offset}"
                        shown = (earlier, f"{kind} {highest}"), (fact.witness, f"{kind} {offset}")
                        self.violation("log-goes-back", fact.place, says, doubts, *shown)
                    found, known[:] = True, [(offset, fact.witness)]
            self.raise_to(fact, kind, offset, scope)
