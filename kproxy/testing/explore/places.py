"""Exchanges of a run as places, and the places that two runs have in common.

Retries and polls change the number of a request. So a place has a mark that a rule can select: the offset of a Fetch or
commit, or the ordinal of a new batch. Other places have ordinals if both runs count the same, otherwise only `first`
and `last`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from .model import ExchangePlace, PlaceMark

OFFSET_APIS = frozenset(("Fetch", "OffsetCommit", "TxnOffsetCommit"))
# APIs whose number of requests depends on time
POLLED = frozenset((
    "Fetch", "ShareFetch", "Metadata", "FindCoordinator", "Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat",
    "ApiVersions", "ListOffsets", "GetTelemetrySubscriptions", "PushTelemetry",
))  # fmt: skip
MOST_PLACES = 5_000  # of one run, in the order of its requests
MOST_OF_LANE = 48  # places of one client, API and entity at which faults are tried


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """Facts about one entity of a request; None for missing names. `batch`: the same for a batch that is sent again.
    `error`: name of the error in the response."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    offset: int | None = None
    batch: Hashable = None
    traits: frozenset[str] = frozenset()
    error: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    api: str
    client_id: str | None = None
    client_software: str | None = None
    entities: tuple[EntityFacts, ...] = (EntityFacts(),)
    answered: bool = True


def places_of(exchanges: Sequence[ExchangeFacts]) -> tuple[ExchangePlace, ...]:
    shared = shared_ids(exchanges)
    numbers: Counter[object] = Counter()
    batches: defaultdict[ExchangePlace, dict[Hashable, list[int]]] = defaultdict(dict)
    found: list[ExchangePlace] = []
    for exchange in exchanges:
        software = exchange.client_software if exchange.client_id in shared else None
        met: set[object] = set()  # a rule counts a request once, however often it is about the same thing
        for partition, entity in levels(exchange.entities):
            lane = ExchangePlace(
                exchange.api, exchange.client_id, software, entity.topic, partition, entity.group,
                entity.transactional_id,
            )  # fmt: skip
            traits = entity.traits if exchange.answered else entity.traits | {"unanswered"}
            counted = (lane, entity.offset) if with_offset(exchange.api, entity) else lane
            if counted in met:
                continue
            met.add(counted)
            numbers[counted] += 1
            mark = mark_of(lane, entity, numbers[counted], batches[lane])
            if mark.again > 1:
                traits |= {"again"}
            found.append(replace(lane, mark=mark, traits=traits))
            if len(found) >= MOST_PLACES:
                return tuple(found)
    return tuple(found)


def levels(entities: Iterable[EntityFacts]) -> Iterator[tuple[int | None, EntityFacts]]:
    """Yield each entity with its partition, and also without it: records without a key go to another partition in each
    run."""
    for entity in entities:
        yield entity.partition, entity
        if entity.partition is not None and entity.topic:
            yield None, entity


def with_offset(api: str, entity: EntityFacts) -> bool:
    """Return True if the offset of this entity is its mark."""
    return api in OFFSET_APIS and entity.offset is not None and entity.offset >= 0


def mark_of(lane: ExchangePlace, entity: EntityFacts, nth: int, batches: dict[Hashable, list[int]]) -> PlaceMark:
    if with_offset(lane.api, entity):
        return PlaceMark("offset", nth, entity.offset)
    if entity.batch is None:
        return PlaceMark("ordinal", nth)
    number = batches.setdefault((entity.partition, entity.batch), [len(batches) + 1, 0])
    number[1] += 1
    return PlaceMark("batch", nth, batch=number[0], again=number[1])


def shared_ids(exchanges: Iterable[ExchangeFacts]) -> frozenset[str | None]:
    """Return the client ids that several client libraries use."""
    software: defaultdict[str | None, set[str]] = defaultdict(set)
    for exchange in exchanges:
        if exchange.client_software is not None:
            software[exchange.client_id].add(exchange.client_software)
    return frozenset(client for client, names in software.items() if len(names) > 1)


def digest_of(exchanges: Sequence[ExchangeFacts]) -> str:
    """Return a digest of requests and errors, the same if only the number of polls differs."""
    said: Counter[tuple[object, ...]] = Counter()
    for exchange in exchanges:
        for one in exchange.entities:
            about = one.topic, one.partition, one.group, one.transactional_id, one.offset, one.error
            answered = exchange.answered or exchange.api in POLLED  # a poll may be under way when a test ends
            said[exchange.api, exchange.client_id, answered, *about] += 1
    lines = sorted(repr((key, 1 if key[0] in POLLED else count)) for key, count in said.items())
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def errors_of(exchanges: Iterable[ExchangeFacts]) -> tuple[str, ...]:
    """Return the names of the errors in responses, each once, without those of ApiVersions."""
    asked = (exchange for exchange in exchanges if exchange.api != "ApiVersions")
    return tuple(dict.fromkeys(one.error for exchange in asked for one in exchange.entities if one.error))


@dataclass(frozen=True, slots=True)
class LearnedPlaces:
    """Places of both runs without faults, in order. `kinds`: number of lanes (a client, an API, an entity). `varying`:
    APIs with other request counts in each run. `ranks`: order within a lane. `by_partition`: topics, by client and API,
    with the same partitions in both runs."""

    places: tuple[ExchangePlace, ...] = ()
    kinds: int = 0
    varying: tuple[str, ...] = ()
    ranks: dict[ExchangePlace, int] = field(default_factory=dict)
    by_partition: frozenset[ExchangePlace] = frozenset()

    def tells(self, place: ExchangePlace) -> bool:
        """Return True if faults are tried at this level: of the partition, or else of the topic."""
        return not place.topic or (topic_of(place) in self.by_partition) == (place.partition is not None)


def common_places(first: Sequence[ExchangePlace], second: Sequence[ExchangePlace]) -> LearnedPlaces:
    """Return the places of both runs at which the same rule acts in both."""
    apart = partitions_alike(first, second)
    learned = LearnedPlaces(by_partition=apart)
    ours, theirs = (by_lane(place for place in run if learned.tells(place)) for run in (first, second))
    order = {place: number for number, place in reversed(list(enumerate(first)))}
    places: list[ExchangePlace] = []
    varying: set[str] = set()
    for lane, here in ours.items():
        there = {place: place.traits for place in theirs.get(lane, ())}
        if len(here) != len(there):
            varying.add(lane.api)
        if not there:
            continue
        if len(here) != len(there) and all(place.mark.kind == "ordinal" for place in here):
            common = ends(here, min(len(here), len(there)))
            known = [one for one in there if one.mark.kind == "ordinal"]
            there |= {place: known[place.mark.nth - 1].traits for place in common if place.mark.nth <= len(known)}
            order |= {place: order[here[place.mark.nth - 1]] for place in common}
        else:
            common = here
        kept = [replace(place, traits=place.traits & there[place]) for place in common if place in there]
        places += spread(kept)
    varying |= {lane.api for lane in theirs if lane not in ours}
    places.sort(key=lambda place: order[place])
    kinds = len(ours.keys() & theirs.keys())
    return LearnedPlaces(tuple(places), kinds, tuple(sorted(varying)), ranks_of(places), apart)


def topic_of(place: ExchangePlace) -> ExchangePlace:
    return replace(place.lane, partition=None)


def partitions_alike(first: Iterable[ExchangePlace], second: Iterable[ExchangePlace]) -> frozenset[ExchangePlace]:
    """Return the topics, by client and API, that have the same offsets and batches by partition in both runs."""

    def said(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, set[tuple[object, ...]]]:
        found: defaultdict[ExchangePlace, set[tuple[object, ...]]] = defaultdict(set)
        for place in places:
            if place.partition is not None and place.topic:
                found[topic_of(place)].add((place.partition, place.mark.offset, place.mark.batch))
        return found

    ours, theirs = said(first), said(second)
    return frozenset(topic for topic, partitions in ours.items() if theirs.get(topic) == partitions)


def by_lane(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, list[ExchangePlace]]:
    lanes: dict[ExchangePlace, list[ExchangePlace]] = {}
    for place in places:
        lanes.setdefault(place.lane, []).append(place)
    return lanes


def ends(places: Sequence[ExchangePlace], count: int) -> list[ExchangePlace]:
    """Return the first place of a lane, and the last one that all runs have."""
    first = replace(places[0], mark=PlaceMark("first", 1))
    last = replace(places[count - 1], mark=PlaceMark("last", count))
    return [first] if count == 1 else [first, last]


def spread(places: Sequence[ExchangePlace]) -> list[ExchangePlace]:
    """Return at most MOST_OF_LANE of these places, evenly distributed, with the first and the last."""
    if len(places) <= MOST_OF_LANE:
        return list(places)
    step = (len(places) - 1) / (MOST_OF_LANE - 1)
    return [places[round(number * step)] for number in range(MOST_OF_LANE)]


FIRST_RANK, LAST_RANK = 1, 2  # of the first and the last place of a lane with at least three


def ranks_of(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, int]:
    """Return a rank for each place within its lane: 0 for the middle, 1 for the first, then the last, and others."""
    ranks: dict[ExchangePlace, int] = {}
    for lane in by_lane(places).values():
        middle, last = len(lane) // 2, len(lane) - 1
        chosen = dict.fromkeys((middle, 0, last))
        for rank, number in enumerate((*chosen, *(one for one in range(len(lane)) if one not in chosen))):
            ranks[lane[number]] = rank
    return ranks
