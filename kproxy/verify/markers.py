"""Markers of transactions in the logs, as answers have brought them."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from .facts import PartitionPlace, TransactionEnd, Witness
from .lru_map import RecentMap, SharedRoom
from .partition import PartitionHistories

MOST_PRODUCERS = 20_000
MOST_MARKERS = 1000
"""Markers of one producer in a partition that are remembered; the lowest go first."""


class SeenMarker(NamedTuple):
    """Marker of a transaction at an offset, with the epoch that stands in its batch."""

    offset: int
    end: TransactionEnd
    epoch: int
    witness: Witness


@dataclass(slots=True)
class ProducerMarkers:
    """Markers of one producer id in one partition, by offset. `lowest`: those up to it may have been forgotten."""

    place: PartitionPlace | None = None
    markers: list[SeenMarker] = field(default_factory=list)
    lowest: int = -1


class TransactionMarkers:
    """Markers of all producers in all partitions. A marker is *the next* of a batch's producer only if all that is
    between them is known, and no marker among it was forgotten: another one may be there. `floors`: by partition, the
    highest offset of those that were forgotten with their producers."""

    def __init__(self, partitions: PartitionHistories, room: SharedRoom) -> None:
        self.partitions, self.forgotten = partitions, 0
        self.by_producer: RecentMap[tuple[PartitionPlace, int, int], ProducerMarkers] = RecentMap(
            MOST_PRODUCERS, ProducerMarkers, self._forget, room=room,
            weigh=lambda known: 500 + 500 * len(known.markers),
        )  # fmt: skip
        self.floors: dict[PartitionPlace, int] = {}
        self.floor = -1

    def of(self, place: PartitionPlace, producer_id: int) -> ProducerMarkers:
        known = self.by_producer[place, self.partitions.era(place.topic), producer_id]
        if known.place is None:
            known.place, known.lowest = place, max(self.floors.get(place, -1), self.floor)
        return known

    def _forget(self, known: ProducerMarkers) -> None:
        if known.place is None or not known.markers:
            return
        if known.place not in self.floors and len(self.floors) >= MOST_PRODUCERS:
            self.floor = max(self.floor, *self.floors.values())
            self.floors.clear()
        offset = known.markers[-1].offset
        self.floors[known.place] = max(self.floors.get(known.place, -1), offset)

    def add(self, place: PartitionPlace, producer_id: int, marker: SeenMarker) -> bool:
        """Take in a marker; return True if it is a new one."""
        known = self.of(place, producer_id)
        at = bisect_right(known.markers, marker.offset, key=attrgetter("offset"))
        if marker.offset <= known.lowest or (at and known.markers[at - 1].offset == marker.offset):
            return False
        insort(known.markers, marker, key=attrgetter("offset"))
        if len(known.markers) > MOST_MARKERS:
            known.lowest = known.markers[MOST_MARKERS // 2 - 1].offset
            del known.markers[: MOST_MARKERS // 2]
            self.forgotten += MOST_MARKERS // 2
        return True

    def next(self, place: PartitionPlace, producer_id: int, offset: int) -> SeenMarker | None:
        """Return the next marker of a producer behind an offset; None as long as it is not certain which that is."""
        known = self.of(place, producer_id)
        if offset <= known.lowest:
            return None
        at = bisect_right(known.markers, offset, key=attrgetter("offset"))
        if at == len(known.markers):
            return None
        marker = known.markers[at]
        return marker if self.partitions[place].covered.holds(offset, marker.offset) else None
