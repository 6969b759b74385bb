"""Which exchanges go into a capture, from which side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kproxy.record.captures.pairs import MOST_UNMATCHED
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.running_captures import CaptureSink, host_port
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.filters import ExchangeView, Filter
from kproxy.session.cluster import CORRELATION
from tests.support.capture_files import client, metadata, produce

WHO = client(broker="10.0.0.1:9093")


@dataclass
class Wrote:
    """Stands for the file."""

    stopped: str = ""
    began: float = 900.0
    lines: list[tuple[Any, ...]] = field(default_factory=list)

    def exchange(self, seen: ObservedExchange, server: tuple[str, int], opened: float | None, *, behind: bool) -> None:
        topic = (seen.request_body or {"topics": [{"name": "?"}]})["topics"][0]["name"]
        self.lines.append(("behind" if behind else "front", seen.correlation_id, topic, server, opened))

    def closed(self, who: Any, now: float) -> None:
        self.lines.append(("closed", who.number))


def sink(wanted: str = "", side: str = "both", payload: str = "full") -> tuple[CaptureSink, Wrote]:
    file = Wrote()

    def view(seen: ObservedExchange) -> ExchangeView:
        return ExchangeView(seen, lambda one: {})

    made = CaptureSink(
        file, Policy(payload), Filter(wanted), side, lambda who: ("127.0.0.1", 9092), view
    )  # fmt: skip
    made.opened(WHO, 999.0)
    return made, file


def pair(number: int) -> tuple[ObservedExchange, ObservedExchange]:
    """A request for orders that went to the broker as one for prod.orders."""
    return metadata(number, who=WHO), metadata(number, who=WHO, topic="prod.orders")


@pytest.mark.parametrize("first", ["front", "behind"])
def test_what_brokers_saw_is_written_where_it_differs(first: str) -> None:
    """Whichever comes first; what went through unchanged is there once."""
    made, file = sink()
    front, behind = pair(1)
    same = metadata(2, who=WHO)
    for one, other in ((front, behind), (same, replace(same))):
        if first == "front":
            made.take(one)
            made.take_behind(other)
        else:
            made.take_behind(other)
            made.take(one)
    made.closed(WHO, 1001.0)

    assert sorted(file.lines) == sorted(
        [("front", 1, "orders", ("127.0.0.1", 9092), 999.0), ("behind", 1, "prod.orders", ("10.0.0.1", 9093), 999.0),
         ("front", 2, "orders", ("127.0.0.1", 9092), 999.0), ("closed", 7)]
    )  # fmt: skip


@pytest.mark.parametrize("first", ["front", "behind"])
def test_exchanges_of_one_correlation_id_are_paired_in_order(first: str) -> None:
    """A client uses it twice at a time: each of its exchanges is compared with what the broker saw of it."""
    made, file = sink()
    front, behind = pair(1)
    same = metadata(1, who=WHO)
    groups = [(made.take, (front, same)), (made.take_behind, (behind, replace(same)))]
    for take, group in groups if first == "front" else reversed(groups):
        for seen in group:
            take(seen)
    assert not made.matcher.waiting
    made.closed(WHO, 1001.0)

    assert sorted(line[:3] for line in file.lines) == sorted(
        [("front", 1, "orders"), ("front", 1, "orders"), ("behind", 1, "prod.orders"), ("closed", 7)]
    )


@pytest.mark.parametrize("first", ["front", "behind"])
def test_a_client_that_uses_an_id_of_kproxys_own(first: str) -> None:
    """Times tell what kproxy asked by itself from what the client did, as they do for an id that is used again."""
    made, file = sink()
    own, later = metadata(CORRELATION, who=WHO, at=990.0, topic="own"), metadata(CORRELATION, who=WHO, at=1010.0)
    front, behind = (metadata(CORRELATION, who=WHO, topic=topic) for topic in ("orders", "prod.orders"))
    takes = [(made.take_behind, own), (made.take_behind, behind), (made.take, front)]
    for take, seen in takes if first == "behind" else [takes[0], takes[2], takes[1]]:
        take(seen)
    assert [line[:3:2] for line in file.lines] == [("front", "orders"), ("behind", "prod.orders")]
    made.take_behind(replace(later))
    made.take(later)
    made.closed(WHO, 1020.0)
    assert [line[:3:2] for line in file.lines[2:-1]] == [("front", "orders"), ("behind", "own")]


def test_sides() -> None:
    """Of clients only, of brokers only; the other side is not even asked for."""
    for side, wanted in (("client", ["front"]), ("broker", ["behind"])):
        made, file = sink(side=side)
        front, behind = pair(1)
        made.take(front)
        made.take_behind(behind)
        assert (side != "client", wanted) == (made.broker_side, [line[0] for line in file.lines])


def test_the_filter_is_asked_about_the_clients_side() -> None:
    """What it does not mean is written from neither side; of other APIs not even frames are kept."""
    made, file = sink("api == Metadata and correlation_id > 1")
    for number in (1, 2):
        front, behind = pair(number)
        made.take_behind(behind)
        made.take(front)
    made.take(produce(3, who=WHO))

    assert [("front", 2), ("behind", 2)] == [line[:2] for line in file.lines]
    assert (Depth.FULL, Depth.COUNT) == (made.depth(3, 8), made.depth(0, 8))
    assert Depth.SKETCH == sink(payload="none")[0].depth(3, 8)


def test_kproxys_own_requests() -> None:
    """They have no client's side: they are written when the connection is over, or too many wait."""
    made, file = sink()
    for number in range(MOST_UNMATCHED + 2):
        made.take_behind(metadata(number, who=WHO))
    assert [("behind", 0), ("behind", 1)] == [line[:2] for line in file.lines]
    made.closed(WHO, 1001.0)
    assert MOST_UNMATCHED + 3 == len(file.lines)
    assert not made.watched


def test_answers_of_kproxys_own_have_no_broker_side() -> None:
    """Nothing is waited for; and what waits on the client's side is bounded."""
    made, _ = sink()
    answered = metadata(1, who=WHO)
    answered.answered_by_rule = True
    made.take(answered)
    assert not made.matcher.waiting
    for number in range(3 * MOST_UNMATCHED):
        made.take(metadata(number, who=WHO))
    assert MOST_UNMATCHED == len(made.matcher.waiting)


def test_connections_that_were_not_announced() -> None:
    """They are taken all the same; a file that has ended takes nothing; where nothing was taken, nothing ends."""
    made, file = sink()
    made.watched.clear()
    made.take(metadata(1, who=WHO))
    assert (None, ("127.0.0.1", 9092)) == (file.lines[0][4], file.lines[0][3])
    made.closed(client(99), 1001.0)
    made.opened(client(98), 1001.0)
    made.closed(client(98), 1001.0)
    file.stopped = "max_size"
    made.take(metadata(2, who=WHO))
    made.take_behind(metadata(2, who=WHO))
    assert 1 == len(file.lines)


def test_connection_older_than_the_capture_has_no_beginning() -> None:
    """Its client connected before the capture began."""
    made, file = sink()
    made.opened(WHO, file.began - 1)
    made.take(metadata(1, who=WHO))
    assert file.lines[0][4] is None


def test_addresses_of_brokers() -> None:
    """As they stand in configs, and none."""
    assert ("b1", 9093) == host_port("b1:9093")
    assert ("::1", 9093) == host_port("[::1]:9093")
    assert ("b1", 9092) == host_port("b1")
    assert ("unknown", 9092) == host_port(None)
