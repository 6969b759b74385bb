"""Checks of answers to read_committed: no data of aborted transactions, and none of those that are open."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from .facts import BatchFact, Fact, PartitionPlace, ReadFact, Witness
from .finding import BatchInQuestion, Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .markers import SeenMarker
from .recent import RecentMap
from .suspicion import Suspicion

MOST_WAITING = 1000
"""Batches of a producer that wait until somebody has read how their transaction ended."""

WaitingBatch = tuple[BatchFact, Witness]


class CommittedReadsCheck(HistoryCheck):
    """Check of read_committed answers. It takes in the markers that answers bring, for other checks, too."""

    names = ("aborted-read", "read-beyond-stable")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.markers = state.markers
        self.waiting: RecentMap[tuple[PartitionPlace, int, int], deque[WaitingBatch]] = self.recent(
            20_000, lambda: deque(maxlen=MOST_WAITING), lambda waiting: 500 + 600 * len(waiting)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {ReadFact: self.read}

    def read(self, read: ReadFact) -> None:
        """Look at the transactions in an answer."""
        place, told = read.place, []
        for batch in read.batches:
            self.state.unread_markers += batch.marker == "other"
            if batch.end is not None:
                identity = batch.identity
                marker = SeenMarker(batch.base, batch.end, identity.epoch, read.witness)
                if self.markers.add(place, identity.producer_id, marker):
                    told.append(identity.producer_id)
        if read.committed_only:
            for batch in delivered(read):
                self.ended(place, batch, read.witness, wait=True)
        for producer_id in told:
            waiting = self.waiting.get((place, self.partitions.era(place.topic), producer_id))
            known = self.markers.of(place, producer_id).markers
            while waiting and known and waiting[0][0].base < known[-1].offset:
                self.ended(place, *waiting.popleft(), wait=False)
        self.stable(read)

    def ended(self, place: PartitionPlace, batch: BatchFact, witness: Witness, *, wait: bool) -> None:
        """Keep a suspicion if a batch that an answer gave as committed was aborted; else let it wait if `wait`."""
        producer_id = batch.identity.producer_id
        marker = self.markers.next(place, producer_id, batch.last)
        if marker is None:
            if wait:
                waiting = self.waiting[place, self.partitions.era(place.topic), producer_id]
                self.state.forgot["aborted-read"] += len(waiting) == MOST_WAITING
                waiting.append((batch, witness))
            return
        self.compared("aborted-read", witness, marker.witness, place=place, doubts=("anew",))
        if marker.end == "commit":
            return
        evidence = [Evidence(witness, f"brings the batch at {batch.base}, and does not list it as aborted")]
        if marker.witness is not witness:
            evidence.append(Evidence(marker.witness, f"abort marker at {marker.offset}"))
        self.suspect(
            Suspicion(
                "aborted-read",
                "proved",
                str(place),
                f"data of producer {producer_id} at offset {batch.base} was given to a read_committed reader, "
                f"and aborted at {marker.offset}",
                evidence,
                ("anew", "unclean"),
                place,
                batch=BatchInQuestion(place, [(witness.number, batch.base)]),
            )
        )

    def stable(self, read: ReadFact) -> None:
        """Keep a suspicion if a response has data that its last stable offset excludes.

        A broker reads the offset before the data. A later response with the same offset proves nothing: the offset of a
        broker goes back when it becomes a follower and leads again.
        """
        if read.last_stable < 0 or not read.committed_only or not read.batches:
            return
        self.compared("read-beyond-stable", read.witness, place=read.place, doubts=("anew",))
        batch = next((one for one in read.batches if one.base >= read.last_stable), None)
        if batch is None:
            return
        self.suspect(
            Suspicion(
                "read-beyond-stable",
                "proved",
                str(read.place),
                f"a read_committed response has a batch at offset {batch.base}, and the last stable offset "
                f"{read.last_stable}",
                [Evidence(read.witness, f"last stable offset {read.last_stable}: a batch at {batch.base}")],
                ("race",),
                read.place,
            )
        )


def delivered(read: ReadFact) -> Iterator[BatchFact]:
    """Yield the batches of transactions that a client takes for committed, as Java's consumer decides."""
    aborted = sorted(read.aborted, key=first_offset)
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


def first_offset(aborted: tuple[int, int]) -> int:
    """Return where an aborted transaction begins, by which they are sorted."""
    return aborted[1]
