"""Checks of reads: batches of a response, data of transactions in it, and positions of consumers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural

from .facts import (
    LAST_OFFSET,
    AssignmentFact,
    BatchFact,
    ConnectionKey,
    FetchedCommitFact,
    FetchPositionFact,
    JoinFact,
    ListedOffsetFact,
    MemberFact,
    OwnershipFact,
    PartitionPlace,
    ReadFact,
    Witness,
)
from .finding import BatchInQuestion
from .history_check import CheckState, HistoryCheck, handles
from .partition import SeenMarker

MOST_WAITING = 1000  # offsets of a producer in a partition that wait for their marker


class AnswersCheck(HistoryCheck):
    """Checks of single responses: offsets ascend, and batches have all their records."""

    names = ("read-disorder", "thinned-batch")

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        end = -1
        for batch in read.batches:
            if not batch.comparable:
                end = max(end, batch.base)
                continue
            if end >= 0 or batch.content is not None:
                self.compared("read-disorder", read.witness, place=read.place)
            if not batch.marker:
                self.compared("thinned-batch", read.witness, place=read.place, doubts=("compaction",), any_age=True)
            question = BatchInQuestion(read.place, [(read.witness.number, batch.base)])
            if batch.base <= end:
                says = f"a response has a batch at offset {batch.base} after one that ends at {end}"
                self.report("read-disorder", read.place, says, (read.witness, f"up to {end}, then {batch.base}"))
            if not batch.ascending:
                says = f"the records of the batch at offset {batch.base} are not in the order of their offsets"
                shown = read.witness, f"the batch at {batch.base}"
                self.report("read-disorder", read.place, says, shown, batch=question)
            end = max(end, batch.last)
            count = batch.identity.records
            if count != batch.delta + 1 and not batch.marker:
                has = plural(count, "record")
                says = f"the batch at offset {batch.base} has {has} for {plural(batch.delta + 1, 'offset')}"
                doubts = ("compaction",) if count <= batch.delta else ()
                shown = read.witness, f"{has} from {batch.base} to {batch.last}"
                self.report("thinned-batch", read.place, says, shown, doubts=doubts, batch=question, any_age=True)


class WaitingOffset(NamedTuple):
    """Offset of a transaction in a response, until the marker after it is read. `base`: base offset of its batch.
    `listed`: True if the response lists the transaction as aborted, False if it delivers the batch."""

    offset: int
    base: int
    listed: bool
    witness: Witness


class CommittedReadsCheck(HistoryCheck):
    """Checks of read_committed responses. Also adds all markers in responses to the shared ones."""

    names = ("aborted-read", "hidden-transaction", "read-beyond-stable")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.markers = state.markers
        self.waiting: BoundedMap[tuple[PartitionPlace, int, int], deque[WaitingOffset]] = self.recent(
            20_000, lambda: deque(maxlen=MOST_WAITING), lambda waiting: 500 + 600 * len(waiting)
        )

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        place, added = read.place, []
        markers: defaultdict[int, list[SeenMarker]] = defaultdict(list)
        for batch in read.batches:
            self.state.unread_markers += batch.marker == "other"
            if batch.end is not None:
                identity = batch.identity
                marker = SeenMarker(batch.base, batch.end, identity.epoch, read.witness)
                markers[identity.producer_id].append(marker)
                if self.markers.add(place, identity.producer_id, marker):
                    added.append(identity.producer_id)
        if read.committed_only:
            found = [
                (WaitingOffset(one.last, one.base, False, read.witness), one.identity.producer_id)
                for one in delivered(read)
            ]
            found += self.listed(read, markers)
            for waiting, producer_id in sorted(found, key=lambda one: one[0].offset):
                self.ended(place, producer_id, waiting)
        for producer_id in added:
            queue = self.waiting.get((place, self.partitions.era(place.topic), producer_id))
            known = self.markers.of(place, producer_id).markers
            while queue and known and queue[0].offset < known[-1].offset:
                self.ended(place, producer_id, queue.popleft(), again=True)
        self.stable(read)

    def listed(self, read: ReadFact, markers: Mapping[int, list[SeenMarker]]) -> Iterator[tuple[WaitingOffset, int]]:
        """Compare the transactions that a response lists as aborted with its own markers. Yield those without a marker
        in the response, with their producers."""
        lowest = min((one.base for one in read.batches), default=LAST_OFFSET)
        for producer_id, first in dict.fromkeys(read.aborted):
            mine = [] if first < lowest or read.partial else markers.get(producer_id, [])
            at = bisect_right(mine, first, key=attrgetter("offset"))
            waiting = WaitingOffset(first, first, True, read.witness)
            if at < len(mine):
                self.decided(read.place, producer_id, waiting, mine[at], whole=True)
            else:
                yield waiting, producer_id

    def ended(self, place: PartitionPlace, producer_id: int, waiting: WaitingOffset, *, again: bool = False) -> None:
        """Compare an offset of a transaction with the next marker. If that is unknown, keep the offset unless
        `again`."""
        marker = self.markers.next(place, producer_id, waiting.offset)
        if marker is not None:
            self.decided(place, producer_id, waiting, marker)
        elif not again:
            queue = self.waiting[place, self.partitions.era(place.topic), producer_id]
            for check in ("aborted-read", "hidden-transaction"):
                self.state.forgot[check] += len(queue) == MOST_WAITING
            queue.append(waiting)

    def decided(
        self, place: PartitionPlace, producer_id: int, waiting: WaitingOffset, marker: SeenMarker, *,
        whole: bool = False,
    ) -> None:  # fmt: skip
        """Report a response that delivers an aborted transaction, or lists a committed one as aborted. `whole`: the
        response contains everything from the transaction's first offset to the marker."""
        check = "hidden-transaction" if waiting.listed else "aborted-read"
        doubts = () if whole else ("anew", "unclean")  # a broker reads one response from one log
        self.compared(check, waiting.witness, marker.witness, place=place, doubts=doubts)
        if (marker.end == "abort") is waiting.listed:
            return
        at = waiting.base
        if waiting.listed:
            shows = f"lists the transaction of producer {producer_id} from {at} as aborted"
            says = f"a read_committed response {shows}, and it is committed at {marker.offset}"
        else:
            shows = f"brings the batch at {at}, and does not list it as aborted"
            says = (
                f"data of producer {producer_id} at offset {at} was given to a read_committed reader, "
                f"and aborted at {marker.offset}"
            )
        shown = [(waiting.witness, shows)]
        if marker.witness is not waiting.witness:
            shown.append((marker.witness, f"{marker.end} marker at {marker.offset}"))
        batch = None if waiting.listed else BatchInQuestion(place, [(waiting.witness.number, at)])
        self.report(check, place, says, *shown, doubts=doubts, batch=batch)

    def stable(self, read: ReadFact) -> None:
        """Report a batch at or above the last stable offset of its response. A broker reads that offset before the
        data. A later response with the same offset proves nothing, since a broker that becomes a follower and leads
        again may report a lower one."""
        if read.last_stable < 0 or not read.committed_only or not read.batches:
            return
        self.compared("read-beyond-stable", read.witness, place=read.place, doubts=("anew",))
        batch = next((one for one in read.batches if one.last >= read.last_stable), None)
        if batch is None:
            return
        says = f"a read_committed response has a batch at {batch.base}, and the last stable offset {read.last_stable}"
        shown = read.witness, f"last stable offset {read.last_stable}: a batch at {batch.base}"
        self.report("read-beyond-stable", read.place, says, shown, doubts=("race",))


def delivered(read: ReadFact) -> Iterator[BatchFact]:
    """Yield the transactional batches that a client considers committed, by the algorithm of Java's consumer."""
    aborted = sorted(read.aborted, key=itemgetter(1))
    producers: set[int] = set()
    at_entry = 0
    for batch in read.batches:
        while at_entry < len(aborted) and aborted[at_entry][1] <= batch.last:
            producers.add(aborted[at_entry][0])
            at_entry += 1
        if batch.marker == "abort":
            producers.discard(batch.identity.producer_id)
        elif (
            batch.transactional and not batch.marker and batch.identity.producer_id not in producers
            and batch.identity.records  # a cleaner leaves an empty one for its sequence
        ):  # fmt: skip
            yield batch


MOST_CLIENTS = 20_000
MOST_POSITIONS = 1000  # partitions of one client


@dataclass(slots=True)
class ConsumerPositions:
    """Next offsets of one client's partitions. `given`: by connection and partition, the offset after the last
    response, with that response. `furthest`: of any connection."""

    given: BoundedMap[tuple[ConnectionKey, PartitionPlace], tuple[int, Witness]] = field(
        default_factory=lambda: BoundedMap(MOST_POSITIONS)
    )
    furthest: BoundedMap[PartitionPlace, int] = field(default_factory=lambda: BoundedMap(MOST_POSITIONS, int))


class PositionsCheck(HistoryCheck):
    """Check that a consumer requests the offset after the last one that it received."""

    names = ("skipped-input",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.clients: BoundedMap[tuple[str, str], ConsumerPositions] = self.recent(
            MOST_CLIENTS, ConsumerPositions, lambda one: 1000 + 700 * len(one.given) + 400 * len(one.furthest)
        )

    @handles(FetchedCommitFact, ListedOffsetFact, JoinFact, AssignmentFact, OwnershipFact, MemberFact)
    def moved(
        self, fact: FetchedCommitFact | ListedOffsetFact | JoinFact | AssignmentFact | OwnershipFact | MemberFact
    ) -> None:
        """Forget the positions of a client that may have received other partitions or offsets."""
        if isinstance(fact, MemberFact) and not fact.left:
            return
        if isinstance(fact, OwnershipFact) and fact.given is None and not fact.gone:
            return
        self.clients.discard(fact.witness.client_key)

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        following = read.following
        if following is None:
            if read.partial:
                self.clients.discard(read.witness.client_key)
            return
        client = self.clients[read.witness.client_key]
        client.given[read.witness.connection, read.place] = following, read.witness
        client.furthest[read.place] = max(client.furthest[read.place], following)

    @handles(FetchPositionFact)
    def asked(self, asked: FetchPositionFact) -> None:
        """Report a request for a higher offset than the one after the last response."""
        client = self.clients.get(asked.witness.client_key)
        if client is None:
            return
        key = asked.witness.connection, asked.place
        given = client.given.get(key)
        if asked.failed:
            client.given.discard(key)
            return
        if given is None or not given[1].before(asked.witness):
            return
        following, witness = given
        self.compared("skipped-input", witness, asked.witness, place=asked.place)
        if asked.position <= client.furthest[asked.place]:
            return
        says = f"a consumer was given what is below {following}, and asks for {asked.position} next"
        self.report(
            "skipped-input", str(asked.place), says, (witness, f"given up to {following - 1}"),
            (asked.witness, f"from {asked.position}"), doubts=("seek",), place=asked.place, level="suspect",
        )  # fmt: skip
        client.given.discard(key)
