"""A tape read as places: what a run's exchanges are about, and which of them are the same in every run.

A global number is no identity, since retries, empty polls and heartbeats move it. So a place is told from others of its
client, API and entity by a state of the conversation where there is one that a rule can select: the offset that a Fetch
asks for or that is committed. Writes are numbered by new batches: one that was seen before is the same batch again.
All others have ordinals where both runs count the same, and else only `first` and `last`.

`match: {offset: …}` and `when: {nth, counts: all}` find a place again, so that all which is told apart here is
within reach of a rule. Generations are not: nothing selects them, and a group's joins are numbered well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from .model import ExchangePlace, PlaceMark

OFFSET_APIS = frozenset(("Fetch", "OffsetCommit", "TxnOffsetCommit"))
POLLED = frozenset((
    "Fetch", "ShareFetch", "Metadata", "FindCoordinator", "Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat",
    "ApiVersions", "ListOffsets", "GetTelemetrySubscriptions", "PushTelemetry",
))  # fmt: skip
"""APIs of which the same conversation has more or fewer requests, as time goes by."""
MOST_PLACES = 5_000
"""Places kept of one run, in the order of its requests; a test that has more is told so."""
MOST_OF_LANE = 48
"""Places of one client, API and entity that faults are tried at."""


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """Facts about one thing that a request is about; None for what it does not name.

    `batch`: the same for a batch that is sent again. `error`: the name of the error that the client was told of it.
    """

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
    """Facts about one exchange, as far as places need them."""

    api: str
    client_id: str | None = None
    client_software: str | None = None
    entities: tuple[EntityFacts, ...] = (EntityFacts(),)
    answered: bool = True


def places_of(exchanges: Sequence[ExchangeFacts]) -> tuple[ExchangePlace, ...]:
    """Return the places of a run's exchanges, in their order."""
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
            mark = mark_of(lane, entity, numbers[counted], batches)
            if mark.again > 1:
                traits |= {"again"}
            found.append(replace(lane, mark=mark, traits=traits))
            if len(found) >= MOST_PLACES:
                return tuple(found)
    return tuple(found)


def levels(entities: Iterable[EntityFacts]) -> Iterator[tuple[int | None, EntityFacts]]:
    """Yield each entity with its partition, and a partition of a topic also without it: records without a key go to
    another partition in each run."""
    for entity in entities:
        yield entity.partition, entity
        if entity.partition is not None and entity.topic:
            yield None, entity


def with_offset(api: str, entity: EntityFacts) -> bool:
    """Return True if the place of this entity is told by the offset that is asked for or committed."""
    return api in OFFSET_APIS and entity.offset is not None and entity.offset >= 0


def mark_of(
    lane: ExchangePlace,
    entity: EntityFacts,
    nth: int,
    batches: defaultdict[ExchangePlace, dict[Hashable, list[int]]],
) -> PlaceMark:
    """Return the mark of the request that is the nth of its lane, or of its lane and offset."""
    if with_offset(lane.api, entity):
        return PlaceMark("offset", nth, entity.offset)
    if entity.batch is None:
        return PlaceMark("ordinal", nth)
    known = batches[lane]
    number = known.setdefault((entity.partition, entity.batch), [len(known) + 1, 0])
    number[1] += 1
    return PlaceMark("batch", nth, batch=number[0], again=number[1])


def shared_ids(exchanges: Iterable[ExchangeFacts]) -> frozenset[str | None]:
    """Return the client ids under which several client libraries speak, so that they are told apart by their names."""
    software: defaultdict[str | None, set[str]] = defaultdict(set)
    for exchange in exchanges:
        if exchange.client_software is not None:
            software[exchange.client_id].add(exchange.client_software)
    return frozenset(client for client, names in software.items() if len(names) > 1)


def digest_of(exchanges: Sequence[ExchangeFacts]) -> str:
    """Return a digest that is the same for runs in which clients asked for the same and were told the same, however
    often they polled."""
    said: Counter[tuple[object, ...]] = Counter()
    for exchange in exchanges:
        for one in exchange.entities:
            about = one.topic, one.partition, one.group, one.transactional_id, one.offset, one.error
            answered = exchange.answered or exchange.api in POLLED  # a poll may be under way when a test ends
            said[exchange.api, exchange.client_id, answered, *about] += 1
    lines = sorted(repr((key, 1 if key[0] in POLLED else count)) for key, count in said.items())
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def errors_of(exchanges: Iterable[ExchangeFacts]) -> tuple[str, ...]:
    """Return the names of the errors that clients were told, each once; but for those by which they learn in which
    version to ask."""
    asked = (exchange for exchange in exchanges if exchange.api != "ApiVersions")
    return tuple(dict.fromkeys(one.error for exchange in asked for one in exchange.entities if one.error))


# ---- what two runs have in common


@dataclass(frozen=True, slots=True)
class LearnedPlaces:
    """Places that are the same in both runs without faults, in their order.

    `kinds`: how many lanes there are (a client, an API, an entity). `varying`: APIs of which the runs had more or fewer
    requests. `ranks`: which of a lane's places is tried first. `by_partition`: topics, by client and API, whose
    partitions are told apart, since they are the same in both runs.
    """

    places: tuple[ExchangePlace, ...] = ()
    kinds: int = 0
    varying: tuple[str, ...] = ()
    ranks: dict[ExchangePlace, int] = field(default_factory=dict)
    by_partition: frozenset[ExchangePlace] = frozenset()

    def tells(self, place: ExchangePlace) -> bool:
        """Return True if faults are tried at places like this one: of a partition, or else of its whole topic."""
        return not place.topic or (topic_of(place) in self.by_partition) == (place.partition is not None)


def common_places(first: Sequence[ExchangePlace], second: Sequence[ExchangePlace]) -> LearnedPlaces:
    """Return what two runs have in common: places that are in both, at which the same rule acts in both."""
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
    """Return the lane of all partitions of a topic to which a place belongs."""
    return ExchangePlace(
        place.api, place.client_id, place.client_software, place.topic, None, place.group, place.transactional_id
    )


def partitions_alike(first: Iterable[ExchangePlace], second: Iterable[ExchangePlace]) -> frozenset[ExchangePlace]:
    """Return the topics, by client and API, that are asked for in both runs by the same partitions, with the same
    offsets and as many batches of each."""

    def said(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, set[tuple[object, ...]]]:
        found: defaultdict[ExchangePlace, set[tuple[object, ...]]] = defaultdict(set)
        for place in places:
            if place.partition is not None and place.topic:
                found[topic_of(place)].add((place.partition, place.mark.offset, place.mark.batch))
        return found

    ours, theirs = said(first), said(second)
    return frozenset(topic for topic, partitions in ours.items() if theirs.get(topic) == partitions)


def by_lane(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, list[ExchangePlace]]:
    """Return the places of each client, API and entity."""
    lanes: dict[ExchangePlace, list[ExchangePlace]] = {}
    for place in places:
        lanes.setdefault(place.lane, []).append(place)
    return lanes


def ends(places: Sequence[ExchangePlace], count: int) -> list[ExchangePlace]:
    """Return the first place of a lane and, of those that all runs have, the last."""
    first = replace(places[0], mark=PlaceMark("first", 1))
    last = replace(places[count - 1], mark=PlaceMark("last", count))
    return [first] if count == 1 else [first, last]


def spread(places: Sequence[ExchangePlace]) -> list[ExchangePlace]:
    """Return at most MOST_OF_LANE of these places, the first and the last among them, and others evenly between."""
    if len(places) <= MOST_OF_LANE:
        return list(places)
    step = (len(places) - 1) / (MOST_OF_LANE - 1)
    return [places[round(number * step)] for number in range(MOST_OF_LANE)]


FIRST_RANK = 1  # of the first place of a lane that has several


def ranks_of(places: Iterable[ExchangePlace]) -> dict[ExchangePlace, int]:
    """Return a rank for each place within its lane: 0 for the middle, 1 for the first, then the last, and others."""
    ranks: dict[ExchangePlace, int] = {}
    for lane in by_lane(places).values():
        middle, last = len(lane) // 2, len(lane) - 1
        chosen = dict.fromkeys((middle, 0, last))
        for rank, number in enumerate((*chosen, *(one for one in range(len(lane)) if one not in chosen))):
            ranks[lane[number]] = rank
    return ranks
