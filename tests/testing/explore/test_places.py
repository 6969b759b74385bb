"""Places: what is the same in every run of a test."""

from __future__ import annotations

from dataclasses import replace

from kproxy.testing.explore.model import PlaceMark
from kproxy.testing.explore.places import (
    MOST_OF_LANE,
    MOST_PLACES,
    EntityFacts,
    ExchangeFacts,
    common_places,
    digest_of,
    errors_of,
    places_of,
)
from tests.testing.explore.made_up import COPY, commit, exchange, produce, stable


def marks(exchanges) -> list[PlaceMark]:
    return [place.mark for place in stable(exchanges)]


def test_a_batch_that_is_sent_again_is_the_same_batch() -> None:
    """A retry moves the ordinals of later writes, and not the number of their batches."""
    assert marks([produce(1), produce(1), produce(2)]) == [
        PlaceMark("batch", 1, batch=1, again=1),
        PlaceMark("batch", 2, batch=1, again=2),
        PlaceMark("batch", 3, batch=2, again=1),
    ]
    first, again, second = stable([produce(1), produce(1), produce(2)])
    assert first.identity != again.identity
    assert second.identity == stable([produce(1), produce(2)])[1].identity
    assert again.traits >= {"again"}
    assert "again" not in second.traits


def test_commits_and_fetches_are_told_by_their_offsets() -> None:
    """An offset that is asked for again is the second place with that offset, whatever comes between."""
    fetches = [exchange("Fetch", topic="in", partition=0, offset=at) for at in (0, 3, 0)]
    assert marks(fetches) == [PlaceMark("offset", 1, 0), PlaceMark("offset", 1, 3), PlaceMark("offset", 2, 0)]
    assert marks([commit(4), commit(4)]) == [PlaceMark("offset", 1, 4), PlaceMark("offset", 2, 4)]


def test_a_request_counts_once_for_what_it_names_twice() -> None:
    """Rules count requests, so a request about the same thing twice has one place."""
    twice = ExchangeFacts("Heartbeat", "app", entities=(EntityFacts(group="g"), EntityFacts(group="g")))
    assert marks([twice, twice]) == [PlaceMark("ordinal", 1), PlaceMark("ordinal", 2)]


def test_clients_of_one_id_are_told_apart_by_their_software_only() -> None:
    """The software is a part of a place where two libraries speak under one id, and else left out."""
    java = ExchangeFacts("Metadata", "app", "java/4")
    assert [place.client_software for place in places_of([java, java])] == [None, None]
    c = replace(java, client_software="librdkafka/2")
    assert [place.client_software for place in places_of([java, c])] == ["java/4", "librdkafka/2"]


def test_what_nobody_answers_says_so() -> None:
    """A write with acks 0 cannot lose its answer."""
    (place,) = stable([replace(produce(1), answered=False)])
    assert "unanswered" in place.traits


def test_places_of_a_run_are_bounded() -> None:
    """A test with endless exchanges has no endless list of places."""
    assert len(places_of([exchange("Metadata")] * (MOST_PLACES + 10))) == MOST_PLACES


def test_equal_runs_have_all_places_in_common() -> None:
    """Two runs that are alike give each exchange a place, in order."""
    places = places_of(COPY)
    learned = common_places(places, places)
    assert [place.api for place in learned.places] == [one.api for one in COPY]
    assert {place.partition for place in learned.places} == {None, 0}
    assert learned.varying == ()
    assert learned.kinds == 3


def test_where_runs_count_differently_the_first_and_the_last_are_left() -> None:
    """Of an API that is polled a different number of times there are a first request and one that both runs have."""
    some, more = ([exchange("Metadata")] * count for count in (3, 5))
    for one, other in ((some, more), (more, some)):
        learned = common_places(places_of(one), places_of(other))
        assert [place.mark for place in learned.places] == [PlaceMark("first", 1), PlaceMark("last", 3)]
        assert learned.varying == ("Metadata",)
    alone = common_places(places_of(some[:1]), places_of(more))
    assert [place.mark for place in alone.places] == [PlaceMark("first", 1)]


def test_offsets_that_one_run_asked_for_are_not_stable() -> None:
    """Of fetches those are in common that ask for the same offset as often."""
    one = [exchange("Fetch", topic="in", partition=0, offset=at) for at in (0, 3, 3)]
    other = [exchange("Fetch", topic="in", partition=0, offset=at) for at in (0, 2, 3)]
    learned = common_places(places_of(one), places_of(other))
    assert [place.mark.offset for place in learned.places] == [0, 3]


def test_a_batch_at_another_ordinal_is_not_stable() -> None:
    """A rule acts at ordinals, so a batch that came after a retry in one run only is left out."""
    learned = common_places(places_of([produce(1), produce(2)]), places_of([produce(1), produce(1), produce(2)]))
    assert [place.mark.batch for place in learned.places] == [1]


def test_partitions_that_are_others_in_each_run_are_left_out() -> None:
    """Records without a key go anywhere, so their writes are told by the topic; so are the commits of their readers."""
    runs = [
        places_of([one for at in partitions for one in (produce(1, partition=at), commit_at(at))])
        for partitions in ((0, 1, 2), (2, 0, 0))
    ]
    learned = common_places(*runs)
    writes = [place for place in learned.places if place.api == "Produce"]
    assert [(place.partition, place.mark.nth) for place in writes] == [(None, 1), (None, 2)]
    commits = [place for place in learned.places if place.api == "OffsetCommit"]
    assert [(place.partition, place.mark.offset, place.mark.nth) for place in commits] == [
        (None, 1, 1),
        (None, 1, 2),
        (None, 1, 3),
    ]
    assert not learned.by_partition


def commit_at(partition: int):
    return exchange("OffsetCommit", topic="in", partition=partition, group="g", offset=1)


def test_traits_hold_in_both_runs_or_not() -> None:
    """What was true of an exchange in one run only is not relied on."""
    bare = produce(1, traits=frozenset({"topic"}))
    learned = common_places(places_of([produce(1)]), places_of([bare]))
    assert learned.places[0].traits == {"topic"}


def test_names_that_are_new_in_each_run_have_no_places() -> None:
    """A topic that exists in one run only is in nobody's plan."""
    learned = common_places(places_of([produce(1, topic="a")]), places_of([produce(1, topic="b")]))
    assert learned.places == ()


def test_one_in_the_middle_is_tried_first() -> None:
    """Of a lane's places the one in the middle comes first, then the first, the last, and the others."""
    places = places_of([produce(number) for number in range(5)])
    learned = common_places(places, places)
    order = sorted(learned.places, key=lambda place: learned.ranks[place])
    assert [place.mark.nth for place in order] == [3, 1, 5, 2, 4]


def test_a_long_lane_is_tried_at_places_all_over_it() -> None:
    """Of thousands of writes some are places, the first and the last among them."""
    places = places_of([produce(number) for number in range(1000)])
    learned = common_places(places, places)
    assert len(learned.places) == MOST_OF_LANE
    assert {1, 1000} <= {place.mark.nth for place in learned.places}


def test_digests_do_not_count_polls() -> None:
    """Runs that differ in how often they polled are the same to a client; those with another error are not."""
    polls = exchange("Heartbeat", group="g")
    assert digest_of([*COPY, polls]) == digest_of([polls, polls, *COPY])
    assert digest_of([replace(polls, answered=False)]) == digest_of([polls])
    assert digest_of(COPY) != digest_of(COPY[:-1])
    assert digest_of(COPY) != digest_of([*COPY[:-1], replace(COPY[-1], answered=False)])
    assert digest_of([polls]) != digest_of([exchange("Heartbeat", group="g", error="ILLEGAL_GENERATION")])


def test_errors_are_told_once() -> None:
    failing = exchange("Heartbeat", group="g", error="ILLEGAL_GENERATION")
    assert errors_of([failing, polls := exchange("Heartbeat"), failing, polls]) == ("ILLEGAL_GENERATION",)
